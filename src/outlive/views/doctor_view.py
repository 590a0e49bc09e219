"""A look at a machine as lines and as plain data: findings first, then what is unknown, then the rest in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.views.printable import one_line

if TYPE_CHECKING:
    from outlive.advice.checkup import Check
    from outlive.runs.doctor import Diagnosis

SCHEMA = "outlive/doctor/1"


def data(found: Diagnosis) -> dict[str, Any]:
    """Return the checks as one object. ``subject``: the box, the run, or "" for this machine."""
    return {
        "schema": SCHEMA,
        "subject": found.box,
        "checks": [check.to_json() for check in found.checks],
        "counts": {name: sum(one.verdict == name for one in found.checks) for name in ("ok", "finding", "unknown")},
    }


def rows(found: Diagnosis) -> list[tuple[str, str]]:
    """Return label and text of each line; a label "" is a line of its own."""
    name = found.box or "this machine"
    head = f"{name}: {_count(len(found.findings), 'finding')}, {len(found.unknown)} unknown"
    told: list[tuple[str, str]] = [
        ("", one_line(head if found.findings else f"{name}: nothing found" + _unknown(found)))
    ]
    for check in found.findings:
        told.append(("!", one_line(f"{check.name}: {check.why}" + _ids(check))))
        told += [("  fix" if number == 0 else " ", one_line(step)) for number, step in enumerate(check.fix)]
    told += [("unknown", one_line(f"{check.name}: {check.why}")) for check in found.unknown]
    fine = [check for check in found.checks if check not in found.findings and check not in found.unknown]
    if fine:
        told.append(("ok", one_line("; ".join(f"{check.name} ({check.why})" for check in fine))))
    return told


def _unknown(found: Diagnosis) -> str:
    return f", {len(found.unknown)} unknown" if found.unknown else ""


def _ids(check: Check) -> str:
    return f" [{', '.join(check.source_ids)}]" if check.source_ids else ""


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
