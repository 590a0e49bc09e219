"""The disk under a live run turns read-only, as ext4 does it after an error: what is on it stays reachable."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client, pids_of, work_of

from outlive import errors
from outlive.runs.down import down, loss_lines
from outlive.runs.pull import pull

SAVES = """
import json, os, sys, time
os.makedirs("ckpt", exist_ok=True)
done = sorted(int(n[5:-5]) for n in os.listdir("ckpt") if n.startswith("step-"))
step = done[-1] if done else 0
print("begins at", step, flush=True)
while step < 40:
    step += 1
    time.sleep(0.1)
    print("step %d loss %.3f" % (step, 3 / step), flush=True)
    if step % 5 == 0:
        with open("ckpt/.aside", "w") as out:
            json.dump({"step": step}, out)
            out.flush()
            os.fsync(out.fileno())
        os.rename("ckpt/.aside", "ckpt/step-%d.json" % step)
json.dump({"step": step}, open("result.json", "w"))
"""


def begun(client: Client, box: Any) -> str:
    client.up(box)
    (client.project / "train.py").write_text(SAVES)
    run = client.run(client.job("saves", "python", "train.py", roster=("result.json",))).run
    client.until(run, lambda s: (s["checkpoint"] or {}).get("step", 0) >= 10)
    return run


def test_the_disk_turns_read_only_and_comes_back_with_a_repair(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box = box_factory(disk="ext4:96:8000")
    run = begun(client, box)
    proved = client.status(run)["checkpoint"]["step"]
    box.turn_read_only()
    # the work dies of its next write; nobody can note how, and nobody says that it failed, is gone or has succeeded
    status = client.until(run, lambda s: s["work_alive"] is False)
    status = client.until(run, lambda s: "takes no writes any more" in s["why"])
    assert status["state"] == "unknown" and not status["ended"] and not status["needs_wake"]

    # this is the moment to pull
    got = pull(client.home, run, to=tmp_path / "early")
    assert got.exit_code == 0 and not got.wrong and got.live and got.delivery != "proved"
    assert (tmp_path / f"early/ckpt/step-{proved}.json").exists()

    refused = down(client.home, client.box().name, dry_run=True)
    assert refused.exit_code == 3 and isinstance(refused.refusal, errors.RunAlive) and refused.decision is not None
    assert "takes no writes any more" in "\n".join(loss_lines(refused.decision))
    with pytest.raises(errors.PlaceError, match="takes no writes any more") as caught:
        client.run(client.job("other", "true"))
    assert "Nothing was started" in caught.value.safe and ["outlive", "pull"] in caught.value.next
    again = client.run(client.job("saves", "python", "train.py", roster=("result.json",)))
    assert (again.run, again.how, again.status["state"]) == (run, "attached", "unknown")

    # a supervisor that dies now cannot be replaced, and watching does not try for ever
    for pid in pids_of(box, "pyz supervise"):
        os.kill(pid, signal.SIGKILL)
    status = client.until(run, lambda s: not s["supervised"], wake_it=True)
    assert status["state"] == "unknown" and "takes no writes any more" in status["why"]

    box.repair()
    final = client.until(run, lambda s: s["ended"], wake_it=True)
    assert final["state"] == "succeeded" and final["attempt"] == 2
    log = (work_of(box, client, run).parent / "log").read_text()
    assert int(log.rpartition("begins at ")[2].split()[0]) >= proved, "it goes on from what was called proved"
    assert pull(client.home, run, to=tmp_path / "late").delivery == "proved"


def test_an_exit_status_waits_until_it_can_be_written(box_factory: Any, client: Client) -> None:
    """The keeper is the only one that knows it: it tries until the disk takes it."""
    box = box_factory(disk="ext4:96:8000")
    client.up(box)
    command = ("sh", "-c", "echo ready; while [ ! -e go ]; do sleep 0.1; done; exit 7")
    run = client.run(client.job("waits", *command)).run
    client.until(run, lambda s: s["work_alive"])
    work = work_of(box, client, run)
    exit_new = box.disk / "up" / (work.parent / "attempts/1/exit.new").relative_to(box.root)
    supervisors = pids_of(box, "pyz supervise")
    for pid in supervisors:
        os.kill(pid, signal.SIGSTOP)  # it would decide without the keeper
    subprocess.run(["chattr", "+i", str(exit_new)], check=True)
    (work / "go").write_text("")
    end = time.monotonic() + 60
    while "cannot" not in (said := (work.parent / "attempts/1/keeper.err").read_text().lower()):
        assert time.monotonic() < end, said
        time.sleep(0.1)
    subprocess.run(["chattr", "-i", str(exit_new)], check=True)
    while not (work.parent / "attempts/1/exit").exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    for pid in supervisors:
        os.kill(pid, signal.SIGCONT)
    final = client.until(run, lambda s: s["ended"])
    assert final["state"] == "failed" and "exit status 7" in final["why"]
