"""A process is killed for memory, for real: the counter says so, and says nothing before.

Makes a control group of its own at the top of the version 1 memory hierarchy and removes it again.
"""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

TOP = Path("/sys/fs/cgroup/memory")

pytestmark = pytest.mark.root

READ = """
import json, subprocess, sys
from outlive.probes.cgroup import cgroup
before = cgroup()
# A child, so that the reader itself lives: as supervisor and work do.
hog = subprocess.run([sys.executable, "-c", "x = bytearray(1 << 30)\\nfor i in range(0, len(x), 4096): x[i] = 1"])
after = cgroup()
print(json.dumps([before.to_wire(), after.to_wire(), hog.returncode]))
"""


def why_not():
    if os.geteuid() != 0:
        return "needs root to make a control group"
    if not (TOP / "memory.limit_in_bytes").exists():
        return f"needs a version 1 memory hierarchy at {TOP}"
    return ""


@pytest.fixture
def group():
    reason = why_not()
    if reason:
        if os.environ.get("OUTLIVE_REQUIRE_ROOT"):
            pytest.fail(reason)
        pytest.skip(reason)
    place = TOP / ("outlive-test-" + uuid.uuid4().hex[:12])
    place.mkdir()
    try:
        yield place
    finally:
        place.rmdir()


def test_the_kill_counter_grows_by_a_kill_for_memory_and_by_nothing_else(group):
    limit_bytes = 96 << 20
    (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
    swap = group / "memory.memsw.limit_in_bytes"
    if swap.exists():
        swap.write_text(str(limit_bytes))
    # The shell puts itself into the group and becomes the reader.
    run = subprocess.run(
        ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), sys.executable, "-c", READ],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr.decode()
    before, after, status = json.loads(run.stdout)
    assert status == -9
    assert before["version"] == 1 and before["paths"]["memory"] == str(group)
    assert before["memory_limit_bytes"] == limit_bytes and "memory_limit_bytes" not in before["unlimited"]
    assert before["oom_kill"] == 0 and after["oom_kill"] == 1
    assert 0 < before["memory_used_bytes"] <= limit_bytes
    assert after["memory_peak_bytes"] == pytest.approx(limit_bytes, rel=0.05)


def test_an_unrelated_kill_leaves_the_counter(group):
    code = READ.replace("x = bytearray(1 << 30)", "import os; os.kill(os.getpid(), 9); x = b''")
    run = subprocess.run(
        ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), sys.executable, "-c", code],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        stdout=subprocess.PIPE,
        timeout=60,
    )
    before, after, status = json.loads(run.stdout)
    assert status == -9 and before["oom_kill"] == after["oom_kill"] == 0
    assert "memory_limit_bytes" in before["unlimited"]
