"""Slurm: one batch script that saves before the limit, queues itself again, and may be submitted twice."""

from __future__ import annotations

from outlive.errors import UsageError
from outlive.launch.description import Launch
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.network import environment
from outlive.launch.shell import Raw, exports, lines, quote
from outlive.launch.torchrun import argv


def limit(seconds: int) -> str:
    """Return a time limit as Slurm reads it; whole minutes, because it counts no less."""
    minutes = max(1, seconds // 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:00" if days else f"{hours:02}:{minutes:02}:00"


def render(launch: Launch) -> Rendering:
    """``slurm``: a script for sbatch. It asks for the signal ``grace_s`` before the limit."""
    if launch.min_nodes not in (None, launch.nodes):
        raise UsageError(
            "a Slurm job gets all of its nodes or none; min_nodes is not possible here", safe="Nothing was written."
        )
    if launch.grace_s * 2 > launch.walltime_s:
        raise UsageError(
            f"the last {launch.grace_s} s of {launch.walltime_s} s would be kept for saving: more than half",
            safe="Nothing was written.",
        )
    asked = []
    if launch.device == "cuda":
        asked.append(f"#SBATCH --gpus-per-node={launch.gpus_per_node}")
    if launch.partition:
        asked.append(f"#SBATCH --partition={launch.partition}")
    if launch.account:
        asked.append(f"#SBATCH --account={launch.account}")
    # a process and its data loaders per GPU; srun no longer takes the number over from the job by itself
    cpus = str(launch.gpus_per_node * (1 + launch.workers) if launch.device == "cuda" else 1)
    command = argv(
        launch,
        "--rdzv-backend=c10d",
        Raw('--rdzv-id="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"'),
        Raw('--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT"'),
        restarts=launch.max_restarts,
    )
    text = fill(
        "slurm.sh",
        header=launch.header(),
        name=launch.name,
        nodes=str(launch.nodes),
        cpus=cpus,
        time=limit(launch.walltime_s),
        lead=str(launch.grace_s),
        asked="\n".join(asked),
        checkpoints=quote(launch.checkpoint_dir),
        environment=exports(environment(launch, restarts=True)),
        command=lines(
            [["srun", f"--cpus-per-task={cpus}", "--kill-on-bad-exit=1", Raw('bash -c "$ON_NODE" node')], *command]
        ),
    )
    return Rendering(
        (File("job.sh", text, "for sbatch; may be submitted twice, the second waits for the first"),),
        ("sbatch job.sh",),
    )
