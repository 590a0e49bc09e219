"""The in-memory twin of a queue: a submission waits, a node takes it, and what runs can be taken away again.

As poor as a queue can be: no further commands, no log before the end of an attempt, no way to reach work that runs. The
test plays the queue: ``nodes`` (how many there are), ``advance(seconds)``, ``preempt(run)``, ``lose_node(run)``,
``walltime_s``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from outlive.testing.memory_runs import MemoryRun
from outlive.testing.memory_scheduler import MemoryPlace, MemoryScheduler


class MemoryQueue(MemoryScheduler):
    """``base.Scheduler`` over a queue with ``nodes`` nodes. With none, everything waits."""

    CAPABILITIES: ClassVar[frozenset[str]] = frozenset({"files"})
    BECAUSE: ClassVar[dict[str, str]] = {
        "durable": "what a node wrote is gone with it",
        "exec": "the queue gives no shell on its nodes",
        "live_log": "the queue shows a log when an attempt has ended",
        "meter": "nothing bills in memory",
        "signal": "the queue has no way to reach work that runs",
    }
    QUEUES: ClassVar[bool] = True

    def __init__(self, place: MemoryPlace | None = None, *, nodes: int = 1, walltime_s: float | None = None) -> None:
        super().__init__(place or MemoryPlace("queue"))
        self.nodes = nodes
        self.walltime_s = walltime_s

    def preempt(self, run: str) -> None:
        """Let the scheduler take a node away; the run is requeued."""
        self._take(run, "PREEMPTED")

    def lose_node(self, run: str) -> None:
        """Let the node fail; the run is requeued."""
        self._take(run, "NODE_FAIL")

    def _take(self, name: str, word: str) -> None:
        run = self.place.runs[name]
        if run.work is None:
            raise ValueError(f"{name} does not run")
        run.finish(scheduler_word=word)

    def _step(self, run: MemoryRun, seconds: float) -> None:
        if run.work is None:
            if run.wants_start:
                self._queue(run, seconds)
            return
        run.advance(seconds)
        if run.work is not None and self.walltime_s is not None:
            began_s = run.view.attempts[-1].started_b
            if self.place.now_s - began_s >= self.walltime_s:
                run.finish(scheduler_word="TIMEOUT")

    def _queue(self, run: MemoryRun, seconds: float) -> None:
        if run.lacks:
            run.state("waiting", f"secrets are not here: {', '.join(run.lacks)}")
        elif run.view.state not in ("queued", "preempted"):
            run.state("queued", "waits for a node")
        elif run.view.state == "preempted":
            run.state("queued", "put back into the queue")
        elif seconds and sum(r.work is not None for r in self.place.runs.values()) < self.nodes:
            run.start()

    def _log_bytes(self, run: MemoryRun) -> int:
        current = run.view.attempt
        return current.log_from if run.work is not None and current is not None else len(run.log)

    def _create(self, spec: dict[str, Any], digest: str, token: str, hold: bool) -> MemoryRun:
        run = super()._create(spec, digest, token, hold)
        run.record("state", state="queued", why="held until it is woken" if hold else "waits for a node")
        return run
