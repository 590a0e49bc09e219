"""Knowingly given up: a waiver is typed by a person who has just been shown what is lost."""

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outlive.errors import ApprovalNeeded, GateRefused, UsageError
from outlive.gate.claims import BoxClaims

if TYPE_CHECKING:
    from outlive.gate.decide import Decision

WAIVER_LASTS_S = 900
"""The same as an approval given now: what was read on the screen is still in mind."""

TYPED = re.compile(r"\s*(?P<box>\S+)\s+lose\s+(?P<numbers>\d+(?:\s*,\s*\d+)*)\s*")


@dataclass(frozen=True)
class Waiver:
    """A person's word that these items of these clauses may be lost."""

    box: str
    action: str
    clauses: tuple[int, ...]
    items_digest: str
    """Digest of exactly the decision that was shown: one more file, and the waiver is void."""
    typed: str
    at_s: float

    def to_wire(self) -> dict[str, Any]:
        return dict(dataclasses.asdict(self), clauses=list(self.clauses))

    @classmethod
    def from_wire(cls, data: dict[str, Any]) -> "Waiver":
        known = {f.name for f in dataclasses.fields(cls)}
        clean = {k: v for k, v in data.items() if k in known}
        return cls(**dict(clean, clauses=tuple(int(n) for n in clean["clauses"])))


def parse(typed: str, decision: "Decision", now_s: float, at_terminal: bool) -> Waiver:
    """Return the waiver that a person typed under a shown decision: ``BOX lose 1,3``.

    Raises ApprovalNeeded when it was not typed at a terminal, UsageError when the line is not that
    or names no clause, and GateRefused when it is about another box, about a clause that is not in
    the way or that nobody can give up, or earlier than the decision.
    """
    if not at_terminal:
        raise ApprovalNeeded("something is given up only by a person at a terminal")
    match = TYPED.fullmatch(typed)
    if match is None:
        raise UsageError(f"type the box's name and what is given up, for instance: {decision.box} lose 2,6")
    if match["box"] != decision.box:
        raise GateRefused(f"this is about {decision.box}, not {match['box']}")
    if decision.action == "detach":
        raise GateRefused("detaching deletes nothing, so there is nothing to give up")
    if now_s < decision.made_s:
        raise GateRefused("nothing is given up in advance: the clock stands before the decision that was shown")
    numbers = tuple(sorted({int(n) for n in match["numbers"].split(",")}))
    by_number = {c.number: c for c in decision.clauses}
    for number in numbers:
        clause = by_number.get(number)
        if clause is None:
            raise UsageError(f"there is no clause {number}")
        if clause.state == "green":
            raise GateRefused(f"clause {number} ({clause.title}) is green; nothing is given up in advance")
        if not clause.waivable:
            raise GateRefused(f"clause {number} ({clause.title}) cannot be given up")
    return Waiver(decision.box, decision.action, numbers, decision.digest, typed.strip(), now_s)


def why_void(waiver: Waiver, claims: BoxClaims, decision_digest: str, now_s: float) -> str:
    """Return why a waiver does not count for what is in the way now; ``""`` when it does."""
    if waiver.box != claims.box:
        return f"it is about {waiver.box}"
    if waiver.action != claims.action:
        return f"it is about {waiver.action}"
    if waiver.items_digest != decision_digest:
        return "what is in the way is no longer what was shown"
    if waiver.at_s > now_s:
        return "it was given later than now; the clock was set back"
    if now_s - waiver.at_s > WAIVER_LASTS_S:
        return f"it is older than {WAIVER_LASTS_S // 60} minutes"
    return ""
