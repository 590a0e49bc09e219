"""A run as plain data and as lines. The sentences about runs live here and in ``watch_view``."""

from __future__ import annotations

import time
from typing import Any

from outlive.views import amounts
from outlive.views.printable import one_line

WORDS = {
    "as of": "last seen {ago}: {state}",
    "attempt": "attempt {n}",
    "bad": "{n} checkpoint(s) fail their check: {paths}",
    "checkpoint": "checkpoint {step}, {ago}, {size}, proved: {level}",
    "copied": "{n} copied to {to}",
    "copy failed": "copy to {to} fails: {why}",
    "first line": "first line: {line}",
    "lease": "{used} of {max} used",
    "no checkpoint": "no checkpoint yet",
    "step": "step {step}",
    "step of": "step {step}/{total}",
    "trouble": "our own program had trouble with {part}: {why}",
    "wakes": "nothing watches over it; `outlive watch {run}` brings it back",
}

NEEDS = {
    "waiting": "waits: {why}",
    "stalled": "is alive and nothing advances: {why}",
    "hung": "its work is complete and the process will not end: `outlive stop {run}`",
    "failed": "failed: {why}",
    "suspect": "exited 0, but its artifacts are missing or fail their check: {why}",
    "unknown": "nobody knows how it stands: {why}",
    "preempted": "was taken away: {why}",
}
"""States that need a person, and the sentence."""

_UNTRUSTED = ("first_line",)
"""Fields of a status that hold what the work printed."""


def run_data(status: dict[str, Any], *, box: str, seen_w: float | None = None, current: bool = True) -> dict[str, Any]:
    """Return a run for ``--json``. ``current`` False: this was so at ``seen_w``, nobody knows about now.

    What the work itself printed is under ``untrusted``.
    """
    status = dict(status)
    outcome = status.get("outcome")
    untrusted: dict[str, Any] = {key: status.pop(key, "") for key in _UNTRUSTED}
    if outcome:
        untrusted["outcome_evidence"] = outcome.get("evidence", {})
        status["outcome"] = {k: v for k, v in outcome.items() if k != "evidence"}
    if not current:
        status["state"], status["last_state"] = "unknown", status.get("state", "")
    return {**status, "box": box, "current": current, "seen_w": seen_w, "untrusted": untrusted}


def progress(status: dict[str, Any], point: dict[str, Any] | None = None) -> str:
    """Return ``step 1200/5000 24%, loss 2.31``, "" when the run told no step."""
    point = point or {}
    step, total = status.get("step"), point.get("total")
    if point.get("step") is not None and (step is None or point["step"] > step):
        step = point["step"]
    parts = []
    if step is not None:
        word = WORDS["step of"] if total else WORDS["step"]
        parts.append(word.format(step=step, total=total) + (f" {amounts.share(step, total)}" if total else ""))
    if point.get("loss") is not None:
        parts.append(f"loss {amounts.number(point['loss'])}")
    return ", ".join(parts)


def checkpoint_text(status: dict[str, Any], now_w: float | None = None) -> str:
    """Return the newest proved checkpoint as one phrase."""
    found = status.get("checkpoint")
    if not found:
        return WORDS["no checkpoint"]
    at = f"step {found['step']}" if found.get("step") is not None else one_line(str(found.get("path", "")))
    there_w = (now_w if now_w is not None else time.time()) + float(status.get("clock_ahead_s", 0.0))
    age = max(0.0, there_w - float(found["w"])) if found.get("w") else None
    return WORDS["checkpoint"].format(
        step=at, ago=amounts.ago(age), size=amounts.size(found.get("bytes")), level=found.get("level") or "not yet"
    )


def state_text(status: dict[str, Any]) -> str:
    """Return the state with its outcome where it ended badly."""
    state = str(status.get("state", "unknown"))
    outcome = status.get("outcome") or {}
    if status.get("ended") and state not in ("succeeded", "stopped") and outcome.get("cls"):
        return f"{state} ({outcome['cls']})"
    return state


def why_text(status: dict[str, Any]) -> str:
    """Return why the run is in its state: the outcome's sentence when it ended, else the state's own reason."""
    outcome = status.get("outcome") or {}
    said = outcome.get("sentence") if status.get("ended") or status.get("state") in ("waiting", "preempted") else ""
    return one_line(str(said or status.get("why") or ""))


def needs_text(status: dict[str, Any]) -> str:
    """Return what the run needs from a person, "" for nothing."""
    template = NEEDS.get(str(status.get("state")), "")
    return template.format(why=why_text(status), run=status.get("run", "")) if template else ""


def detail_lines(status: dict[str, Any]) -> list[str]:
    """Return everything beside state and progress that a person should know, most urgent first."""
    lines = [f"! {one_line(alarm['sentence'])}" for alarm in status.get("alarms") or []]
    if status.get("bad_checkpoints"):
        lines.append(
            "! " + WORDS["bad"].format(n=len(status["bad_checkpoints"]), paths=", ".join(status["bad_checkpoints"][:3]))
        )
    for path, why in list((status.get("copy_failed") or {}).items())[:2]:
        lines.append("! " + WORDS["copy failed"].format(to=status.get("durable", ""), why=one_line(f"{path}: {why}")))
    if status.get("needs_wake"):
        lines.append("! " + WORDS["wakes"].format(run=status.get("run", "")))
    for part, why in list((status.get("troubles") or {}).items())[:2]:
        lines.append("! " + WORDS["trouble"].format(part=part, why=one_line(str(why))))
    lines.append(checkpoint_text(status))
    if status.get("copied"):
        lines[-1] += "; " + WORDS["copied"].format(n=status["copied"], to=status.get("durable", ""))
    if status.get("lease_max_s"):
        lines.append(
            "lease: "
            + WORDS["lease"].format(
                used=amounts.span(status.get("lease_used_s")), max=amounts.span(status["lease_max_s"])
            )
        )
    return lines
