"""A diagnosis as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outlive.views.printable import one_line

SHOWN = 3
"""Findings shown in full; the others in one line."""


def lines(data: dict[str, Any], columns: int = 100) -> Iterator[str]:
    """Yield the diagnosis for a person."""
    if data.get("note"):
        yield data["note"]
    yield one_line(data["sentence"])
    shown = [f for f in data["findings"] if f["severity"] != "info"]
    for finding in shown[:SHOWN]:
        yield ""
        yield from _finding(finding, columns)
    folded = [f for f in data["findings"] if f["severity"] == "info" and data["verdict"] == "found"]
    if folded:
        yield ""
        yield "follows from it, or matters less: " + ", ".join(f"{f['title']} ({f['rule']})" for f in folded[:4])
    for tell in data.get("would_tell", ()):
        yield f"  would tell: {tell}"


def _finding(finding: dict[str, Any], columns: int) -> Iterator[str]:
    yield f"{finding['severity']}: {finding['title']}  [{finding['rule']}, {finding['confidence']}]"
    for item in finding["evidence"][:3]:
        where = f"{item['source']}:{item['line']}" if item["source"] else f"line {item['line']}"
        yield f"  {one_line(where)}: {one_line(item['text'])[:240]}"
    if finding["times_seen"] > 3:
        yield f"  seen {finding['times_seen']} times"
    if finding["numbers"]:
        said = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in finding["numbers"].items())
        yield "  numbers: " + one_line(said)[:300]
    yield from _wrapped("  why: ", finding["cause"], columns)
    for count, step in enumerate(finding["fix"], 1):
        yield from _wrapped(f"  {count}. ", one_line(step), columns)
    for never in finding["never_do"]:
        yield from _wrapped("  never: ", one_line(never), columns)
    yield f"  remedy: {finding['remedy']}"
    if finding.get("note"):
        yield f"  note: {finding['note']}"


def _wrapped(head: str, text: str, columns: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(40, columns), initial_indent=head, subsequent_indent=" " * len(head)) or [head]
