"""``forget``: a person's word that a box is gone, or that a run need not be shown any more."""

from __future__ import annotations

from dataclasses import dataclass

from outlive import errors
from outlive.ledger import Box, Run
from outlive.runs.approve import Terminal, has_person, types_name
from outlive.runs.home import Home
from outlive.runs.look import look
from outlive.wire.clock import wall_s
from outlive.wire.states import RUN_ENDED


@dataclass(frozen=True)
class Forgotten:
    """What was recorded. ``hours`` and ``cost`` are what the box is thought to have billed, None where unknown."""

    name: str
    kind: str
    """``box`` or ``run``."""
    answered: bool
    """The box still answered when it was forgotten."""
    hours: float | None = None
    cost: float | None = None
    currency: str = ""


def forget(home: Home, word: str, terminal: Terminal | None) -> Forgotten:
    """Record that a box is gone. A person types its name at a terminal; if it still answers, they type more.

    Nothing is deleted anywhere. Raises ApprovalNeeded (5) without a person, GateRefused (3) when the box answers and
    that was not confirmed, RunAlive (3) for a run that has not ended on a box that is not gone.
    """
    found = home.find(word)
    return _run(home, found) if isinstance(found, Run) else _box(home, found, terminal)


def _run(home: Home, run: Run) -> Forgotten:
    box = home.state().boxes.get(run.box)
    if run.state not in RUN_ENDED and box is not None and not box.gone:
        raise errors.RunAlive(
            f"{run.run} is {run.state or 'not known to have ended'} as of the last look",
            runs=[run.run],
            safe="It stays on the list.",
            next=[["outlive", "watch", run.run], ["outlive", "stop", run.run]],
        )
    home.ledger.append("forgot", name=run.run, why="asked")
    return Forgotten(run.run, "run", False)


def _box(home: Home, box: Box, terminal: Terminal | None) -> Forgotten:
    if not has_person(terminal):
        raise errors.ApprovalNeeded(
            f"only a person at a terminal can say that {box.name} is gone",
            safe=f"{box.name} stays on the list.",
            next=[["outlive", "forget", box.name]],
        )
    seen = look(home, box)
    answers = seen.state != "unreachable"
    if answers:
        alive = [r["run"] for r in seen.runs if not r["ended"]]
        word = f"{box.name} answers"
        prompt = (
            f"{box.name} STILL ANSWERS at {box.address}"
            + (f", and {', '.join(alive)} is not ended there" if alive else "")
            + ".\nForgetting it stops nothing: it goes on, and bills if it did.\n"
            + f"Type `{word}` to forget it all the same: "
        )
    else:
        word = box.name
        prompt = (
            f"{box.name} does not answer: {seen.why}\n"
            f"That alone does not say that it is gone. Type {word} if you know it: "
        )
    if not types_name(terminal, prompt, word):
        if answers:
            raise errors.GateRefused(
                f"{box.name} still answers", safe=f"{box.name} stays on the list.", next=[["outlive", "down", box.name]]
            )
        raise errors.ApprovalNeeded("not forgotten: the name was not typed", safe=f"{box.name} stays on the list.")
    hours = max(0.0, wall_s() - box.first_w) / 3600
    why = "the user's word" + ("; it still answered" if answers else "")
    if not answers:
        home.ledger.append("place_state", box=box.name, state="gone", why=why)
    home.ledger.append("forgot", name=box.name, why=why, hours=round(hours, 3))
    price = box.price or {}
    per_h = price.get("per_h")
    cost = round(float(per_h) * hours, 2) if per_h is not None else None
    return Forgotten(box.name, "box", answers, round(hours, 3), cost, str(price.get("currency", "")))
