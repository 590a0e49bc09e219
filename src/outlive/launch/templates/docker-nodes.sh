#!/bin/sh
@{header}
# The same file on each of the @{nodes} nodes, from the directory that holds the code:  sh docker.sh NODE
# NODE from 0 to @{last}, 0 on the first. `docker logs -f @{name}` follows it, `docker rm @{name}` before the next start.
set -eu
NODE=${1-${NODE_RANK-}}
case $NODE in
'' | *[!0-9]*)
    echo "usage: sh $0 NODE   (a number from 0 to @{last})" >&2
    exit 2
    ;;
esac
if [ "$NODE" -gt @{last} ]; then
    echo "usage: sh $0 NODE   (a number from 0 to @{last}, not $NODE)" >&2
    exit 2
fi
@{meeting}
@{checkpoints}
@{command}
