"""``adopt``: take over what runs on a box, from an empty client. The box remembers everything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from outlive.runs.home import Home
from outlive.runs.look import look, note_state
from outlive.runs.place import Place, open_place
from outlive.runs.run import settled, wake
from outlive.runs.up import UpResult, up


@dataclass(frozen=True)
class Adopted:
    """What was taken over: the box and the status of every run on it. ``woke`` names those that were brought back."""

    place: Place
    up: UpResult
    runs: list[dict[str, Any]]
    woke: list[str]
    waiting: list[str]


def adopt(home: Home, words: list[str], **options: Any) -> Adopted:
    """Reach a box by its address and take its runs into this client's ledger. Raises like ``up``."""
    found = up(home, words, **options)
    seen = look(home, found.place.box)
    woke, waiting = [], []
    runs = []
    for status in seen.runs:
        if status["needs_wake"]:
            place = open_place(home, found.place.box)
            status = settled(place, wake(home, place, home.state().runs.get(status["run"]), status))
            woke.append(status["run"])
        if status["state"] == "waiting":
            waiting.append(status["run"])
        runs.append(status)
    note_state(home, replace(seen, runs=runs))
    home.ledger.append("adopted", box=found.place.name, runs=[r["run"] for r in runs])
    return Adopted(found.place, found, runs, woke, waiting)
