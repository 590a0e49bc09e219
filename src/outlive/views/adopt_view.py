"""What was taken over from a box."""

from __future__ import annotations

from typing import Any

from outlive.runs.adopt import Adopted
from outlive.views import run_view
from outlive.views.printable import table

WORDS = {
    "none": "{box} has no runs",
    "taken": "{box}: {n} run(s) taken over",
    "woke": "brought back",
    "waiting": "waits for secrets that this shell does not have: set them and type `outlive watch {run}`",
}


def data(found: Adopted) -> dict[str, Any]:
    """Return ``adopt --json``."""
    return {
        "schema": "outlive/adopt/1",
        "box": found.place.name,
        "new": found.up.new,
        "runs": [run_view.run_data(status, box=found.place.name) for status in found.runs],
        "woke": found.woke,
        "waiting": found.waiting,
        "next": next_commands(found),
    }


def next_commands(found: Adopted) -> list[list[str]]:
    """Return what one would type next."""
    alive = [s["run"] for s in found.runs if not s["ended"]]
    ended = [s["run"] for s in found.runs if s["ended"]]
    return [["outlive", "watch", run] for run in alive[:2]] + [["outlive", "pull", run] for run in ended[-2:]]


def lines(found: Adopted, columns: int) -> list[str]:
    """Return each run with its state."""
    if not found.runs:
        return [WORDS["none"].format(box=found.place.name)]
    rows = []
    for status in found.runs:
        details = [
            part for part in (run_view.progress(status), WORDS["woke"] if status["run"] in found.woke else "") if part
        ]
        if status.get("checkpoint"):
            details.append(run_view.checkpoint_text(status))
        if status["run"] in found.waiting:
            details.append(WORDS["waiting"].format(run=status["run"]))
        rows.append(["  " + status["run"], run_view.state_text(status), "; ".join(details)])
    head = WORDS["taken"].format(box=found.place.name, n=len(found.runs))
    return [head, *table(rows, columns), *(f"next: {' '.join(argv)}" for argv in next_commands(found))]
