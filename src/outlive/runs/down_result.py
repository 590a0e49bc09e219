"""How a ``down`` ended, as plain data, and what a person must read before they give something up."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from outlive import errors
from outlive.gate import Decision, Receipt
from outlive.runs.pull import PullResult


@dataclass(frozen=True)
class WouldPull:
    """What a ``down`` without ``--dry-run`` would bring home first."""

    run: str
    dir: str
    files: int
    bytes: int


@dataclass
class DownResult:
    """How ``down`` ended. ``exit_code`` is the process's; ``refusal`` is the error behind any but 0 and 6."""

    box: str
    platform: str
    action: str
    """detach, stop, destroy or purge, as the gate calls it."""
    verb: str
    """The platform's own word."""
    dry_run: bool = False
    decision: Decision | None = None
    exit_code: int = 0
    refusal: errors.OutliveError | None = None
    meter: str = "not metered"
    """stopped, still running, unconfirmed, not metered."""
    sentence: str = ""
    steps: list[str] = field(default_factory=list)
    """What a person does now, in the console's own words."""
    seen: str = ""
    """What they see when it took effect."""
    api: str = ""
    """The platform's own call that does the same; this version does not make it."""
    still_bills: list[str] = field(default_factory=list)
    clocks: list[dict[str, Any]] = field(default_factory=list)
    """The platform's own timers: text, and at_s where the date is known."""
    pulled: list[PullResult] = field(default_factory=list)
    would_pull: list[WouldPull] = field(default_factory=list)
    lost_here: list[str] = field(default_factory=list)
    """Copies on this machine that are not what was written."""
    deletes: list[str] = field(default_factory=list)
    """Paths on the box that a purge deletes, each with all below it."""
    deletes_files: int = 0
    deletes_bytes: int = 0
    removed: list[str] = field(default_factory=list)
    """Paths that the box said it removed and that are not there any more."""
    request: str = ""
    """Id of the stored request when an approval is missing."""
    approval: str = ""
    receipt: Receipt | None = None
    receipt_paths: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    next: list[list[str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        plain = {
            k: v for k, v in vars(self).items() if k not in ("decision", "refusal", "pulled", "would_pull", "receipt")
        }
        return {
            **json.loads(json.dumps(plain)),
            "decision": self.decision.to_wire() if self.decision is not None else None,
            "refusal": self.refusal.to_json() if self.refusal is not None else None,
            "receipt": self.receipt.to_json() if self.receipt is not None else None,
            "would_pull": [asdict(w) for w in self.would_pull],
            "pulled": [
                {"run": p.run, "dir": str(p.dir), "delivery": p.delivery, "bytes_fetched": p.bytes_fetched}
                for p in self.pulled
            ],
        }


def loss_lines(decision: Decision) -> list[str]:
    """Return what stands in the way, clause by clause, with path, size, age and last known copy of each item."""
    lines = [f"{decision.verb} of {decision.box}:"]
    for clause in decision.clauses:
        if clause.state == "green" or clause.number == 8:
            continue
        lines.append(f"{clause.number}. {clause.title}: {clause.sentence}")
        for item in clause.items:
            size = "" if item.bytes is None else f"  {item.bytes} bytes"
            age = "" if item.age_s is None else f"  {item.age_s:.0f} s old"
            copy = (
                f"  last known copy: {item.last_known_copy or 'none'}" if item.sha256 or item.bytes is not None else ""
            )
            lines.append(f"     {item.path}{size}{age}{copy}  {item.why}")
    return lines
