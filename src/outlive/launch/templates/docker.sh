#!/bin/sh
@{header}
# From the directory that holds the code. `docker logs -f @{name}` follows it; `docker stop @{name}` lets it save first.
# A second start under this name is refused by docker until `docker rm @{name}`: two never write the same checkpoints.
set -eu
@{checkpoints}
@{command}
