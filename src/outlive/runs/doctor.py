"""``doctor``: look at a box, or at this machine, in one exchange; nothing there is changed."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

from outlive.advice.checkup import FINDING, UNKNOWN, Check, Expected, judge
from outlive.runs.home import Home
from outlive.runs.place import open_place

BUDGET_S = 25.0
"""What the box may take for all readings together."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found. ``box`` is "" for this machine; ``readings`` are the raw answers."""

    box: str
    checks: list[Check]
    readings: dict[str, Any]

    @property
    def findings(self) -> list[Check]:
        """Return the checks that found something."""
        return [check for check in self.checks if check.verdict == FINDING]

    @property
    def unknown(self) -> list[Check]:
        """Return the checks that could not be made."""
        return [check for check in self.checks if check.verdict == UNKNOWN]


def doctor_box(home: Home, word: str, peers: list[str], budget_s: float = BUDGET_S) -> Diagnosis:
    """Look at a known box. Raises PlaceError when it cannot be reached."""
    box = home.box_of(word)
    facts = box.facts
    roots = dict.fromkeys([box.root, *(facts.get("tiers") or {}).values(), facts.get("durable")])
    place = open_place(home, box)
    try:
        begin_s, begin_w = time.monotonic(), time.time()
        readings = place.call(
            "doctor",
            {
                "roots": [str(root) for root in roots if root],
                "budget_s": budget_s,
                "peers": peers,
                "hints": [str(facts["python"])] if facts.get("python") else [],
            },
            timeout_s=budget_s + 35.0,
        )
        took_s = time.monotonic() - begin_s
    finally:
        place.close()
    told = (readings.get("clock") or {}).get("value") or {}
    skew, spare_s = None, took_s
    if told.get("wall_s") is not None:
        # it was read at the end of the exchange, which took some of the time for the way back
        skew, spare_s = (
            float(told["wall_s"]) - (begin_w + took_s),
            max(0.0, took_s - float(readings["clock"]["took_s"])),
        )
    expected = Expected(_gpus_at_up(facts), skew, spare_s)
    return Diagnosis(box.name, judge(readings, expected), readings)


def doctor_here(peers: list[str], budget_s: float = BUDGET_S) -> Diagnosis:
    """Look at this machine."""
    from outlive.probes.checkup import checkup

    readings = checkup(list(dict.fromkeys([os.path.expanduser("~"), "/tmp", os.getcwd()])), budget_s, peers)
    return Diagnosis("", judge(readings, Expected()), readings)


def _gpus_at_up(facts: dict[str, Any]) -> int | None:
    """Return how many GPUs the box had at `up`, None when that was unknown then."""
    if facts.get("gpu_state") not in ("ok", "none"):
        return None
    return len(facts.get("gpu") or [])


SAMPLES_BYTES = 512_000
"""Of the newest samples: some hundred of them."""


def doctor_run(home: Home, word: str) -> Diagnosis:
    """Judge a run by its status and its newest samples. Raises PlaceError when its box cannot be reached."""
    from outlive.advice.running import judge_run
    from outlive.runs.look import poll_run

    record = home.run_of(word)
    place = open_place(home, home.box_of(record.box))
    try:
        _, status, parts = poll_run(place, record.run, {"samples": -SAMPLES_BYTES})
    finally:
        place.close()
    samples = []
    for line in parts.get("samples", (0, b""))[1].splitlines():
        try:
            sample = json.loads(line)
        except ValueError:
            continue  # the first line of a piece may be cut
        if isinstance(sample, dict):
            samples.append(sample)
    return Diagnosis(record.run, judge_run(status, samples), {"status": status, "samples": len(samples)})
