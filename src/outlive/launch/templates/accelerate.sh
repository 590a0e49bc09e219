#!/bin/sh
@{header}
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
@{node}
@{environment}
@{checkpoints}
@{command}
