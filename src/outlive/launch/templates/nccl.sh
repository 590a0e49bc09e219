# shellcheck shell=sh
@{header}
# Read it into the shell that starts the work, on every node:  . ./nccl.sh
@{readings}
@{variables}
