"""The archive that boxes get holds the torch half: an example runs from it alone, is killed, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlive.transport.pack_train import train_zip

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "checkpointed" / "train.py"


def start(home: Path, archive: Path) -> subprocess.Popen[str]:
    home.mkdir(exist_ok=True)
    env = {**os.environ, "PYTHONPATH": str(archive), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, str(EXAMPLE), "--steps", "60", "--every-steps", "5"]
    return subprocess.Popen(argv, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.torch
@pytest.mark.slow
def test_the_example_runs_from_the_archive_and_ends_with_the_same_weights_after_a_kill(tmp_path: Path) -> None:
    archive = tmp_path / "train.zip"
    archive.write_bytes(train_zip()[1])
    whole, _ = start(tmp_path / "whole", archive).communicate(timeout=300)
    cut = start(tmp_path / "cut", archive)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("cut/out/ckpt/step-*")) and cut.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    cut.send_signal(signal.SIGKILL)
    cut.communicate()
    again, _ = start(tmp_path / "cut", archive).communicate(timeout=300)
    assert "weights " in whole, whole
    assert "resumed from" in again, again
    assert whole.splitlines()[-1] == again.splitlines()[-1]
