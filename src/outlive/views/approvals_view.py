"""What waits for a person, and what they allowed."""

from __future__ import annotations

import time
from typing import Any

from outlive.gate import Approval
from outlive.runs.approve import Pending
from outlive.views import amounts
from outlive.views.printable import one_line, table

WORDS = {
    "nothing": "nothing waits, nothing is allowed",
    "waits": "waits for you",
    "allowed": "allowed",
    "request": "{action} {box}, asked {ago}{by}",
    "approval": "{action} {box}, {kind}, until {until}",
    "given": "allowed: {action} of {box}, {kind}, until {until}",
    "revoked": "{id} is taken back",
}


def listed_data(found: Pending) -> dict[str, Any]:
    """Return ``approve --json`` without words."""
    return {
        "schema": "outlive/approve/1",
        "requests": [r.to_wire() for r in found.requests],
        "approvals": [a.to_wire() for a in found.approvals],
        "next": [["outlive", "approve", r.id] for r in found.requests],
    }


def listed_lines(found: Pending, columns: int) -> list[str]:
    """Return requests and approvals as lines."""
    now = time.time()
    text = []
    if found.requests:
        text.append(WORDS["waits"])
        rows = []
        for r in found.requests:
            by = f" by {one_line(r.asked_by)}" if r.asked_by else ""
            rows.append(
                [
                    f"  {r.id}",
                    WORDS["request"].format(action=r.action, box=r.box, ago=amounts.ago(now - r.made_s), by=by),
                ]
            )
        text += table(rows, columns)
        text.append(f"next: outlive approve {found.requests[-1].id}")
    if found.approvals:
        text.append(WORDS["allowed"])
        text += table([[f"  {a.id}", _said("approval", a)] for a in found.approvals], columns)
        text.append("next: outlive approve --revoke ID takes one back")
    return text or [WORDS["nothing"]]


def given_data(given: Approval) -> dict[str, Any]:
    """Return ``approve --json`` for an approval that was given."""
    return {"schema": "outlive/approve/1", "approval": given.to_wire(), "next": [_use(given)]}


def given_lines(given: Approval) -> list[str]:
    """Return what was allowed, and how it is used."""
    return [_said("given", given), f"next: {' '.join(_use(given))}"]


def revoked_data(id: str) -> dict[str, Any]:
    """Return ``approve --revoke --json``."""
    return {"schema": "outlive/approve/1", "revoked": id}


def revoked_lines(id: str) -> list[str]:
    """Return what was taken back."""
    return [WORDS["revoked"].format(id=id)]


def _said(word: str, a: Approval) -> str:
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(a.until_s))
    return WORDS[word].format(action=a.action, box=a.box, kind=a.kind, until=until)


def _use(given: Approval) -> list[str]:
    return ["outlive", "down", given.box, *(["--purge"] if given.action == "purge" else [])]
