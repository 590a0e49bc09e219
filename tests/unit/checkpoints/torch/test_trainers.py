"""The real Trainer, Lightning and Accelerate, killed by SIGKILL and resumed: the weights end as undisturbed ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("trainers_job.py")
SRC = Path(__file__).resolve().parents[4] / "src"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["accelerate", "hf", "lightning"])
def test_killed_and_resumed_it_ends_with_the_same_weights(kind, tmp_path):
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(SRC), HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    argv = [sys.executable, str(JOB), kind, str(tmp_path)]
    done = subprocess.run(argv, env=env, cwd=str(tmp_path), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    whole, killed, again = json.loads(done.stdout.splitlines()[-1])
    assert "error" not in whole and "error" not in again, (whole, again)
    assert killed == {"killed": 9} and not whole["resumed"] and again["resumed"]
    assert again["digest"] == whole["digest"]
    (home,) = {p.parent for p in tmp_path.glob("cut/ckpt/checkpoints_index.json")}
    assert not [p.name for p in home.iterdir() if p.name.startswith(".")]
