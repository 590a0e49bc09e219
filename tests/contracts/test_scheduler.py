"""Every scheduler keeps its contract: both in-memory twins, and the bare one on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from outlive.errors import NotHere, UnknownName, Unreachable
from outlive.schedulers.bare import BareScheduler
from outlive.schedulers.base import Polled, Reply, Status, Submitted
from outlive.schedulers.open import open_scheduler
from outlive.schedulers.refusals import At
from outlive.testing import scheduler as suite
from outlive.testing.scheduler import Bench, MemoryPlace, MemoryQueue, MemoryScheduler
from outlive.transport.agent import Agent
from outlive.transport.base import Completed
from outlive.transport.local import LocalExec


class CutExec(LocalExec):
    """This machine, and a switch that makes it not answer."""

    cut = False

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if self.cut:
            raise Unreachable("this machine did not answer", place="local")
        return super().run(argv, stdin=stdin, timeout_s=timeout_s)


class BareBox:
    """A root on this machine with our program. ``end`` kills what was started below it."""

    def __init__(self, root: Path) -> None:
        self.root, self.exec = str(root), CutExec()
        agent = Agent(self.exec, self.root, sys.executable)
        agent.install()
        self.box_id = agent.call("hello")["box_id"]
        recorded = {"environment": {"PATH": os.environ["PATH"]}, "defaults": {}, "thread_cap": 1}
        agent.call("record_box", {"box": recorded, "box_id": self.box_id})

    def client(self) -> BareScheduler:
        """Return a client that knows nothing but where the box is."""
        return BareScheduler(
            Agent(self.exec, self.root, sys.executable), At("here", self.box_id, f"local:{self.root}", self.root)
        )

    def bench(self) -> Bench:
        """Return a bench; a step is a fifth of a second."""

        def cut(yes: bool) -> None:
            self.exec.cut = yes

        return Bench(self.client(), self.client, lambda: time.sleep(0.2), cut)

    def end(self) -> None:
        """Kill what still runs for this root, as root or as whoever started it."""
        for _ in range(100):
            found = [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_ours(int(name))]
            if not found:
                return
            for pid in found:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)

    def _is_ours(self, pid: int) -> bool:
        if pid == os.getpid():
            return False
        try:
            told = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return self.root.encode() in told


@pytest.fixture(scope="module")
def bare_box() -> Iterator[BareBox]:
    root = Path(tempfile.mkdtemp(prefix="outlive-bare-"))
    box = BareBox(root)
    yield box
    box.end()
    shutil.rmtree(root)


TWINS: dict[str, Callable[[], Bench]] = {"memory": suite.memory_bench, "queue": suite.queue_bench}


@pytest.mark.parametrize("check", suite.SCHEDULER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", TWINS)
def test_twin(kind: str, check: Callable[[Bench], None]) -> None:
    check(TWINS[kind]())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the box's cleanup here reads /proc")
@pytest.mark.parametrize("check", suite.SCHEDULER_CHECKS, ids=lambda check: check.__name__)
def test_bare(check: Callable[[Bench], None], bare_box: BareBox) -> None:
    check(bare_box.bench())


def test_the_table_of_schedulers_names_what_it_has() -> None:
    at = At("b", "id", "local:", "/")
    agent = Agent(LocalExec(), "/", "python3")
    assert open_scheduler("bare", agent, at).capabilities == {"exec", "files", "live_log", "signal"}
    with pytest.raises(UnknownName, match="did you mean `bare`"):
        open_scheduler("bear", agent, at)


# ---- the suite catches what it says it catches ----


class Forgetful(MemoryScheduler):
    """Takes every submission for a new one."""

    def submit(
        self, token: str, spec: Mapping[str, Any], payload: Mapping[str, Any], *, wait_s: float, hold: bool = False
    ) -> Submitted:
        for run in self.place.runs.values():
            run.view.token = ""
        return super().submit(token, spec, payload, wait_s=wait_s, hold=hold)


class Remembering(MemoryScheduler):
    """Answers a poll from memory when the place does not."""

    last: Polled | None = None

    def poll(self, runs: Mapping[str, Mapping[str, int]] | None, nonce: str, **more: Any) -> Polled:
        try:
            type(self).last = super().poll(runs, nonce, **more)
        except Unreachable:
            assert self.last is not None
        return self.last  # type: ignore[return-value]


class Pessimist(MemoryScheduler):
    """Calls a run failed once it could not be reached."""

    def poll(self, runs: Mapping[str, Mapping[str, int]] | None, nonce: str, **more: Any) -> Polled:
        if self.place.cut:
            for run in self.place.runs.values():
                run.view.ended or run.finish(exit_code=1, exit_seen=True)
        return super().poll(runs, nonce, **more)


class Silent(MemoryQueue):
    """Takes a stop that it cannot carry out, and says nothing."""

    def ask(self, run: str, request: Mapping[str, Any], *, wait_s: float) -> Reply:
        try:
            return super().ask(run, request, wait_s=wait_s)
        except NotHere:
            return Reply({"ok": True, "text": "stopped"}, self._status(self._run(run)))


class Talkative(MemoryScheduler):
    """Tells the work's process number."""

    def _status(self, run: Any) -> Status:
        return {**super()._status(run), "work": {"pid": 4711}}


class Stuttering(MemoryScheduler):
    """Sends the last byte of a piece again."""

    def poll(self, runs: Mapping[str, Mapping[str, int]] | None, nonce: str, **more: Any) -> Polled:
        back = {run: {p: max(0, at - 1) for p, at in offsets.items()} for run, offsets in (runs or {}).items()}
        return super().poll(back if runs else runs, nonce, **more)


class Restless(MemoryScheduler):
    """Goes on with a failed run by itself."""

    def wake(self, run: str, payload: Mapping[str, Any]) -> Status:
        found = self._run(run)
        if found.view.state == "failed":
            found.go_on("nobody")
        return super().wake(run, payload)


BROKEN: dict[type[MemoryScheduler], str] = {
    Forgetful: "check_same_token_is_the_same_submission",
    Pessimist: "check_unreachable_says_nothing",
    Remembering: "check_unreachable_says_nothing",
    Restless: "check_ended_stays_ended",
    Silent: "check_stop",
    Stuttering: "check_every_byte_once",
    Talkative: "check_submit_creates",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda kind: kind.__name__)
def test_run_all_catches(broken: type[MemoryScheduler]) -> None:
    def make() -> Bench:
        twin = broken(MemoryPlace())

        def cut(yes: bool) -> None:
            twin.place.cut = yes

        return Bench(twin, lambda: broken(twin.place), lambda: twin.advance(0.2), cut, patience_s=2.0)

    results = suite.run_all(make)
    assert len(results) == len(suite.SCHEDULER_CHECKS)
    assert results[BROKEN[broken]] is not None, {name for name, problem in results.items() if problem}


# ---- the queue plays its script ----


def queued(**options: Any) -> tuple[Bench, MemoryQueue]:
    bench = suite.queue_bench(**options)
    assert isinstance(bench.scheduler, MemoryQueue)
    return bench, bench.scheduler


def test_what_waits_is_queued_until_a_node_is_free() -> None:
    bench, queue = queued(nodes=0)
    made = bench.submit("job-a", suite.GOOD)
    bench.pause()
    waiting = bench.status(made.run)
    assert (waiting["state"], waiting["attempt"], waiting["work_alive"]) == ("queued", 0, False)
    queue.nodes = 1
    other = bench.submit("job-b", suite.STEADY)
    assert bench.ended(made.run)["state"] == "succeeded"
    assert bench.ended(other.run)["state"] == "succeeded"


def test_one_node_runs_one_job_at_a_time() -> None:
    bench, queue = queued(nodes=1)
    runs = [bench.submit(f"job-{n}", suite.SLOW).run for n in range(3)]
    bench.pause()
    assert sorted(bench.status(run)["state"] for run in runs) == ["queued", "queued", "running"]


def test_a_queued_run_is_withdrawn_although_nothing_can_be_signalled() -> None:
    bench, queue = queued(nodes=0)
    made = bench.submit("job-a", suite.GOOD)
    reply = queue.ask(made.run, {"id": "one", "kind": "stop"}, wait_s=1.0)
    assert reply.answer is not None and reply.answer["ok"] and reply.status["state"] == "stopped"
    queue.nodes = 1
    bench.pause()
    assert bench.status(made.run)["attempt"] == 0


def test_a_preempted_run_is_put_back_and_starts_again() -> None:
    bench, queue = queued()
    made = bench.submit("job-a", suite.STEADY)
    bench.alive(made.run)
    queue.preempt(made.run)
    taken = bench.status(made.run)
    assert (taken["state"], taken["outcome"]["cls"], taken["ended"]) == ("preempted", "preempted", False)
    assert taken["outcome"]["evidence"]["scheduler_word"] == "PREEMPTED"
    assert bench.until(made.run, lambda s: s["state"] == "queued", "put back")["attempt"] == 1
    assert bench.ended(made.run)["attempt"] == 2


def test_the_walltime_and_a_lost_node_are_told_by_their_words() -> None:
    bench, queue = queued(walltime_s=1.0)
    slow = bench.submit("job-a", suite.SLOW, retry={"max": 0})
    end = bench.ended(slow.run)
    assert (end["state"], end["outcome"]["cls"]) == ("failed", "walltime")
    queue.walltime_s = None
    lost = bench.submit("job-b", suite.SLOW, retry={"max": 0})
    bench.alive(lost.run)
    queue.lose_node(lost.run)
    assert bench.ended(lost.run)["outcome"]["cls"] == "reboot"


def test_the_log_of_a_queue_comes_when_an_attempt_has_ended() -> None:
    bench, queue = queued()
    made = bench.submit("job-a", suite.STEADY)
    bench.alive(made.run)
    queue.preempt(made.run)
    first = bench.whole(made.run, "log")
    assert first == b"one\n"
    bench.alive(made.run)
    assert bench.whole(made.run, "log") == first
    bench.ended(made.run)
    assert bench.whole(made.run, "log") == first + b"one\ntwo\nthree\n"


def test_a_box_that_restarts_waits_for_a_client_and_goes_on() -> None:
    bench = suite.memory_bench()
    twin = bench.scheduler
    assert isinstance(twin, MemoryScheduler)
    made = bench.submit("job-a", suite.STEADY)
    bench.alive(made.run)
    twin.place.restart()
    bench.pause()
    gone = bench.status(made.run)
    assert (gone["state"], gone["needs_wake"], gone["work_alive"], gone["attempt"]) == ("preempted", True, False, 1)
    bench.again().wake(made.run, {})
    end = bench.ended(made.run)
    assert (end["state"], end["attempt"]) == ("succeeded", 2)
    assert [r["outcome"]["cls"] for r in bench.journal(made.run) if r["k"] == "attempt_ended"] == [
        "reboot",
        "succeeded",
    ]
