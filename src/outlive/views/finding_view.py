"""A diagnosis as lines for a terminal."""

from __future__ import annotations

import shlex
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
    if data["verdict"] == "not_known" and data["lines"] and "proposed_rule" not in data:
        yield "  no rule knows this log: with --propose-rule, the draft of one is written for you to fill in"
    yield from _own_rules(data.get("own_rules", {}))
    yield from _proposed(data.get("proposed_rule", {}))


def _own_rules(own: dict[str, Any]) -> Iterator[str]:
    """Yield what of a person's own rules was not used, and why."""
    for problem in own.get("problems", ()):
        at = problem["file"] if problem["line"] is None else f"{problem['file']}:{problem['line']}"
        key = f" [{problem['key']}]" if problem["key"] else ""
        yield ""
        yield one_line(f"own rules: {at}{key}: {problem['what']}")
        yield from (f"  {one_line(reason)}" for reason in problem["why"])
        yield from (f"  next: {shlex.join(argv)}" for argv in problem["next"])
    if own.get("drafts"):
        yield ""
        yield from (
            one_line(f"own rules: {draft['file']} is a draft, not used: {' and '.join(draft['fill_in'])} to be written")
            for draft in own["drafts"]
        )


def _proposed(made: dict[str, Any]) -> Iterator[str]:
    if not made:
        return
    yield ""
    yield f"draft of a rule: {one_line(made['rule'])}"
    yield f"  sample, redacted: {one_line(made['sample'])}"
    yield f"  it fires on: {one_line(made['fires_on'])[:240]}"
    yield f"  to be written: {', '.join(made['fill_in'])}; see also class and remedy. It is not used before that."
    yield f"  then try it: {shlex.join(made['test'])}"


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
