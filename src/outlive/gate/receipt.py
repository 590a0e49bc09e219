"""The receipt: what was proved where, what was given up, what was stopped and what still bills."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from outlive.gate.approval import Approval
from outlive.gate.claims import BoxClaims, Costs, RunClaims
from outlive.gate.decide import Decision
from outlive.gate.files import RunFiles, delivery
from outlive.gate.items import Item
from outlive.gate.waiver import Waiver
from outlive.wire.values import Entry

SCHEMA = "outlive/receipt/1"

METER_STATES = ("stopped", "still running", "unconfirmed", "not metered")


@dataclass(frozen=True)
class CopyLine:
    """One safe copy of one file."""

    place: str
    path: str
    read_back: str


@dataclass(frozen=True)
class FileLine:
    """One file: its digest, how far it was proved, and the copies that outlive the box."""

    path: str
    bytes: int
    sha256: str
    role: str
    kind: str
    level: str
    asked: str
    findings: tuple[str, ...] = ()
    copies: tuple[CopyLine, ...] = ()
    link: str = ""


@dataclass(frozen=True)
class RunLine:
    """One run as it stood."""

    run: str
    state: str
    delivery: str
    inferred: bool
    files: tuple[FileLine, ...]
    tombstones: tuple[str, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """What ``down`` leaves behind, here, beside the results and in the safe place."""

    box: str
    box_id: str
    platform: str
    provider_id: str
    action: str
    verb: str
    decision_digest: str
    decided_s: float
    evidence_age_s: float | None
    runs: tuple[RunLine, ...]
    given_up: tuple[Item, ...]
    waivers: tuple[Waiver, ...]
    approval: Approval | None
    same_machine: bool
    """The copies lie on the same machine as the box did."""
    stopped: tuple[str, ...]
    """What was carried out, and what said that it happened."""
    meter: str
    """One of ``METER_STATES``."""
    costs: Costs | None
    made_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the receipt as plain JSON types, with its schema."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return {"schema": SCHEMA, **plain}

    def to_text(self) -> str:
        """Return the receipt for people: English, a line per fact, files at the end."""
        return "\n".join(_text(self)) + "\n"


def build(
    decision: Decision,
    claims: BoxClaims,
    approval: Approval | None,
    now_s: float,
    stopped: tuple[str, ...],
    meter: str,
    costs: Costs | None = None,
) -> Receipt:
    """Return the receipt of a decision that was carried out.

    ``costs`` are the final ones when they are known, else those of the claims. Raises ValueError
    for a decision that was not open, for claims of another box or verb and for an unknown ``meter``.
    """
    if decision.verdict != "open":
        raise ValueError(f"no receipt for a decision that is {decision.verdict}")
    if (decision.box, decision.action) != (claims.box, claims.action):
        raise ValueError("the claims belong to another decision")
    if meter not in METER_STATES:
        raise ValueError(f"no such meter state: {meter!r}")
    return Receipt(
        box=claims.box,
        box_id=claims.box_id,
        platform=claims.platform,
        provider_id=claims.provider_id,
        action=claims.action,
        verb=decision.verb,
        decision_digest=decision.digest,
        decided_s=decision.made_s,
        evidence_age_s=claims.evidence_age_s,
        runs=tuple(_run_line(run, claims) for run in claims.runs or ()),
        given_up=tuple(i for c in decision.clauses if c.number in decision.waived for i in c.items),
        waivers=decision.waivers,
        approval=approval,
        same_machine=claims.same_machine,
        stopped=stopped,
        meter=meter,
        costs=costs if costs is not None else claims.costs,
        made_s=now_s,
    )


def _run_line(run: RunClaims, claims: BoxClaims) -> RunLine:
    files = RunFiles(run, claims)
    manifest = run.manifest
    return RunLine(
        run=run.run,
        state=run.state,
        delivery=delivery(run, claims),
        inferred=manifest.inferred if manifest is not None else True,
        files=(
            *(_file_line(e, files, asked=True) for e in files.results),
            *(_file_line(e, files, asked=False) for e in files.side),
        ),
        tombstones=manifest.tombstones if manifest is not None else (),
    )


def _file_line(entry: Entry, files: RunFiles, asked: bool) -> FileLine:
    proof = files.proof(entry.sha256)
    return FileLine(
        path=entry.path,
        bytes=entry.bytes,
        sha256=entry.sha256,
        role=entry.role,
        kind=proof.kind if proof is not None else "unknown",
        level=proof.level if proof is not None else "none",
        asked=files.asked(entry, proof) if asked and proof is not None else "none",
        findings=tuple(sorted(str(f.get("code")) for f in proof.findings)) if proof is not None else (),
        copies=tuple(CopyLine(c.place, c.path, c.read_back) for c in files.copies.safe(entry.sha256)),
        link=entry.link,
    )


def _text(receipt: Receipt) -> list[str]:
    lines = [f"receipt: {receipt.verb} of {receipt.box} ({receipt.platform or 'platform not known'})"]
    if receipt.evidence_age_s is not None and receipt.evidence_age_s > 60:
        lines.append(f"evidence as of {receipt.evidence_age_s:.0f} s before the decision")
    lines += [f"done: {what}" for what in receipt.stopped]
    lines.append(f"meter: {receipt.meter}")
    costs = receipt.costs
    if costs is not None:
        if costs.so_far is not None:
            lines.append(f"cost: {costs.so_far:.2f} {costs.currency}".rstrip())
        else:
            lines.append("cost: not known" + (f" ({costs.why_unknown})" if costs.why_unknown else ""))
        lines += [f"still bills: {what}" for what in costs.still_bills]
    if receipt.same_machine:
        lines.append("note: the copies are on the same machine as the box was")
    if receipt.approval is not None:
        lines.append(f"approved: {receipt.approval.id}, {receipt.approval.kind}, by {receipt.approval.by}")
    for waiver in receipt.waivers:
        lines.append(f"given up, as typed: {waiver.typed}")
    lines += [f"  lost: {i.path} ({i.why}; last known copy: {i.last_known_copy or 'none'})" for i in receipt.given_up]
    for run in receipt.runs:
        inferred = ", roster inferred" if run.inferred else ""
        lines.append(f"run {run.run}: {run.state}, delivery {run.delivery}{inferred}, {len(run.files)} files")
        lines += [_file_text(file) for file in run.files]
    lines.append(f"decision {receipt.decision_digest}")
    return lines


def _file_text(file: FileLine) -> str:
    if file.link:
        return f"  {file.path} -> {file.link}"
    where = ", ".join(f"{c.place} (read back: {c.read_back})" for c in file.copies) or "no safe copy"
    found = f" [{', '.join(file.findings)}]" if file.findings else ""
    return f"  {file.path}  {file.bytes} bytes  {file.sha256[:12]}  {file.level}{found}  {where}"
