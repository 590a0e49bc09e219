"""A drill as sentences and as data."""

from __future__ import annotations

import statistics
from typing import Any

from outlive.runs.drill import Rehearsal
from outlive.runs.drill_verdict import FROM_ZERO, NEVER, NOTHING_SAVED, RESUMES, SKIPS, Return
from outlive.views.amounts import number

WHEN = {"after_save": "after a save", "in_save": "in the middle of a save", "later": "between two saves"}
ADVICE = {
    "schedule": "save the scheduler's state with the rest, and load it",
    "weights": "the checkpoint is found, and what is in it does not reach the model",
    "state": "save optimizer, random numbers and the position in the data with the weights",
    "place in the data": "save the epoch and the position in it",
}


def rows(found: Rehearsal) -> list[tuple[str, str]]:
    """Return the drill as (label, text); label "" is the headline, ``!`` what is wrong."""
    verdict = found.verdict
    lines = [("", headline(found))]
    lines += [("!" if back.word != RESUMES else "kill -9", sentence(back)) for back in verdict.returns]
    for item in verdict.forgotten:
        lines.append(("!", f"{item.what} forgotten: {item.text}"))
        if item.what in ADVICE:
            lines.append(("mend", ADVICE[item.what]))
    if verdict.compared:
        lines.append(("compared", compared(found)))
    cost = costs(verdict.returns)
    if cost:
        lines.append(("one kill", cost))
    lines += [("note", text) for text in found.notes]
    return lines


def headline(found: Rehearsal) -> str:
    """Return the verdict in one line."""
    verdict = found.verdict
    words = {back.word for back in verdict.returns}
    if NEVER in words:
        text = "it does not come back after kill -9"
    elif FROM_ZERO in words:
        text = "it restarts from zero: what it saves is not loaded"
    elif NOTHING_SAVED in words:
        text = "it began again: no whole checkpoint was known when it was killed"
    elif SKIPS in words:
        text = "it skips steps after kill -9"
    elif verdict.forgotten:
        text = "it resumes, and forgets: " + ", ".join(item.what for item in verdict.forgotten)
    else:
        text = f"it resumes: {len(verdict.returns)} kill(s), nothing forgotten"
    return f"drill{' on ' + found.box if found.box else ''}: {text}"


def sentence(back: Return) -> str:
    """Return what one kill came to."""
    head = f"{WHEN[back.kill.when]}, at step {back.kill.last_step}: "
    if back.word == NEVER:
        return head + f"nothing came after it ({back.kill.why or 'no line about a step'})"
    known = f"; its newest checkpoint was of step {back.kill.checkpoint_step}" if back.kill.checkpoint_step else ""
    if back.word == FROM_ZERO:
        return head + f"began again at step {back.first_step}{known}"
    if back.word == NOTHING_SAVED:
        return head + f"began again at step {back.first_step}; no whole checkpoint was known"
    if back.word == SKIPS:
        return head + f"went on at step {back.first_step}; the steps between were never done{known}"
    cost = f", {back.cost_s:.1f} s until it was there again" if back.cost_s is not None else ""
    return head + f"went on at step {back.first_step}, {back.lost_steps} step(s) done twice{cost}"


def compared(found: Rehearsal) -> str:
    """Return how much the verdict stands on."""
    verdict = found.verdict
    text = f"{verdict.equal} of {verdict.compared} line(s) after a kill say what the undisturbed run said"
    noise = max(verdict.noise.values(), default=0.0)
    if noise > 0:
        text += f" (undisturbed it differs from itself by up to {number(100 * noise)} %)"
    if verdict.same_state and not verdict.broken:
        text += f"; {len(verdict.same_state)} of {verdict.states} checkpoint(s) hold the same bytes"
    return text


def costs(returns: tuple[Return, ...]) -> str:
    """Return what one preemption costs, or nothing when none was survived."""
    seconds = [back.cost_s for back in returns if back.cost_s is not None]
    steps = [back.lost_steps for back in returns if back.lost_steps is not None]
    if not seconds or not steps:
        return ""
    return f"costs {statistics.median(seconds):.1f} s and {statistics.median(steps):.0f} step(s) done twice (median)"


def data(found: Rehearsal) -> dict[str, Any]:
    """Return the drill as one JSON-ready object."""
    verdict = found.verdict
    return {
        "schema": "outlive/drill/1",
        "passed": not verdict.broken,
        "sentence": headline(found),
        "snapshot": found.snapshot,
        "command": found.command,
        "box": found.box or None,
        "kills": [
            {
                "when": back.kill.when,
                "step": back.kill.last_step,
                "checkpoint_step": back.kill.checkpoint_step,
                "word": back.word,
                "first_step": back.first_step,
                "lost_steps": back.lost_steps,
                "restart_s": _rounded(back.restart_s),
                "cost_s": _rounded(back.cost_s),
                "why": back.kill.why,
            }
            for back in verdict.returns
        ],
        "forgotten": [{"what": item.what, "text": item.text} for item in verdict.forgotten],
        "compared": verdict.compared,
        "equal": verdict.equal,
        "noise": verdict.noise,
        "states": verdict.states,
        "same_state_steps": list(verdict.same_state),
        "reference_steps": [found.reference[0].step, found.reference[-1].step],
        "took_s": round(found.took_s, 1),
        "notes": found.notes,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
