"""Approvals: a person's leave for one verb on one box, and when it no longer holds.

Programs may store a request; only a terminal turns one into an approval. Ids are the caller's
(random ones), because this module reads nothing.
"""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from outlive.errors import ApprovalInvalid, ApprovalNeeded, GateRefused, UsageError
from outlive.gate.claims import BoxClaims

if TYPE_CHECKING:
    from outlive.gate.decide import Decision

NOW_LASTS_S = 900
STANDING_EVIDENCE_S = 300
"""A standing approval is used by a program: only on evidence younger than this."""
STANDING_LASTS_S = 7 * 86400
"""Nobody remembers for longer what they allowed."""
REQUEST_LASTS_S = 86400

Kind = Literal["now", "standing"]


@dataclass(frozen=True)
class Approval:
    """Leave for one action on one box. ``check`` says whether it holds."""

    kind: Kind
    id: str
    action: str
    box: str
    box_id: str
    provider_id: str
    runs: tuple[str, ...]
    roster_digest: str
    minted_s: float
    until_s: float
    uses_left: int = 1
    decision_digest: str = ""
    """Given now: exactly what was shown. Empty for a standing one, which is bound to the rosters."""
    by: str = "terminal"
    """``terminal``, or ``demo`` for a box that the same process created."""

    def used(self) -> "Approval":
        """Return it with one use less."""
        return dataclasses.replace(self, uses_left=max(0, self.uses_left - 1))

    def to_wire(self) -> dict[str, Any]:
        return dict(dataclasses.asdict(self), runs=list(self.runs))

    @classmethod
    def from_wire(cls, data: dict[str, Any]) -> "Approval":
        return cls(**_clean(cls, data))


@dataclass(frozen=True)
class Request:
    """What a program asks a person for; ``outlive approve ID`` at a terminal answers it."""

    id: str
    kind: Kind
    action: str
    box: str
    box_id: str
    provider_id: str
    runs: tuple[str, ...]
    roster_digest: str
    decision_digest: str
    made_s: float
    until_s: float
    """End of the approval that is asked for, when it is a standing one; else of the request."""
    asked_by: str = ""

    def to_wire(self) -> dict[str, Any]:
        return dict(dataclasses.asdict(self), runs=list(self.runs))

    @classmethod
    def from_wire(cls, data: dict[str, Any]) -> "Request":
        return cls(**_clean(cls, data))


@dataclass(frozen=True)
class Ok:
    """The approval holds for this decision."""


@dataclass(frozen=True)
class Refusal:
    """The approval does not hold."""

    reason: str


def request(
    id: str, kind: Kind, decision: "Decision", claims: BoxClaims, now_s: float, until_s: float, asked_by: str
) -> Request:
    """Return a request that can be stored. Anybody may make one; it allows nothing."""
    return Request(
        id=id,
        kind=kind,
        action=claims.action,
        box=claims.box,
        box_id=claims.box_id,
        provider_id=claims.provider_id,
        runs=claims.run_names(),
        roster_digest=decision.roster_digest,
        decision_digest=decision.digest if kind == "now" else "",
        made_s=now_s,
        until_s=until_s if kind == "standing" else now_s + REQUEST_LASTS_S,
        asked_by=asked_by,
    )


def approve(asked: Request, id: str, now_s: float, at_terminal: bool, created_here: Collection[str] = ()) -> Approval:
    """Turn a request into an approval: the only way to make one.

    ``at_terminal`` is the caller's statement that a person has just read the request and typed the
    box's name there. Without it, only a box whose box id is in ``created_here`` (ids that this very
    process made) is approved, for ``now``, and the approval says ``demo``. Raises ApprovalNeeded
    for anything else, ApprovalInvalid for a request that is no longer open, UsageError for one that no
    approval fits.
    """
    by = "terminal"
    if not at_terminal:
        if asked.kind != "now" or not asked.box_id or asked.box_id not in created_here:
            raise ApprovalNeeded("programs may ask for an approval, never give one: it takes a person at a terminal")
        by = "demo"
    if asked.action == "detach":
        raise UsageError("detaching needs no approval")
    if not asked.made_s <= now_s < asked.until_s:
        raise ApprovalInvalid("the request is no longer open")
    if asked.kind == "standing" and asked.until_s - now_s > STANDING_LASTS_S:
        raise UsageError(f"a standing approval ends within {STANDING_LASTS_S // 86400} days")
    return Approval(
        kind=asked.kind,
        id=id,
        action=asked.action,
        box=asked.box,
        box_id=asked.box_id,
        provider_id=asked.provider_id,
        runs=asked.runs,
        roster_digest=asked.roster_digest,
        minted_s=now_s,
        until_s=asked.until_s if asked.kind == "standing" else now_s + NOW_LASTS_S,
        decision_digest=asked.decision_digest,
        by=by,
    )


def mint(
    kind: Kind,
    id: str,
    decision: "Decision",
    claims: BoxClaims,
    now_s: float,
    at_terminal: bool,
    until_s: float = 0.0,
    created_here: Collection[str] = (),
) -> Approval:
    """Ask and approve in one go, as ``down`` and ``approve down BOX`` do at a terminal.

    ``now`` needs a decision with nothing but the approval in its way; ``standing`` may be given
    while a run still works. Raises GateRefused for ``now`` under a red gate, and as ``approve`` does.
    """
    if kind == "now" and decision.verdict == "red":
        raise GateRefused("the gate is red; there is nothing to approve yet", why=decision.missing, next=decision.next)
    asked = request(id, kind, decision, claims, now_s, until_s, "terminal" if at_terminal else "demo")
    return approve(asked, id, now_s, at_terminal, created_here)


def check(approval: Approval, decision: "Decision", claims: BoxClaims, now_s: float) -> Ok | Refusal:
    """Return whether the approval holds for this decision on these claims, or the first reason why not."""
    for holds, reason in _conditions(approval, decision, claims, now_s):
        if not holds:
            return Refusal(f"the approval {approval.id} does not hold: {reason}")
    return Ok()


def _conditions(
    approval: Approval, decision: "Decision", claims: BoxClaims, now_s: float
) -> tuple[tuple[bool, str], ...]:
    common = (
        (approval.uses_left > 0, "it was used already"),
        (approval.minted_s <= now_s, "it was given later than now; the clock was set back"),
        (now_s < approval.until_s, "its time is over"),
        (approval.action == claims.action, f"it is for {approval.action}, not {claims.action}"),
        (approval.box == claims.box, f"it is for {approval.box}, not {claims.box}"),
        (approval.provider_id == claims.provider_id, "the platform's id of the box is another one"),
        (approval.box_id == claims.box_id, "another box answers under this name"),
        (approval.runs == claims.run_names(), "the runs on the box are others"),
        (approval.roster_digest == claims.roster_digest(), "a spec or a roster has changed"),
    )
    if approval.kind == "now":
        return (
            *common,
            (approval.until_s - approval.minted_s <= NOW_LASTS_S, "it claims to last longer than one given now can"),
            (approval.decision_digest == decision.digest, "something has changed since it was shown"),
        )
    age_s = claims.evidence_age_s
    return (
        *common,
        (claims.runs is not None, "the runs on the box could not be listed"),
        (approval.kind == "standing", "this kind of approval is not known"),
        (approval.by == "terminal", "a standing approval is given at a terminal only"),
        (approval.until_s - approval.minted_s <= STANDING_LASTS_S, "it claims to last longer than one can"),
        (not decision.waived, "a standing approval carries no waiver"),
        (decision.all_green, "not every clause is green"),
        (claims.reachable, "the box does not answer"),
        (age_s is not None and 0 <= age_s < STANDING_EVIDENCE_S, "the evidence is older than five minutes"),
    )


def _clean(cls: Any, data: dict[str, Any]) -> dict[str, Any]:
    known = {f.name for f in dataclasses.fields(cls)}
    clean = {k: v for k, v in data.items() if k in known}
    return dict(clean, runs=tuple(clean["runs"]))
