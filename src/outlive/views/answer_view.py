"""What a run answered to a request: stop, save now, more time."""

from __future__ import annotations

from typing import Any

from outlive.runs.ask import Answer
from outlive.views import amounts, run_view
from outlive.views.printable import one_line

WORDS = {
    "stopped": "{run} has ended: {state}",
    "not yet": "{run} was asked to stop and has not ended yet: {state}",
    "silent": "{run}: asked; no answer yet. The request lies on the box and is read by the run's supervisor",
    "answer": "{run}: {text}",
    "lease": "lease: {used} of {max} used",
    "none": "no lease: it runs until it ends",
}


def data(verb: str, answer: Answer) -> dict[str, Any]:
    """Return the answer for ``--json``."""
    status = run_view.run_data(answer.status, box=answer.box)
    return {
        "schema": f"outlive/{verb}/1",
        "run": answer.run,
        "box": answer.box,
        "ok": answer.ok,
        "answered": answer.answered,
        "text": answer.text,
        "state": answer.status["state"],
        "ended": answer.status["ended"],
        "status": status,
        "untrusted": status.pop("untrusted"),
    }


def lines(answer: Answer) -> list[str]:
    """Return the answer as lines."""
    if not answer.answered:
        return [WORDS["silent"].format(run=answer.run)]
    return [WORDS["answer"].format(run=answer.run, text=one_line(answer.text))]


def stop_lines(answer: Answer) -> list[str]:
    """Return how a run stands after it was asked to stop."""
    status = answer.status
    why = run_view.why_text(status)
    word = WORDS["stopped"] if status["ended"] else WORDS["not yet"]
    found = [word.format(run=answer.run, state=run_view.state_text(status)) + (f": {why}" if why else "")]
    if status.get("checkpoint"):
        found.append(run_view.checkpoint_text(status))
    if status["ended"]:
        return [*found, f"next: outlive pull {answer.run}"]
    return [*found, f"next: outlive watch {answer.run}"]


def lease_lines(answer: Answer) -> list[str]:
    """Return the lease after ``extend``."""
    status = answer.status
    if not status.get("lease_max_s"):
        return [*lines(answer), WORDS["none"]]
    return [
        *lines(answer),
        WORDS["lease"].format(used=amounts.span(status.get("lease_used_s")), max=amounts.span(status["lease_max_s"])),
    ]
