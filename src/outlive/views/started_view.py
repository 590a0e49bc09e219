"""What ``run`` says after it handed back."""

from __future__ import annotations

from typing import Any

from outlive.runs.run import Started
from outlive.views import amounts, run_view
from outlive.views.printable import one_line

HOW = {
    "created": "{run} started on {box}",
    "attached": "{run} is already going on {box}: attached, nothing was started twice",
    "resumed": "{run} goes on on {box}",
    "finished": "{run} is finished on {box}: same job, same spec; nothing was started",
}

LABELS = {
    "state": "state",
    "python": "python",
    "first": "first line",
    "code": "code",
    "kept": "kept",
    "restarts": "restarts",
    "from": "from",
    "then": "then",
    "next": "next",
}


def started_data(done: Started) -> dict[str, Any]:
    """Return ``run --json``."""
    data = run_view.run_data(done.status, box=done.box)
    return {
        "schema": "outlive/run/1",
        "run": done.run,
        "box": done.box,
        "how": done.how,
        "kept_if_gone": done.kept_if_gone,
        "restarts": done.restarts,
        "interpreter": done.interpreter,
        "snapshot": done.snapshot,
        "sent_bytes": done.sent_bytes,
        "warnings": [_said(w) for w in done.warnings],
        "lineage": done.lineage,
        "then": done.then,
        "status": data,
        "untrusted": data.pop("untrusted"),
        "next": next_commands(done),
    }


def next_commands(done: Started) -> list[list[str]]:
    """Return what one would type next."""
    if done.status["ended"]:
        return [["outlive", "logs", done.run], ["outlive", "pull", done.run]]
    return [["outlive", "watch", done.run], ["outlive", "pull", done.run]]


def started_rows(done: Started) -> list[tuple[str, str]]:
    """Return label and text of each line, in the order to read them."""
    status = done.status
    why = run_view.why_text(status)
    state = run_view.state_text(status) + (
        f": {why}" if why and status["state"] not in ("running", "starting", "succeeded") else ""
    )
    rows = [
        ("", HOW.get(done.how, "{run} on {box}: " + done.how).format(run=done.run, box=done.box)),
        (LABELS["state"], state),
    ]
    if done.lineage:
        rows.append((LABELS["from"], lineage_text(done.lineage)))
    if status.get("first_line"):
        rows.append((LABELS["first"], one_line(status["first_line"])))
    if done.interpreter:
        rows.append((LABELS["python"], done.interpreter))
    if done.snapshot:
        rows.append((LABELS["code"], f"snapshot {done.snapshot[:12]}, {amounts.size(done.sent_bytes)} sent"))
    rows += [(LABELS["kept"], done.kept_if_gone), (LABELS["restarts"], done.restarts)]
    if done.then:
        rows.append((LABELS["then"], done.then))
    rows += [("!", _said(warning)) for warning in done.warnings]
    rows += [(LABELS["next"], " ".join(argv)) for argv in next_commands(done)]
    return rows


def lineage_text(lineage: dict[str, Any]) -> str:
    """Return where a moved run comes from, and what was lost."""
    step = f", from step {lineage['step']}" if lineage.get("step") is not None else ""
    lost = f"; {lineage['lost_steps']} steps are computed again" if lineage.get("lost_steps") else ""
    return f"{lineage.get('run')} on {lineage.get('box')}{step}{lost}"


def _said(warning: Any) -> str:
    sentence = getattr(warning, "sentence", None)
    return one_line(sentence() if callable(sentence) else str(warning))
