"""``watch``: follow a run with a bounded end. A watcher reports even if nothing changed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from outlive import errors
from outlive.ledger import Run
from outlive.runs.home import Home
from outlive.runs.look import FRESH_LOGIN_S, OVERLAP_BYTES, Mirror, last_step, poll_run
from outlive.runs.place import Place, open_place

HEARTBEAT_S = 60.0


@dataclass
class Seen:
    """One look of a watcher. ``changed`` lists what is new since the last one.

    ``login_lost``: our key is refused while an older connection lives; the first look that says so has no status, later
    ones are read through that connection.
    """

    run: str
    box: str
    status: dict[str, Any] | None
    journal: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    log: bytes = b""
    changed: list[str] = field(default_factory=list)
    reachable: bool = True
    trouble: str = ""
    login_lost: bool = False
    woke: bool = False
    wall_s: float = 0.0
    step: int | None = None
    """The newest step that was read, from the metrics or the status."""

    @property
    def state(self) -> str:
        """The run's state as this look knows it; without an answer it is unknown, never the last one."""
        return str(self.status["state"]) if self.status is not None else "unknown"


@dataclass(frozen=True)
class Until:
    """When a watch ends: ``done``, ``change``, ``finding`` (an alarm), or ``step=N``."""

    kind: str = "done"
    step: int = 0

    @classmethod
    def parse(cls, text: str) -> Until:
        match = re.fullmatch(r"step=(\d+)", text)
        if match:
            return cls("step", int(match[1]))
        if text in ("done", "change", "finding"):
            return cls(text)
        raise errors.UsageError(f"--until takes done, change, finding or step=N, not {text!r}")

    def met(self, seen: Seen) -> bool:
        """Return whether this look ends the watch."""
        status = seen.status
        if status is None:
            return False
        if status["ended"]:
            return True
        if self.kind == "change":
            return bool(seen.changed)
        if self.kind == "finding":
            return bool(status["alarms"])
        return self.kind == "step" and (seen.step if seen.step is not None else -1) >= self.step


def once(home: Home, record: Run, *, timeout_s: float = 20.0, wake_it: bool = True) -> Seen:
    """One look, one round trip (one more if the run has to be woken). Raises PlaceError."""
    place = open_place(home, home.box_of(record.box))
    try:
        return _look(home, place, record, Mirror(home, record.run, place.box.box_id), timeout_s, wake_it)
    finally:
        place.close()


def _look(home: Home, place: Place, record: Run, mirror: Mirror, timeout_s: float, wake_it: bool) -> Seen:
    head, status, parts = poll_run(place, record.run, mirror.offsets(), timeout_s=timeout_s)
    if mirror.other_machine(head.get("machine", "")):
        earlier = {part: max(0, end - OVERLAP_BYTES) for part, end in mirror.offsets().items()}
        mirror.rejoin(head["machine"], poll_run(place, record.run, earlier, timeout_s=timeout_s)[2])
        head, status, parts = poll_run(place, record.run, mirror.offsets(), timeout_s=timeout_s)
    seen = Seen(record.run, place.name, status, wall_s=time.time())
    for part, (start, data) in parts.items():
        mirror.add(part, start, data)
    seen.journal = _lines(parts.get("journal"))
    seen.metrics = _lines(parts.get("metrics"))
    seen.log = parts.get("log", (0, b""))[1]
    seen.step = _step(mirror, status)
    seen.changed = sorted({r["k"] for r in seen.journal if r.get("k") not in ("progress", "proof", None)})
    if wake_it and (status["needs_wake"] or (status["state"] == "waiting" and status["secret_names"])):
        from outlive.runs.run import wake

        seen.status = wake(home, place, record, status)
        seen.woke = True
    if record.state != seen.state:
        home.ledger.append(
            "run", run=record.run, box=place.name, job=status["job"], spec_digest=status["spec"], state=seen.state
        )
        record.state = seen.state
    return seen


def _lines(part: tuple[int, bytes] | None) -> list[dict[str, Any]]:
    """Return the whole JSON lines of a piece. A line cut by the piece's end is in the mirror."""
    found = []
    for raw in (part[1] if part else b"").splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


def _step(mirror: Mirror, status: dict[str, Any]) -> int | None:
    """Return the newest step: the journal notes one only now and then, the metrics have all."""
    newest = last_step(mirror.path("metrics"))
    if newest is not None:
        return newest
    return int(status["step"]) if status["step"] is not None else None


def follow(
    home: Home,
    record: Run,
    *,
    until: Until | None = None,
    timeout_s: float | None = None,
    every_s: float = 2.0,
    give_up_s: float | None = None,
    look_s: float = 20.0,
    fresh_s: float = FRESH_LOGIN_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Seen]:
    """Yield a look whenever something changed, and at least every minute, until the run ends.

    A failed exchange is yielded as such (``reachable`` False) and tried again with back-off; it never
    says anything about the run. With ``timeout_s`` the watch ends with TimeOver; with ``give_up_s`` it
    raises Unreachable after that long without an answer. One exchange takes at most ``look_s``. A login of its own
    is made every ``fresh_s`` and after every failure; one that is refused while the shared connection lives is told
    (``login_lost``), and the run is watched on through that connection.
    """
    until = until or Until()
    place = open_place(home, home.box_of(record.box))
    mirror = Mirror(home, record.run, place.box.box_id)
    began = last_said = last_fresh = last_answer = clock()
    failures = 0
    lost = ""
    try:
        while True:
            limit_s = look_s if timeout_s is None else min(look_s, max(2.0, began + timeout_s - clock()))
            told = Seen(record.run, place.name, None, reachable=False, wall_s=time.time())
            try:
                if failures or clock() - last_fresh > (min(fresh_s, HEARTBEAT_S) if lost else fresh_s):
                    try:
                        place.agent.exec.prove_fresh(limit_s)
                    finally:
                        last_fresh = clock()
                    lost = ""
                seen = _look(home, place, record, mirror, limit_s, True)
                seen.login_lost, seen.trouble = bool(lost), lost
                failures, last_answer = 0, clock()
            except errors.LoginRefused as error:
                told.trouble, told.login_lost = error.what, error.login_lost
                seen = told
                lost = error.what if error.login_lost else ""
                failures = 0 if error.login_lost else failures + 1
            except (errors.PlaceError, errors.TimeOver) as error:
                told.trouble = error.what
                seen = told
                failures += 1
            now = clock()
            if (
                seen.changed
                or seen.metrics
                or seen.log
                or failures == 1
                or (seen.login_lost and not seen.reachable)
                or seen.woke
                or now - last_said >= HEARTBEAT_S
                or until.met(seen)
            ):
                last_said = now
                yield seen
            if until.met(seen):
                return
            if timeout_s is not None and now - began >= timeout_s:
                raise errors.TimeOver(
                    f"{record.run} was {seen.state} after {timeout_s:g} s",
                    after_s=timeout_s,
                    safe="The run goes on."
                    if seen.status is not None
                    else f"{place.name} did not answer; this says nothing about the run.",
                    next=[["outlive", "watch", record.run]],
                )
            if give_up_s is not None and now - last_answer >= give_up_s:
                raise errors.Unreachable(
                    f"{place.name} has not answered for {now - last_answer:.0f} s: {seen.trouble}",
                    place=place.name,
                    safe="This says nothing about the run; it goes on without us.",
                    next=[["outlive", "watch", record.run], ["outlive", "up", place.name]],
                )
            pause = every_s if not failures else min(60.0, every_s * 2 ** min(failures, 5))
            if timeout_s is not None:
                pause = min(pause, max(0.05, began + timeout_s - now))
            sleep(pause)
    finally:
        place.close()


def exit_code(status: dict[str, Any] | None) -> int:
    """Return the exit code for how a watched run stands: 0 succeeded, 1 ended otherwise, 6 not known."""
    if status is None or not status["ended"]:
        return 6
    return 0 if status["state"] == "succeeded" else 1
