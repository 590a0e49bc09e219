"""``drill``: rehearse a job's preemptions, on this machine before money is spent, or on a box.

The job runs with kill -9 at several points, one of them in the middle of a save, then once undisturbed and just as far,
to compare with. Both are real runs on a box in a directory of their own (``drill_stand``); the user's ledger learns the
verdict alone.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.checkpoints.record import RECORD
from outlive.runs.drill_stand import Here, Stand, There
from outlive.runs.drill_verdict import Kill, Point, Verdict, interval, judge, points_of
from outlive.runs.home import Home
from outlive.runs.job import Job
from outlive.runs.place import open_place
from outlive.wire.journal import read_all
from outlive.wire.names import RunFiles

if TYPE_CHECKING:
    from outlive.ledger import Box, LedgerState

REFERENCE, KILLED = "undisturbed", "killed"
LIMITS = {"scan_s": 0.2, "sample_s": 1.0, "grace_s": 5.0}
AFTER_POINTS = 10
"""How many lines after the last return are compared at least."""
NOTE = "drill"


@dataclass(frozen=True)
class Settings:
    """``kills``: how often it is killed, the second time in a save. ``limit_s``: how long each save is waited for."""

    kills: int = 3
    limit_s: float = 120.0
    start_s: float = 600.0
    """How long the first line about a step may take, each time."""


@dataclass(frozen=True)
class Rehearsal:
    """The verdict with what it was made from."""

    command: str
    snapshot: str | None
    reference: list[Point]
    killed: list[Point]
    verdict: Verdict
    took_s: float
    box: str = ""
    """Where; empty for this machine."""
    notes: list[str] = field(default_factory=list)


Say = Callable[[str], None]


def drill(
    job: Job, base: Path, settings: Settings, say: Say, *, owner: Home | None = None, box: Box | None = None
) -> Rehearsal:
    """Rehearse ``job`` below the empty directory ``base``, or with ``box`` in a directory of its own on that box.

    Uses no other state but the keys of ``owner``; no process is left when this returns, and what could not be removed
    is said. Raises WorkFailed when the job fails by itself, Unknown when nothing that it prints names a step, when it
    ends before it can be killed, or when the box is restarted meanwhile; PlaceError when the box does not answer.
    """
    stand: Stand = Here(base)
    if box is not None:
        assert owner is not None
        stand = There(base, owner, box, (settings.kills + 2) * (settings.start_s + settings.limit_s))
    try:
        return _Drill(job, stand, settings, say, box.name if box is not None else "").go()
    except errors.PlaceError as error:
        error.safe = "Nothing of yours was touched, and nothing was found out about the job."
        left = stand.close()
        error.why += [left] if left else []
        raise
    finally:
        left = stand.close()
        if left:
            say(left)


def remember(home: Home, found: Rehearsal) -> None:
    """Note in the user's ledger what the drill of this snapshot found."""
    where = {"box": found.box} if found.box else {}
    home.ledger.append(
        "note", drill=found.snapshot or "", command=found.command, passed=not found.verdict.broken, **where
    )


def passed(state: LedgerState, snapshot: str | None) -> bool:
    """Whether the newest drill of this snapshot found nothing."""
    last = [n for n in state.notes if snapshot and n.get("drill") == snapshot]
    return bool(last) and bool(last[-1].get("passed"))


class _Drill:
    def __init__(self, job: Job, stand: Stand, settings: Settings, say: Say, where: str) -> None:
        self.stand, self.settings, self.say, self.where = stand, settings, say, where
        self.job = replace(
            job,
            gpu="",
            durable_to="none",
            notify=(),
            then="keep",
            max_cost=None,
            max_s=stand.lease_s,
            retry_max=settings.kills + 2,
            retry_wait_s=0.2,
            keep=None,
            limits={**job.limits, **LIMITS},
        )
        self.home = stand.home
        self.snapshot: str | None = None
        self.notes: list[str] = []

    def go(self) -> Rehearsal:
        began = time.monotonic()
        self.stand.open()
        self.say("the job, with kills" + (f", on {self.where}" if self.where else ""))
        victim = self.start(KILLED)
        before, kills = self.disturbed(victim)
        self.stop(victim)
        killed = points_of(_records(victim.metrics))
        reference, same, states = before, list[int](), 0
        if not _hopeless(kills[-1], before):
            self.say(f"the job undisturbed, up to step {max(p.step for p in killed)}")
            files = self.start(REFERENCE)
            reference = self.undisturbed(files, max(p.step for p in killed))
            same, states = _same_checkpoints(files, victim, kills)
        return Rehearsal(
            command=" ".join(_words(self.job)),
            snapshot=self.snapshot,
            reference=reference,
            killed=killed,
            verdict=judge(reference, before, kills, same, states),
            took_s=time.monotonic() - began,
            box=self.where,
            notes=self.notes,
        )

    # -- the two runs -------------------------------------------------------------------------------

    def start(self, name: str) -> RunFiles:
        from outlive.runs.run import run

        place = open_place(self.home, self.home.box_of(""))
        try:
            started = run(self.home, replace(self.job, name=name), place, wait_s=1.0)
        finally:
            place.close()
        self.snapshot = started.snapshot
        return self.stand.files(started.run)

    def undisturbed(self, run: RunFiles, last_step: int) -> list[Point]:
        """Follow the reference to a step, or to its end."""
        self.first_step(run)
        self.reach(run, last_step)
        ended = self.ended(run)
        if ended is not None and ended["state"] not in ("succeeded", "suspect"):
            raise _failed(run, ended)
        self.stop(run)
        return points_of(_records(run.metrics))

    def disturbed(self, run: RunFiles) -> tuple[list[Point], list[Kill]]:
        """Kill the run at several points. Returns (what it printed before the first kill, the kills)."""
        self.first_step(run)
        kills: list[Kill] = []
        before: list[Point] = []
        while len(kills) < self.settings.kills and self.next_point(run, kills):
            aims = len(kills) == 1 and bool(self.job.checkpoints)
            kill = self.kill(run, "later" if kills else "after_save", self.job.checkpoints if aims else "")
            if kill is None:
                break
            if aims and kill.when != "in_save":
                self.notes.append("no save was seen to begin, so no kill hit one")
            if kills:
                kills[-1] = replace(kills[-1], after=tuple(self.since(run, kills[-1].wall_s, kill.wall_s)))
            else:
                before = self.since(run, 0.0, kill.wall_s)
            kills.append(kill)
            if _hopeless(kill, before):
                break
        if not kills:
            raise errors.Unknown(
                "the job was over before it could be killed",
                why=["it has to print at least a few steps after its first save"],
                safe="Nothing of yours was touched.",
            )
        if kills[-1].after:
            self.reach(run, kills[-1].last_step + AFTER_POINTS * interval(before))
            kills[-1] = replace(kills[-1], after=tuple(self.since(run, kills[-1].wall_s)))
        if not self.job.checkpoints:
            self.notes.append("no checkpoint directory is declared (--checkpoints DIR): no kill could aim at a save")
        return before, kills

    def next_point(self, run: RunFiles, kills: list[Kill]) -> bool:
        """Wait until the next kill would tell something: steps done since the last one, and since a save."""
        gap = interval(points_of(_records(run.metrics)))
        if kills:  # two ends at the same step would be taken for the job's own fault
            return self.reach(run, kills[-1].last_step + 2 * gap)
        if not self.job.checkpoints:
            return self.reach(run, points_of(_records(run.metrics))[0].step + AFTER_POINTS * gap)
        until = time.monotonic() + self.settings.limit_s
        while time.monotonic() < until and self.ended(run) is None:
            whole = [r.get("step") for r in read_all(run.journal) if r["k"] == "checkpoint"]
            if whole:
                return self.reach(run, max(int(whole[-1] or 0), points_of(_records(run.metrics))[-1].step) + 2 * gap)
            self.stand.pause(run, 0.05)
        if self.ended(run) is None:
            self.notes.append(f"no whole checkpoint in {self.job.checkpoints} within {self.settings.limit_s:.0f} s")
        return self.ended(run) is None

    def kill(self, run: RunFiles, when: str, saves: str) -> Kill | None:
        """Kill -9 the work, with ``saves`` in a save, and wait for what it prints next. None if it was over."""
        struck = self.stand.kill(run, saves, self.settings.limit_s)
        if struck is None:
            return None
        number, wall_s = struck.attempt, struck.wall_s
        when = "in_save" if struck.in_save else when
        self.wait_for_end(run, number)
        known = [r for r in read_all(run.journal) if r["k"] == "checkpoint" and r["w"] <= wall_s]
        checkpoint = max((r["step"] for r in known if r.get("step") is not None), default=None)
        last_step = self.since(run, 0.0, wall_s)[-1].step
        self.say(f"kill -9 at step {last_step}" + (", in the middle of a save" if when == "in_save" else ""))
        until = time.monotonic() + self.settings.start_s
        why = ""
        while time.monotonic() < until:
            after = self.since(run, wall_s)
            if after and (after[-1].step > last_step or len(after) >= 3):
                break
            ended = self.ended(run)
            if ended is not None:
                why = f"{ended['state']}: {ended['why']}"
                break
            self.stand.pause(run, 0.1)
        after = self.since(run, wall_s)
        self.say(
            f"back at step {after[0].step}" if after else f"nothing came after it ({why or 'no line about a step'})"
        )
        return Kill(when, wall_s, last_step, checkpoint, checkpoint is not None, tuple(after), why)

    def since(self, run: RunFiles, wall_s: float, until_s: float = math.inf) -> list[Point]:
        """Return what attempts that began after a moment printed, until the first that began after another one.

        An attempt's last lines are read a little after its death, and before the next one begins.
        """
        begun = [r["w"] for r in read_all(run.journal) if r["k"] == "attempt"]
        first = next((w for w in begun if w > wall_s), math.inf)
        last = next((w for w in begun if w > until_s), math.inf)
        return [p for p in points_of(_records(run.metrics)) if first < p.wall_s <= last]

    # -- waiting ------------------------------------------------------------------------------------

    def first_step(self, run: RunFiles) -> None:
        until = time.monotonic() + self.settings.start_s
        while not points_of(_records(run.metrics)):
            ended = self.ended(run)
            if ended is not None and ended["state"] not in ("succeeded", "suspect"):
                raise _failed(run, ended)
            if ended is not None or time.monotonic() > until:
                raise errors.Unknown(
                    "nothing that the job prints names a step",
                    why=["a drill compares lines like `step 120 loss 2.31`; see docs/guides/drill.md"],
                    safe="Nothing of yours was touched.",
                )
            self.stand.pause(run, 0.05)

    def reach(self, run: RunFiles, step: int) -> bool:
        """Wait for a step. False when the run ended first, or stands still for too long."""
        until = time.monotonic() + self.settings.start_s
        newest = -1
        while time.monotonic() < until:
            points = points_of(_records(run.metrics))
            if points and points[-1].step >= step:
                return True
            if self.ended(run) is not None:
                return False
            if points and points[-1].step != newest:
                newest, until = points[-1].step, time.monotonic() + self.settings.start_s
            self.stand.pause(run, 0.1)
        return False

    def wait_for_end(self, run: RunFiles, attempt: int) -> None:
        """Wait until the end of the killed attempt is on record: all that it printed is read by then."""
        until = time.monotonic() + 120
        while not any(r["k"] == "attempt_ended" and r["attempt"] == attempt for r in read_all(run.journal)):
            if time.monotonic() > until:
                raise errors.CheckFailed("the end of killed work was not noticed within 120 s")
            self.stand.pause(run, 0.1)

    def ended(self, run: RunFiles) -> dict[str, Any] | None:
        found = next((r for r in read_all(run.journal) if r["k"] == "ended"), None)
        if found is not None and found["outcome"] and found["outcome"]["cls"] == "lease":
            raise errors.Unknown(
                "the rehearsal took longer than it may",
                why=["a smaller model, fewer steps between two saves, or --kills 1 tells the same"],
                safe="Nothing of yours was touched.",
            )
        return found

    def stop(self, run: RunFiles) -> None:
        from outlive.runs.ask import stop

        if self.ended(run) is None:
            stop(self.home, self.home.run_of(run.id), grace_s=2.0, wait_s=30.0)
            self.stand.pause(run, 0.1)


def _hopeless(kill: Kill, before: list[Point]) -> bool:
    """It does not come back, or begins again: more kills, or a comparison, would say no more."""
    return not kill.after or kill.after[0].step <= before[0].step


def _words(job: Job) -> list[str]:
    words = job.stages[-1].run
    return [words] if isinstance(words, str) else list(words)


def _failed(run: RunFiles, ended: dict[str, Any]) -> errors.OutliveError:
    try:
        tail = Path(run.log).read_bytes()[-2000:].decode("utf-8", "replace").splitlines()[-8:]
    except OSError:
        tail = []
    return errors.WorkFailed(
        f"the job ends by itself, with nobody near it: {ended['state']}: {ended['why']}",
        why=tail,
        safe="Nothing of yours was touched.",
    )


def _records(path: str) -> list[dict[str, Any]]:
    try:
        lines = Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the last line may be half written
        if isinstance(record, dict):
            found.append(record)
    return found


def _same_checkpoints(reference: RunFiles, killed: RunFiles, kills: list[Kill]) -> tuple[list[int], int]:
    """Return the steps after the first kill of which both runs hold the same bytes, and how many both have."""
    theirs = _states(list(read_all(reference.journal)), 0.0)
    mine = _states(list(read_all(killed.journal)), kills[0].wall_s)
    both = sorted(mine.keys() & theirs.keys())
    return [step for step in both if mine[step] == theirs[step]], len(both)


def _states(journal: list[dict[str, Any]], since_s: float) -> dict[int, frozenset[tuple[str, str]]]:
    """Return step -> names and digests of the newest checkpoint of that step; what only records a save is no state."""
    found = {}
    for record in journal:
        if record["k"] == "checkpoint" and record.get("step") is not None and record["w"] > since_s:
            one = len(record["files"]) == 1
            names = [("" if one else os.path.relpath(f["path"], record["path"]), f["sha256"]) for f in record["files"]]
            found[int(record["step"])] = frozenset(n for n in names if n[0] != RECORD)
    return found


__all__ = ["Rehearsal", "Settings", "drill", "passed", "remember"]
