#!/bin/sh
# with_python.sh SCRIPT [ARG...]   runs SCRIPT with the newest Python 3.11+ of this machine that can make environments.
# An interpreter whose `venv` was split into another package (Debian) counts as missing; the last line says which package.
split=""
for name in ${OUTLIVE_PYTHON:-python3.13 python3.12 python3.11 python3 python3.14}; do
    command -v "$name" >/dev/null 2>&1 || continue
    "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if "$name" -c 'import ensurepip, venv' 2>/dev/null; then exec "$name" "$@"; fi
    split=$name
done
if [ -n "$split" ]; then
    echo "$split has no venv module; nothing was changed. Debian and Ubuntu: apt-get install python3-venv" >&2
else
    echo "no Python 3.11 or newer found on PATH; nothing was changed." >&2
    echo "Debian 12+, Ubuntu 24.04+: apt-get install python3 python3-venv    macOS: brew install python@3.12" >&2
    echo "Another one: make OUTLIVE_PYTHON=/path/to/python3.12 ..." >&2
fi
exit 2
