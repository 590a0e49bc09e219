"""Boxes with real runs on them, for tests of what comes after a run."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outlive.runs.home import Home
from outlive.runs.look import look, note_state
from outlive.runs.place import Place
from outlive.runs.up import up
from outlive.wire import spec as specs

TRAIN = """
import json, os, sys, time
os.makedirs("out/ckpt", exist_ok=True)
for step in range(2):
    path = "out/ckpt/step-%d.json" % step
    with open(path + ".tmp", "w") as f:
        json.dump({"step": step, "w": [step] * 50}, f)
    os.rename(path + ".tmp", path)
    print("step", step, flush=True)
with open("out/best.json", "w") as f:
    json.dump({"loss": 0.5}, f)
"""
"""Leaves out/best.json and two checkpoints."""

SPEC: dict[str, Any] = {"artifacts": {"roster": ["out/best.json"], "checkpoints": "out/ckpt"}}


class Person:
    """Somebody at a terminal, with the lines that they type. ``asked`` is what they were shown."""

    is_terminal = True

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.asked: list[str] = []

    def ask(self, prompt: str) -> str:
        self.asked.append(prompt)
        return self.lines.pop(0) if self.lines else ""


def local(tmp_path: Path, words: tuple[str, ...] = ("local:",), **options: Any) -> Place:
    """A fresh client with one embedded box."""
    return up(Home(tmp_path / "state"), list(words), **options).place


def start(place: Place, code: str = TRAIN, *, job: str = "tiny", **spec: Any) -> str:
    """Start ``python -c code`` on a box and return the run's id."""
    whole = {
        "job": job,
        "stages": [{"name": "main", "run": ["python3", "-c", code]}],
        "python": place.box.facts["python"] if not place.is_local else sys.executable,
        "limits": {"scan_s": 0.2, "sample_s": 0.5, "grace_s": 2.0},
        **SPEC,
        **spec,
    }
    request = {"token": uuid.uuid4().hex, "spec": specs.complete(whole), "payload": {}, "wait_s": 5}
    run: str = place.call("run_start", request)["run"]
    note_state(place.home, look(place.home, place.box))
    return run


def until(place: Place, run: str, holds: Callable[[dict[str, Any]], Any], limit_s: float = 120.0) -> dict[str, Any]:
    """Look at a run until something holds of its status; its supervisor has written all that it will by then."""
    end = time.monotonic() + limit_s
    while True:
        seen = look(place.home, place.box)
        note_state(place.home, seen)
        status = next(s for s in seen.runs if s["run"] == run)
        if holds(status):
            return status
        assert time.monotonic() < end, json.dumps(status)
        time.sleep(0.1)


def ended(place: Place, run: str) -> dict[str, Any]:
    """Wait for the end of a run and of its supervisor."""
    return until(place, run, lambda s: s["ended"] and not s["supervised"])


def work_of(place: Place, run: str) -> Path:
    """Return the work directory of a run on a box of this machine."""
    return Path(place.box.root) / ".outlive" / "runs" / run / "work"
