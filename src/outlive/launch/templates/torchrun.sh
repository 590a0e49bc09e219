#!/bin/sh
@{header}
set -eu
@{environment}
@{checkpoints}
# It meets itself on a free port; a stop signal reaches the work, which has OUTLIVE_GRACE_S seconds to save.
@{command}
