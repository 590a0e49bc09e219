"""Looking at boxes: one bounded exchange each, mirrored here, with the age of what is shown."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.ledger import Box, LedgerState
from outlive.runs.home import Home
from outlive.runs.place import Place, open_place

OVERLAP_BYTES = 4096
AT_ONCE = 16
"""How many boxes are asked at the same time."""
FRESH_LOGIN_S = 600.0
"""A word about reachability needs a fresh authentication at most this old."""


@dataclass(frozen=True)
class BoxLook:
    """One box at one moment. ``state`` is a box state; ``runs`` are statuses as the box gave them."""

    box: Box
    state: str
    why: str
    head: dict[str, Any] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    took_s: float = 0.0
    error: dict[str, object] | None = None
    login_lost: bool = False
    idle_s: float | None = None


def look(home: Home, box: Box, *, timeout_s: float = 20.0) -> BoxLook:
    """Ask one box for the status of all its runs. Never raises for trouble of the place: that is an answer."""
    began = time.monotonic()
    place = open_place(home, box)
    try:
        polled = place.scheduler.poll(None, os.urandom(8).hex(), timeout_s=timeout_s)
    except errors.OutliveError as error:
        return BoxLook(box, "unreachable", error.what, took_s=time.monotonic() - began, error=error.to_json())
    finally:
        place.close()
    runs = list(polled.statuses.values())
    alive = [r for r in runs if r["work_alive"] or not r["ended"]]
    state, why = ("ready", "a run is alive") if alive else ("idle", "no run is alive")
    if box.state == "unconfirmed" and not alive:
        # the gate has passed and a person was to stop it: as long as it answers, somebody pays
        why = "METER STILL RUNNING: it still answers"
        return BoxLook(box, "unconfirmed", why, polled.head, runs, time.monotonic() - began)
    if box.state in ("stopping", "stopped"):
        why += f"; it was {box.state} and answers again"
    return BoxLook(box, state, why, polled.head, runs, time.monotonic() - began)


def look_all(home: Home, words: list[str], *, timeout_s: float = 20.0) -> list[BoxLook]:
    """Look at the named boxes, or at all that are not gone, at the same time."""
    state = home.state()
    boxes = (
        [home.box_of(w) for w in words]
        if words
        else [b for b in state.boxes.values() if not b.gone and not b.forgotten]
    )
    if not boxes:
        return []
    if len(boxes) == 1:
        looks = [look(home, boxes[0], timeout_s=timeout_s)]
    else:
        import concurrent.futures

        with concurrent.futures.ThreadPoolExecutor(max_workers=min(AT_ONCE, len(boxes))) as pool:
            looks = list(pool.map(lambda b: look(home, b, timeout_s=timeout_s), boxes))
    known = home.state()
    for found in looks:
        note_state(home, found, known)
    return looks


def note_state(home: Home, found: BoxLook, known: LedgerState | None = None) -> None:
    """Remember a box's and its runs' states when they changed. "Unreachable" never replaces what is known of runs."""
    known = known if known is not None else home.state()
    old = known.boxes.get(found.box.name)
    # silence after `down` confirms nothing: the table has no move from these to unreachable
    silent = found.state == "unreachable" and old is not None and old.state in ("stopping", "stopped", "unconfirmed")
    if old is not None and old.state != found.state and not silent:
        home.ledger.append("place_state", box=found.box.name, state=found.state, why=found.why)
    for status in found.runs:
        record = known.runs.get(status["run"])
        if record is None or record.state != status["state"]:
            home.ledger.append(
                "run",
                run=status["run"],
                box=found.box.name,
                job=status["job"],
                spec_digest=status["spec"],
                state=status["state"],
            )


class Mirror:
    """This client's copy of a run's journal, metrics and log, continued by offset.

    It belongs to one box: a run that moved is read anew from its new place.
    """

    PARTS = ("journal", "metrics", "log", "samples")

    def __init__(self, home: Home, run: str, box_id: str) -> None:
        self.dir = home.mirror(run) / box_id[:12]
        self.dir.mkdir(mode=0o700, exist_ok=True)

    def path(self, part: str) -> Path:
        return self.dir / part

    def offsets(self, parts: tuple[str, ...] = PARTS) -> dict[str, int]:
        """Return where each part continues: the size of what is here."""
        return {part: self.path(part).stat().st_size if self.path(part).exists() else 0 for part in parts}

    def add(self, part: str, start: int, data: bytes) -> None:
        """Append what came, if it continues what is here; a piece that does not is dropped and asked for again."""
        if not data:
            return
        with self.path(part).open("ab") as handle:
            # `watch` and `logs` in two terminals share this file: both would find that their piece continues it
            fcntl.flock(handle, fcntl.LOCK_EX)
            if start == os.fstat(handle.fileno()).st_size:
                handle.write(data)
                handle.flush()

    def other_machine(self, machine: str) -> bool:
        """Return whether the box restarted since what is here was read; a first look remembers the machine."""
        note = self.path("machine")
        if not machine:
            return False
        if not note.exists():
            note.write_text(machine)
        return note.read_text() != machine

    def rejoin(self, machine: str, pieces: dict[str, tuple[int, bytes]]) -> None:
        """Take pieces that begin before our ends, after a restart of the box.

        A box that lost its power also lost what it had not synced, and writes on from there. A part whose end here is
        not in the box's any more is set aside as ``<part>.lost-N``, and read anew from its beginning.
        """
        for part, (start, data) in pieces.items():
            path = self.path(part)
            if not path.exists():
                continue
            with path.open("rb") as handle:
                handle.seek(start)
                ours = handle.read()
            if data[: len(ours)] == ours:
                self.add(part, start + len(ours), data[len(ours) :])
                continue
            number = 1
            while self.path(f"{part}.lost-{number}").exists():
                number += 1
            path.rename(self.path(f"{part}.lost-{number}"))
        self.path("machine").write_text(machine)


def last_step(metrics: Path) -> int | None:
    """Return the step of the newest point in a copy of ``metrics.jsonl``, None when it has none."""
    try:
        with metrics.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, 2) - 4096))
            tail = handle.read()
    except FileNotFoundError:
        return None
    for line in reversed(tail.splitlines()):
        try:
            point = json.loads(line)
        except ValueError:
            continue  # the first or the last line of a piece may be cut
        if isinstance(point, dict) and isinstance(point.get("step"), int) and not point.get("local"):
            return int(point["step"])
    return None


def poll_run(
    place: Place, run: str, offsets: dict[str, int], *, timeout_s: float = 20.0, limit_bytes: int = 4 << 20
) -> tuple[dict[str, Any], dict[str, Any], dict[str, tuple[int, bytes]]]:
    """One exchange about one run: (box head, status, part -> (from, bytes)).

    Raises PlaceError; UnknownName when the box does not have the run.
    """
    polled = place.scheduler.poll({run: offsets}, os.urandom(8).hex(), limit_bytes=limit_bytes, timeout_s=timeout_s)
    if run in polled.absent:
        raise errors.UnknownName(
            f"{place.name} has no run {run}",
            name=run,
            safe="This says nothing about copies that were pulled.",
            next=[["outlive", "ps"]],
        )
    pieces = polled.parts.get(run, {})
    return polled.head, polled.statuses[run], {part: (piece.start, piece.data) for part, piece in pieces.items()}
