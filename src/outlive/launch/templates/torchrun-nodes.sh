#!/bin/sh
@{header}
# The same file on each of the @{nodes} nodes:  sh launch.sh NODE   with NODE from 0 to @{last}, 0 on the first.
# No restarts here: with fixed numbers the next start may find the addresses of the last one and wait for them.
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
@{environment}
@{checkpoints}
if [ "$NODE" -eq 0 ] && command -v python3 >/dev/null && ! python3 -c '
import socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("", int(sys.argv[1])))' "$MASTER_PORT" 2>/dev/null; then
    echo "port $MASTER_PORT is taken here; set MASTER_PORT to another one on every node" >&2
    exit 1
fi
@{command}
