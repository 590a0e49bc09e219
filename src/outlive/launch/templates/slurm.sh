#!/bin/bash
@{header}
# Submit it from the directory that holds the code, on a file system that all nodes share.
#SBATCH --job-name=@{name}
#SBATCH --nodes=@{nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=@{cpus}
@{asked}
#SBATCH --time=@{time}
#SBATCH --signal=B:USR1@@{lead}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
#SBATCH --dependency=singleton
# singleton: of several submissions under this name one runs at a time, so two never write the same checkpoints.
set -u
CHECKPOINTS=@{checkpoints}
mkdir -p "$CHECKPOINTS" || exit 1
since="$CHECKPOINTS/.since-$SLURM_JOB_ID"
: >"$since" || exit 1

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) # two jobs on one node do not meet
echo "start ${SLURM_RESTART_COUNT:-0} of job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, meeting at $MASTER_ADDR:$MASTER_PORT"
@{environment}

# Slurm wakes this shell before the limit. The work gets TERM: it saves and ends.
export ASKED="$CHECKPOINTS/.asked-$SLURM_JOB_ID"
rm -f "$ASKED"
asked=0
ask() {
    asked=1
    echo "the time limit is near: asking the work to save and end"
    : >"$ASKED"
    scancel --signal=TERM "$SLURM_JOB_ID"
}
trap ask USR1

# A crash on one node ends the others. A node that was asked and is done must not: they may still be saving.
ON_NODE='trap : TERM
"$@"
status=$?
[ ! -e "$ASKED" ] || exit 0
exit "$status"'

@{command} &
step=$!
while :; do
    wait "$step"
    status=$?
    kill -0 "$step" 2>/dev/null || break # a signal ends the wait, not the work
done

if [ "$asked" -eq 0 ]; then
    rm -f "$since" "$ASKED"
    echo "the work ended with status $status"
    exit "$status"
fi
# Again only if this start has left something new: otherwise it would go round in a circle.
# Files being written and locks do not count.
new=$(cd "$CHECKPOINTS" && find . -mindepth 1 ! -path '*/.*' ! -name '*.lock' -newer ".since-$SLURM_JOB_ID" -print | head -n 1)
if [ -z "$new" ]; then
    rm -f "$since" "$ASKED"
    echo "no new checkpoint since this start: not queued again. Give it more time, or save more often" >&2
    exit 1
fi
rm -f "$since" "$ASKED"
echo "queued again, to resume from the newest checkpoint"
scontrol requeue "$SLURM_JOB_ID"
