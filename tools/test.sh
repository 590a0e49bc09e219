#!/bin/sh
# test.sh [PYTEST ARG...]   the packages that real boxes need, the travelling packages on every Python, then everything.
# The last line is pytest's own.
if [ -f testbed/install.sh ] && ! bash testbed/install.sh </dev/null; then
    # As root that is a failure. Otherwise it has printed what to install; the tests that need it will fail and say so.
    [ "$(id -u)" != 0 ] || exit 1
fi
status=0
.venv/bin/python tools/travel_tests.py || status=1
.venv/bin/python -m pytest -q -n "${OUTLIVE_TEST_JOBS:-auto}" --dist worksteal "$@" </dev/null || status=1
exit $status
