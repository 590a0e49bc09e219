#!/bin/sh
@{header}
# The same line on every node; goes on with @{spread}, and starts again up to @{restarts} times after a crash.
# Each start resumes from the newest checkpoint: the work must load it without being asked.
set -eu
@{start}
@{environment}
@{checkpoints}
@{command}
