#!/bin/sh
@{header}
# On the first node only, from the directory that holds the code. The script must take `--deepspeed FILE`, as the Hugging Face Trainer does.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
MASTER_PORT=${MASTER_PORT:-@{port}}
@{environment}
@{checkpoints}
# Without this the other nodes would get next to nothing of this environment.
export DS_ENV_FILE="$HERE/deepspeed_env"
@{command}
