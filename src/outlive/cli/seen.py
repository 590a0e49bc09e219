"""What this client saw last of each box, and what it showed last: beside the ledger, deletable, no proof."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from outlive.runs.home import Home

KEPT = (
    "run",
    "job",
    "state",
    "why",
    "ended",
    "created_w",
    "ended_w",
    "attempt",
    "stage",
    "step",
    "outcome",
    "checkpoint",
    "checkpoints",
    "alarms",
    "copied",
    "copy_failed",
    "log_age_s",
    "metrics_age_s",
    "retries",
    "first_line",
    "durable",
    "lease_max_s",
    "lease_used_s",
    "secret_names",
    "bad_checkpoints",
    "needs_wake",
    "work_alive",
    "fenced",
    "troubles",
)


def remember(
    home: Home, box: str, runs: list[dict[str, Any]], head: dict[str, Any] | None = None, *, whole: bool = False
) -> None:
    """Note a fresh exchange with a box: when it was and what its runs were. ``whole``: these are all its runs."""
    known = {} if whole else recall_box(home, box).get("runs", {})
    for status in runs:
        known[status["run"]] = {key: status.get(key) for key in KEPT}
    _write(home.dir / "seen" / f"{box}.json", {"w": time.time(), "head": head or {}, "runs": known})


def recall_box(home: Home, box: str) -> dict[str, Any]:
    """Return ``{"w", "head", "runs": {run: status}}`` of the last fresh exchange, {} when there was none."""
    return _read(home.dir / "seen" / f"{box}.json")


def shown(home: Home) -> dict[str, Any]:
    """Return what the overview showed last: ``{"w", "runs": {run: status}}``, {} the first time."""
    return _read(home.dir / "seen.json")


def note_shown(home: Home, runs: dict[str, dict[str, Any]]) -> None:
    """Note what the overview shows now."""
    _write(
        home.dir / "seen.json", {"w": time.time(), "runs": {k: {f: v.get(f) for f in KEPT} for k, v in runs.items()}}
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write(path: Path, data: dict[str, Any]) -> None:
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside.write_text(json.dumps(data), "ascii")
        aside.replace(path)
    except OSError:
        pass  # a memory of what was shown is not worth failing a look for
