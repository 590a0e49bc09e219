"""kill -9 at random moments and before each system call of a save: the newest whole one is always there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEMORY = "/dev/shm"


def strike(tmp_path, *words):
    """Run the benchmark; on a memory file system where there is one: a kill of a process loses no cached page."""
    home = MEMORY if os.access(MEMORY, os.W_OK) else str(tmp_path)
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "checkpoint_kills.py"), "--json", "--home", home, *words],
        capture_output=True,
        timeout=600,
    )
    assert done.stdout, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments(tmp_path, seed):
    result = strike(tmp_path, "--kills", "20", "--seed", str(seed))
    assert result["wrong"] == []
    assert result["kills"] == 20


def test_killed_before_each_call_that_changes_something(tmp_path):
    result = strike(tmp_path, "--every-call")
    assert result["wrong"] == []
    assert {"write", "publish", "copy", "prune"} <= set(result["struck"])
