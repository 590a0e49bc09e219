"""The emitted batch script on a real Slurm: two nodes meet, it ends before its limit, is queued again, and resumes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.launched import LIMIT_S, TRAIN, need
from servers.slurmbed import Slurm

from outlive.launch.description import Launch
from outlive.launch.kinds import render

pytestmark = [pytest.mark.torch, pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        if os.environ.get("OUTLIVE_REQUIRE_ROOT"):
            pytest.fail("a Slurm of one's own needs root on Linux")
        pytest.skip("a Slurm of one's own needs root on Linux")
    need("torch")
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        yield cluster
    finally:
        cluster.close()


def project(tmp_path: Path, launch: Launch) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.sh").write_text(render(launch, "slurm").main.text)
    return tmp_path


def plan(**fields: object) -> Launch:
    plain = {
        "nodes": 2, "gpus_per_node": 1, "workers": 0, "checkpoint_dir": "ckpt", "walltime_s": 600, "grace_s": 60,
        "args": ("40", "{checkpoint_dir}", "-1", "0.5"), "max_restarts": 0, "env": (("CUDA_VISIBLE_DEVICES", ""),),
    }  # fmt: skip
    return Launch(**{**plain, **fields})  # type: ignore[arg-type]


def state(directory: Path) -> dict[str, object]:
    path = directory / "ckpt" / "state.json"
    return json.loads(path.read_text()) if path.exists() else {"step": 0, "starts": [], "worlds": []}


def wait_for(slurm: Slurm, what: str, true: object, log: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():  # type: ignore[operator]
        if time.monotonic() > end:
            pytest.fail(f"not: {what}\n{log.read_text() if log.exists() else ''}\n{slurm.logs()}")
        time.sleep(0.2)


def test_the_signal_before_the_limit_saves_and_queues_again_and_it_resumes(slurm, tmp_path):
    directory = project(tmp_path, plan(name="resumes"))
    job = slurm.say("sbatch", "--parsable", "job.sh", cwd=directory).strip()
    second = slurm.say("sbatch", "--parsable", "job.sh", cwd=directory).strip()
    log = directory / f"resumes-{job}.log"
    wait_for(slurm, "some steps", lambda: state(directory)["step"] >= 3, log)
    assert slurm.field(second, "JobState") == "PENDING"  # of two submissions one runs
    slurm.say("scancel", second)
    # what Slurm itself sends `grace_s` before the limit
    slurm.say("scancel", "--batch", "--signal=USR1", job)
    wait_for(slurm, "queued again", lambda: slurm.field(job, "Restarts") == "1", log)
    reached = state(directory)["step"]
    assert (directory / "ckpt" / "last").exists(), log.read_text()  # the node that was slower was let finish
    assert 3 <= reached < 40
    slurm.until(job, "PENDING")
    slurm.say("scontrol", "update", f"jobid={job}", "StartTime=now")  # Slurm lets a requeued job wait for two minutes
    slurm.until(job, "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
    said = log.read_text()
    assert slurm.field(job, "JobState") == "COMPLETED", said
    assert state(directory) == {"step": 40, "starts": [0, reached], "worlds": [2, 2]}, said
    assert "asking the work to save and end" in said and "queued again" in said


def test_a_start_that_left_nothing_new_is_not_queued_again(slurm, tmp_path):
    directory = project(tmp_path, plan(name="circle"))
    (directory / "train.py").write_text("import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(600)\n")
    job = slurm.say("sbatch", "--parsable", "job.sh", cwd=directory).strip()
    log = directory / f"circle-{job}.log"
    wait_for(slurm, "the work runs", lambda: (directory / "here").exists(), log)
    slurm.say("scancel", "--batch", "--signal=USR1", job)
    slurm.until(job, "COMPLETED", "FAILED", "PENDING")
    assert slurm.field(job, "JobState") == "FAILED", log.read_text()
    assert "no new checkpoint since this start" in log.read_text()
