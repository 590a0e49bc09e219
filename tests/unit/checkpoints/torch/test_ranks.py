"""Trainings of several processes over gloo: all ranks commit or none, and another number of them goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("ranks_job.py")
SRC = Path(__file__).resolve().parents[4] / "src"


def run(argv):
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(SRC))
    done = subprocess.run([sys.executable] + argv, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def phases(tmp_path, *wanted):
    """Run phases one after the other in one warmed-up process; return their answers."""
    (tmp_path / "phases.json").write_text(
        json.dumps([[kind, str(tmp_path / name)] + list(rest) for kind, name, *rest in wanted])
    )
    return json.loads(run([str(JOB), "phases", str(tmp_path / "phases.json")]).stdout.splitlines()[-1])


@pytest.mark.slow
def test_fully_shard_a_dead_rank_leaves_the_save_before_and_another_world_goes_on(tmp_path):
    whole, first, dead, again, one, three, longer = phases(
        tmp_path,
        ("fsdp2", "whole", 2, 8),
        ("fsdp2", "cut", 2, 4),
        ("fsdp2", "cut", 2, 6, True),  # its last rank dies in the save of step 6
        ("fsdp2", "cut", 2, 8),
        ("fsdp2", "cut", 1, 10),
        ("fsdp2", "cut", 3, 12),
        ("ddp", "longer", 1, 12),
    )
    assert "error" in dead
    assert (first[0], again[0], again[1]) == (0, 4, whole[1])  # to the last bit
    assert (one[0], three[0]) == (8, 10)
    assert three[2] == pytest.approx(longer[2], abs=1e-3)  # the same samples in the same order, other sums
    names = {p.name for p in (tmp_path / "cut").iterdir()}
    assert not [n for n in names if n.startswith(".")]
    import torch.distributed.checkpoint as dcp

    known = dcp.FileSystemReader(str(tmp_path / "cut" / "step-000000012" / "shards")).read_metadata()
    assert "model.0.weight" in known.state_dict_metadata


@pytest.mark.slow
def test_ddp_and_tensor_parallel_end_as_undisturbed(tmp_path):
    ddp, _first, ddp_again, tp, _first, tp_again = phases(
        tmp_path,
        ("ddp", "ddp", 2, 8),
        ("ddp", "ddp cut", 2, 5),
        ("ddp", "ddp cut", 2, 8),
        ("tp", "tp", 2, 8),
        ("tp", "tp cut", 2, 5),
        ("tp", "tp cut", 2, 8),
    )
    assert (ddp_again[0], ddp_again[1]) == (5, ddp[1])
    assert (tp_again[0], tp_again[1]) == (5, tp[1])


@pytest.mark.slow
def test_under_torchrun(tmp_path):
    launch = ["-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2", "--local-addr", "127.0.0.1"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(JOB), "fsdp2", str(tmp_path / "ckpt")]
    answers = []
    for until in ("3", "6"):
        lines = [json.loads(line) for line in run(launch + [until]).stdout.splitlines() if line.startswith("{")]
        answers.append({line["rank"]: line["answer"] for line in lines})
    assert {a[0] for a in answers[0].values()} == {0} and {a[0] for a in answers[1].values()} == {3}
    assert answers[1][0][1] == answers[1][1][1]
