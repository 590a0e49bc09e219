"""The decision: clauses, waivers and an approval in; open, red or needs_approval out."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outlive.gate.approval import Approval, Refusal, check
from outlive.gate.claims import BoxClaims, digest_of
from outlive.gate.clauses import IDS, Clause, State, judge_all, live
from outlive.gate.items import Item
from outlive.gate.waiver import Waiver, why_void

Verdict = Literal["open", "red", "needs_approval"]

EXIT_CODES: Mapping[Verdict, int] = {"open": 0, "red": 3, "needs_approval": 5}

APPROVAL = 8


@dataclass(frozen=True)
class Decision:
    """What the gate says of one verb on one box, and everything a person must see to answer it."""

    box: str
    action: str
    verb: str
    clauses: tuple[Clause, ...]
    verdict: Verdict
    digest: str
    """Of clauses 1 to 7 with their items, the runs and rosters: what waivers and approvals are bound to."""
    roster_digest: str
    made_s: float
    evidence_age_s: float | None
    waived: tuple[int, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    """The waivers that counted."""
    void: tuple[str, ...] = ()
    """Why a waiver that was handed in did not count."""
    missing: tuple[str, ...] = ()
    """One sentence for each thing that stands in the way."""
    next: tuple[tuple[str, ...], ...] = ()
    """Commands that would help, as argument lists."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def all_green(self) -> bool:
        """Every evidence clause is green and nothing was given up."""
        return not self.waived and all(c.state == "green" for c in self.clauses if c.number != APPROVAL)

    def clause(self, number: int) -> Clause:
        """Return a clause by its number. Raises KeyError."""
        for clause in self.clauses:
            if clause.number == number:
                return clause
        raise KeyError(number)

    def to_wire(self) -> dict[str, Any]:
        return {
            "box": self.box,
            "action": self.action,
            "verb": self.verb,
            "verdict": self.verdict,
            "digest": self.digest,
            "evidence_age_s": self.evidence_age_s,
            "clauses": [c.to_wire() for c in self.clauses],
            "waived": list(self.waived),
            "void": list(self.void),
            "why": list(self.missing),
            "next": [list(argv) for argv in self.next],
        }


def settle(states: Mapping[int, State], waived: Iterable[int], approved: bool) -> Verdict:
    """Return the verdict of a truth-table row. Unknown stands in the way exactly as red does.

    ``states`` holds clauses 1 to 7. Clause 7 cannot be waived, whatever ``waived`` says.
    """
    given_up = set(waived) - {7, APPROVAL}
    if any(state != "green" and number not in given_up for number, state in states.items()):
        return "red"
    return "open" if approved else "needs_approval"


def decide(claims: BoxClaims, waivers: Iterable[Waiver], approval: Approval | None, now_s: float) -> Decision:
    """Return the gate's decision. ``now_s`` is the client's wall clock; nothing is read here.

    The verdict is ``open`` only when every clause is green or given up by a waiver that fits
    exactly these items, and the approval holds. Detaching is not gated: it is open unless a run
    lives or nobody could see whether one does.
    """
    if claims.action == "detach":
        return _detach(claims, now_s)
    evidence = judge_all(claims)
    digest = _digest(claims, evidence)
    reasons = [(w, why_void(w, claims, digest, now_s)) for w in waivers]
    counted = tuple(w for w, why in reasons if not why)
    given_up = {n for w in counted for n in w.clauses}
    waived = tuple(c.number for c in evidence if c.state != "green" and c.waivable and c.number in given_up)
    states = {c.number: c.state for c in evidence}
    shown = Decision(
        box=claims.box,
        action=claims.action,
        verb=claims.verb or claims.action,
        clauses=evidence,
        verdict=settle(states, waived, approved=False),
        digest=digest,
        roster_digest=claims.roster_digest(),
        made_s=now_s,
        evidence_age_s=claims.evidence_age_s,
        waived=waived,
        waivers=counted,
        void=tuple(why for _, why in reasons if why),
    )
    answer = None if approval is None else check(approval, shown, claims, now_s)
    approved = answer is not None and not isinstance(answer, Refusal)
    clauses = (*evidence, _approval_clause(approval, answer, shown))
    verdict = settle(states, waived, approved)
    in_the_way = [c for c in clauses if c.state != "green" and c.number not in waived]
    return dataclasses.replace(
        shown,
        clauses=clauses,
        verdict=verdict,
        missing=tuple(_missing(c) for c in in_the_way),
        next=_next(claims, in_the_way, verdict),
    )


def _detach(claims: BoxClaims, now_s: float) -> Decision:
    clause = live(claims)
    verdict: Verdict = "open" if clause.state == "green" else "red"
    return Decision(
        box=claims.box,
        action=claims.action,
        verb=claims.verb or "detach",
        clauses=(clause,),
        verdict=verdict,
        digest=_digest(claims, (clause,)),
        roster_digest=claims.roster_digest(),
        made_s=now_s,
        evidence_age_s=claims.evidence_age_s,
        missing=() if verdict == "open" else (_missing(clause),),
        next=() if verdict == "open" else _next(claims, [clause], verdict),
    )


def _digest(claims: BoxClaims, clauses: Iterable[Clause]) -> str:
    files = [
        [r.run, sorted([e.path, e.sha256] for e in (*(r.manifest.entries if r.manifest else ()), *r.checkpoints))]
        for r in claims.runs or ()
    ]
    return digest_of(
        {
            "box": [claims.box, claims.box_id, claims.provider_id, claims.action],
            "clauses": [c.shown() for c in clauses],
            "roster": claims.roster_digest(),
            "files": sorted(files),
        }
    )


def _approval_clause(approval: Approval | None, answer: object, shown: Decision) -> Clause:
    title, id_ = "approval", IDS[APPROVAL]
    if approval is None:
        why = f"nobody has approved {shown.verb} of {shown.box}"
    elif isinstance(answer, Refusal):
        why = answer.reason
    else:
        return Clause(APPROVAL, id_, title, "green", f"approved: {approval.id} ({approval.kind})", waivable=False)
    return Clause(APPROVAL, id_, title, "red", why, (Item("(approval)", why=why),), waivable=False)


def _missing(clause: Clause) -> str:
    return f"{clause.number} {clause.title}: {clause.sentence}"


def _next(claims: BoxClaims, in_the_way: list[Clause], verdict: Verdict) -> tuple[tuple[str, ...], ...]:
    numbers = {c.number for c in in_the_way}
    out: list[tuple[str, ...]] = []
    if verdict == "needs_approval":
        return (("outlive", "down", claims.box),)
    if verdict == "open":
        return ()
    if not claims.reachable:
        out.append(("outlive", "doctor", claims.box))
    if 1 in numbers:
        out += [("outlive", "watch", r.run) for r in claims.runs or () if r.live is not False]
        out += [("outlive", "stop", r.run) for r in claims.runs or () if r.live]
    if numbers & {2, 4, 6}:
        out.append(("outlive", "pull", claims.box))
    if 3 in numbers:
        out.append(("outlive", "ckpt", "verify", claims.box))
    if 5 in numbers:
        out.append(("outlive", "ssh", claims.box))
    if claims.action != "detach":
        out.append(("outlive", "down", claims.box, "--dry-run"))
    return tuple(dict.fromkeys(out))
