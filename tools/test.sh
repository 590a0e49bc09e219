#!/bin/sh
# test.sh [PYTEST ARG...]   the packages that real boxes need, the travelling packages on every Python, then everything.
# The last line is pytest's own.
if [ -f testbed/install.sh ]; then
    # As root it installs; otherwise it prints what to install, and tests that need it say so.
    sh testbed/install.sh </dev/null || { echo "testbed/install.sh failed"; exit 1; }
fi
status=0
.venv/bin/python tools/travel_tests.py || status=1
jobs=${OUTLIVE_TEST_JOBS:-auto}
.venv/bin/python -m pytest -q -n "$jobs" --dist worksteal "$@" </dev/null || status=1
exit $status
