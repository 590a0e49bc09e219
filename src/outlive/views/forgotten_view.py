"""What was taken off the list."""

from __future__ import annotations

import dataclasses
from typing import Any

from outlive.runs.forget import Forgotten
from outlive.views import amounts

WORDS = {
    "run": "{name} is off the list; its files stay where they are",
    "box": "{name} is off the list, by your word",
    "answered": "It still answered: it goes on, and bills if it did. `outlive adopt ADDRESS` brings it back.",
    "hours": "first seen {span} before",
    "cost": "about {cost} at the price given",
}


def data(done: Forgotten) -> dict[str, Any]:
    """Return ``forget --json``."""
    return {"schema": "outlive/forget/1", **dataclasses.asdict(done)}


def lines(done: Forgotten) -> list[str]:
    """Return what was recorded."""
    if done.kind == "run":
        return [WORDS["run"].format(name=done.name)]
    text = WORDS["box"].format(name=done.name)
    if done.hours is not None:
        text += "; " + WORDS["hours"].format(span=amounts.span(done.hours * 3600))
    if done.cost is not None:
        text += ", " + WORDS["cost"].format(cost=amounts.money(done.cost, done.currency))
    return [text, *([WORDS["answered"]] if done.answered else [])]
