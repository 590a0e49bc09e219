"""The box may start no more processes: the limit of its control group is reached, and our own half needs some."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from servers.clients import Client, pids_of, work_of

from outlive import errors

WORK = """
import json, os, time
print("begins", os.environ["OUTLIVE_ATTEMPT_NUMBER"], flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
if os.environ["OUTLIVE_ATTEMPT_NUMBER"] == "1":
    os.kill(os.getpid(), 9)
json.dump(1, open("result.json", "w"))
"""


class Limit:
    """The box's limit of processes."""

    def __init__(self, box: Any) -> None:
        self.group = box.cgroup["pids"]

    def tighten(self) -> None:
        """No process more, also after some have ended."""
        (self.group / "pids.max").write_text("1")

    def lift(self) -> None:
        (self.group / "pids.max").write_text("512")


def test_an_attempt_that_cannot_be_started_waits_and_nothing_is_called_failed(box_factory: Any, client: Client) -> None:
    box = box_factory()
    limit = Limit(box)
    client.up(box)
    run = client.run(client.job("count", "python", "-c", WORK, roster=("result.json",))).run
    client.until(run, lambda s: s["work_alive"] and s["first_line"])
    run_dir = work_of(box, client, run).parent
    journal = run_dir / "journal.jsonl"
    limit.tighten()
    (run_dir / "work/go").write_text("")
    end = time.monotonic() + 120
    said = []
    while '"waiting"' not in journal.read_text():
        try:
            client.once(run)
        except errors.PlaceError as error:  # no login either: that says nothing about the run
            said.append(error)
        assert time.monotonic() < end, journal.read_text()[-2000:]
    text = journal.read_text()
    assert "starts no more of them" in text and text.count('"k":"attempt"') == 1 and '"k":"ended"' not in text
    # how the first attempt ended is known: the keeper could write it and not rename it
    assert '"exit_code":137' in text
    for error in said:
        assert isinstance(error, errors.Unreachable) and "says nothing about" in error.safe
    limit.lift()
    final = client.until(run, lambda s: s["ended"], wake_it=True)
    assert final["state"] == "succeeded" and final["attempt"] == 2


def test_whoever_guards_the_supervisor_comes_back_with_the_processes(box_factory: Any, client: Client) -> None:
    """A shell that cannot start `sleep` ends. The half of the keeper that waits for the work does not."""
    box = box_factory()
    limit = Limit(box)
    client.up(box)
    run = client.run(client.job("count", "python", "-c", WORK, roster=("result.json",))).run
    client.until(run, lambda s: s["work_alive"] and s["first_line"])
    attempt = work_of(box, client, run).parent / "attempts/1"
    keepers = len(pids_of(box, "keeper-"))
    end = time.monotonic() + 180
    limit.tighten()
    while len(pids_of(box, "keeper-")) == keepers:
        assert time.monotonic() < end, "the guard lives on"
        time.sleep(0.1)
    limit.lift()
    before = (attempt / "beat").read_bytes()
    while (attempt / "beat").read_bytes() == before:
        assert time.monotonic() < end, "nobody guards the supervisor"
        time.sleep(0.2)
    old = pids_of(box, "pyz supervise")
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    while not set(pids_of(box, "pyz supervise")) - set(old):
        assert time.monotonic() < end, "nobody started the next supervisor"
        time.sleep(0.2)
    assert client.status(run)["work_alive"]
    (Path(attempt).parent.parent / "work/go").write_text("")
    assert client.until(run, lambda s: s["ended"], wake_it=True)["state"] == "succeeded"
