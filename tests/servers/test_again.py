"""Polls of a real box that find nothing new, and what ends them: a shell's word must never hide a death."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client, end_sessions, pids_of

from outlive.transport.agent import Agent

QUIET = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The polls that our program was started for without a mark to compare."""
    asked: list[str] = []
    real = Agent._full

    def spy(self: Agent, name: str, request: dict[str, Any], timeout_s: float) -> Any:
        asked.append(name)
        return real(self, name, request, timeout_s)

    monkeypatch.setattr(Agent, "_full", spy)
    return asked


@pytest.fixture
def same(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each poll with a mark, whether the shell alone answered."""
    from outlive.transport.again import Kept

    answered: list[bool] = []
    words, again = Kept.words, Kept.again

    def asks(self: Kept, *args: Any) -> Any:
        answered.append(False)
        return words(self, *args)

    def says(self: Kept, *args: Any) -> Any:
        answered[-1] = True
        return again(self, *args)

    monkeypatch.setattr(Kept, "words", asks)
    monkeypatch.setattr(Kept, "again", says)
    return answered


def quiet_run(client: Client) -> str:
    (client.project / "quiet.py").write_text(QUIET)
    run: str = client.run(client.job("quiet", "python", "quiet.py", limits={"sample_s": 600.0})).run
    client.until(run, lambda s: s["work_alive"] and s["log_bytes"])
    return run


def until_same(client: Client, run: str, same: list[bool], timeout_s: float = 120.0) -> dict[str, Any]:
    end = time.monotonic() + timeout_s
    while True:
        status = client.status(run)
        if same and same[-1]:
            return status
        assert time.monotonic() < end, f"never the same: {status}"
        time.sleep(0.2)


def test_a_quiet_run_is_answered_by_the_shell_until_something_dies(
    box_factory: Any, client: Client, same: list[bool]
) -> None:
    box = box_factory()
    client.up(box)
    run = quiet_run(client)
    first = until_same(client, run, same)
    second = until_same(client, run, same)
    assert second["state"] == first["state"] == "running" and second["supervised"] and second["work_alive"]
    assert second["attempt_age_s"] >= first["attempt_age_s"]

    (supervisor,) = [pid for pid in pids_of(box, f"supervise /root/.outlive/runs/{run}")]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        client.status(run)
        assert not same[-1], "a supervisor that stands still is looked at in full"
    finally:
        os.kill(supervisor, signal.SIGCONT)
    until_same(client, run, same)

    end_sessions(box)
    status = client.status(run)
    assert status["work_alive"], "a connection that ended between two polls is made anew"

    os.kill(supervisor, signal.SIGKILL)
    status = client.status(run)
    assert not same[-1] and (status["needs_wake"] or status["supervised"]), "dead, or its guard was quick"
    until_same(client, run, same)  # its guard has started another

    for pid in pids_of(box, "quiet.py"):
        os.kill(pid, signal.SIGKILL)
    status = client.status(run)
    assert not same[-1]
    client.until(run, lambda s: s["attempt"] > 1 or s["ended"])
    client.stop(run)


def test_a_box_that_came_back_is_asked_in_full(box_factory: Any, client: Client, same: list[bool]) -> None:
    box = box_factory()
    client.up(box)
    run = quiet_run(client)
    until_same(client, run, same)
    box.restart()
    status = client.status(run)
    assert not same[-1] and not status["work_alive"] and status["state"] in ("preempted", "unknown")


def test_a_finished_run_and_all_runs(box_factory: Any, client: Client, same: list[bool], full: list[str]) -> None:
    box = box_factory()
    client.up(box)
    run = client.run(client.job(env={"LAST": "2", "STEP_S": "0.01"})).run
    client.until(run, lambda s: s["ended"] and not s["supervised"])
    status = until_same(client, run, same)
    assert status["state"] == "succeeded"
    end = time.monotonic() + 120
    while not full or client.look().runs[0]["state"] != "succeeded" or not same[-1]:
        assert time.monotonic() < end
        time.sleep(0.2)
    (Path(box.home) / ".outlive" / "runs" / run / "fence.json").write_text('{"by": "somebody"}')
    assert client.status(run)["fenced"] and not same[-1]
    assert client.look().runs[0]["fenced"] and not same[-1]
