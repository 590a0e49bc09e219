#!/bin/sh
# test.sh [PYTEST ARG...]   the packages that real boxes need, the travelling packages on every Python, then everything.
# Real processes on a busy machine can be late for a test's own limit. So what fails is run once more, alone; what then
# passes is named, and what fails again has failed. The last line is pytest's own.
if [ -f testbed/install.sh ] && ! bash testbed/install.sh </dev/null; then
    # As root that is a failure. Otherwise it has printed what to install; the tests that need it will fail and say so.
    [ "$(id -u)" != 0 ] || exit 1
fi
status=0
.venv/bin/python tools/travel_tests.py || status=1
jobs=${OUTLIVE_TEST_JOBS:-$(( $(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1 ))}
# A test that hangs must not take the others with it.
limit="--timeout 600"
# shellcheck disable=SC2086  # two words
if ! .venv/bin/python -m pytest -q $limit -n "$jobs" --dist worksteal "$@" </dev/null; then
    echo "==== once more, alone: what failed beside others"
    .venv/bin/python -m pytest -q $limit --last-failed --last-failed-no-failures none -v "$@" </dev/null || status=1
fi
exit $status
