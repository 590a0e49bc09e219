"""Checkpoints as text and as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlive.views.amounts import ago, number, size
from outlive.views.printable import fold, one_line, table

if TYPE_CHECKING:
    from outlive.runs.ckpt import Listing, Row

WORDS = {
    "none": "no checkpoints in {where}",
    "good": "good",
    "unknown": "not checked: {why}",
    "bad": "BAD: {why}",
    "noted": "{level}",
    "noted bad": "BAD: {why}",
    "not yet": "not verified",
    "durable": "copied",
    "verified": "{good} good, {bad} bad, {unknown} not checked; {read} read",
    "best": "{metric} {value}",
}


def data(found: Listing, ages: list[float]) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "schema": "outlive/ckpt/1",
        "what": found.what,
        "where": found.where,
        "run": found.run or None,
        "format": found.format or None,
        "metric": found.metric or None,
        "checkpoints": [_row(row, age) for row, age in zip(found.rows, ages, strict=True)],
        "bad": [one._asdict() for one in found.bad],
        "notes": found.notes,
    }


def _row(row: Row, age_s: float) -> dict[str, Any]:
    return {
        "name": row.name,
        "path": row.path,
        "format": row.kind or None,
        "step": row.step,
        "seq": row.seq,
        "bytes": row.bytes,
        "files": row.files,
        "age_s": round(age_s, 1),
        "metrics": row.metrics,
        "pinned": row.pinned,
        "milestone": row.milestone,
        "verified": row.verified,
        "durable": row.durable,
        "verdict": row.verdict._asdict() if row.verdict is not None else None,
    }


def lines(found: Listing, ages: list[float], columns: int) -> list[str]:
    """Return the text of ``ls`` and ``verify``."""
    printed: list[str] = []
    if not found.rows and not found.bad:
        printed.append(WORDS["none"].format(where=found.where))
    if found.rows:
        rows = [["name", "step", "size", "age", "metrics", "state"]]
        for row, age in zip(found.rows, ages, strict=True):
            shown = " ".join(f"{name} {number(value)}" for name, value in sorted(row.metrics.items())[:2])
            step = "-" if row.step is None else str(row.step)
            rows.append([one_line(row.name), step, size(row.bytes), ago(age), one_line(shown) or "-", _state(row)])
        printed += table(rows, columns)
    for one in found.bad:
        printed += fold(
            f"{one_line(one.name)}  {WORDS['bad'].format(why=one_line(one.why))} ({one.where})", columns, "  "
        )
    if found.what == "verify":
        said = [row.verdict for row in found.rows if row.verdict is not None]
        printed.append(
            WORDS["verified"].format(
                good=sum(1 for one in said if one.ok),
                bad=sum(1 for one in said if one.ok is False) + len(found.bad),
                unknown=sum(1 for one in said if one.ok is None),
                read=size(sum(one.bytes for one in said)),
            )
        )
    return printed


def _state(row: Row) -> str:
    if row.verdict is not None:
        if row.verdict.ok:
            more = "; ".join(one["text"] for one in row.verdict.findings[:1])
            return f"{WORDS['good']} ({row.verdict.level})" + (f": {one_line(more)}" if more else "")
        key = "unknown" if row.verdict.ok is None else "bad"
        return WORDS[key].format(why=one_line(row.verdict.why))
    words = []
    if row.verified is None:
        words.append(WORDS["not yet"])
    elif row.verified.get("ok"):
        words.append(WORDS["noted"].format(level=row.verified.get("level")))
    else:
        words.append(WORDS["noted bad"].format(why=one_line(str(row.verified.get("why")))))
    words += [word for word, is_so in (("pinned", row.pinned), ("milestone", row.milestone)) if is_so]
    if row.durable is not None:
        words.append(WORDS["durable"])
    return ", ".join(words)


def path_line(found: Listing) -> list[str]:
    """Return the one line of ``best`` and ``resume-point``: a path, for a script."""
    return [found.rows[0].path]
