#!/bin/sh
# train.sh [ARG...]   start or resume on all GPUs of this machine; arguments go to train.py.
# NPROC=2 sh train.sh    so many processes; one process where there is no GPU.
# NODES=2 NODE_RANK=0 MASTER=10.0.0.1 sh train.sh    on each of several machines.
set -eu
cd "$(dirname "$0")"
nproc=${NPROC:-}
if [ -z "$nproc" ]; then
    nproc=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)
fi
[ "${nproc:-0}" -ge 1 ] || nproc=1
if [ "$nproc" = 1 ] && [ "${NODES:-1}" = 1 ]; then
    exec "${PYTHON:-python}" train.py "$@"
fi
if [ "${NODES:-1}" = 1 ]; then
    exec "${PYTHON:-python}" -m torch.distributed.run --standalone --nproc-per-node "$nproc" train.py "$@"
fi
exec "${PYTHON:-python}" -m torch.distributed.run --nnodes "$NODES" --node-rank "${NODE_RANK:?}" \
    --master-addr "${MASTER:?}" --master-port "${PORT:-29500}" --nproc-per-node "$nproc" train.py "$@"
