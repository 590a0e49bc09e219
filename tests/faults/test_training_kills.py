"""A training that is killed at random instants, many times over, ends with the bytes of an undisturbed one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.torch
@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "benchmarks/training_kills.py",
            "--kills",
            "20",
            "--seed",
            "1",
            "--dir",
            str(tmp_path),
            "--json",
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (result["kills"], result["wrong"], result["leftovers"]) == (20, 0, 0)
