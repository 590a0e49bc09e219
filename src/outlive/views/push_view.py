"""A snapshot before it leaves, and what was sent."""

from __future__ import annotations

import dataclasses
from typing import Any

from outlive.runs.push import Pushed
from outlive.sync.data import DataResult
from outlive.views import amounts
from outlive.views.printable import one_line

BIGGEST = 5


def preview_data(snapshot: Any) -> dict[str, Any]:
    """Return files, bytes, the biggest five and the warnings of a snapshot."""
    return {
        "snapshot": snapshot.digest,
        "files": len(snapshot.files),
        "bytes": snapshot.total_bytes,
        "biggest": [{"path": f["path"], "bytes": f["bytes"]} for f in _biggest(snapshot)],
        "warnings": [warning.to_json() for warning in snapshot.warnings],
    }


def preview_lines(snapshot: Any) -> list[str]:
    """Return the same as lines, without the warnings: they stand in the result."""
    biggest = ", ".join(f"{one_line(f['path'])} {amounts.size(f['bytes'])}" for f in _biggest(snapshot))
    return [f"code: {len(snapshot.files)} files, {amounts.size(snapshot.total_bytes)} (biggest: {biggest})"]


def pushed_data(box: str, snapshot: Any | None, pushed: Pushed) -> dict[str, Any]:
    """Return ``push --json`` for code. ``snapshot`` None: the project has no files."""
    return {
        "schema": "outlive/push/1",
        "box": box,
        **(
            preview_data(snapshot)
            if snapshot is not None
            else {"snapshot": None, "files": 0, "bytes": 0, "biggest": []}
        ),
        "sent_bytes": pushed.sent_bytes,
        "already": pushed.already,
        "warnings": list(pushed.warnings),
    }


def pushed_lines(box: str, snapshot: Any | None, pushed: Pushed) -> list[str]:
    """Return what became of a push, from the comparison on the box."""
    warnings = [f"! {one_line(warning)}" for warning in pushed.warnings]
    if snapshot is None or pushed.digest is None:
        return [f"nothing to push to {box}", *warnings]
    name = pushed.digest[:12]
    if pushed.already:
        return [f"{box} has snapshot {name} already: compared, nothing was sent", *warnings]
    return [f"snapshot {name} is on {box}, compared: {amounts.size(pushed.sent_bytes)} sent", *warnings]


def sent_data(box: str, sent: list[tuple[str, DataResult]]) -> dict[str, Any]:
    """Return ``push --data --json``."""
    return {
        "schema": "outlive/push/1",
        "box": box,
        "data": [{"source": source, **dataclasses.asdict(done)} for source, done in sent],
    }


def sent_lines(box: str, sent: list[tuple[str, DataResult]]) -> list[str]:
    """Return what became of data, from the comparison on the box."""
    lines = []
    for source, done in sent:
        text = f"{source} is on {box} below {done.base}, compared: {done.files} files, {amounts.size(done.bytes)}"
        text += f"; {amounts.size(done.sent_bytes)} sent" if done.sent_bytes else "; nothing had to be sent"
        if done.resumed_from:
            text += f", continued after {amounts.size(done.resumed_from)}"
        lines.append(one_line(text))
    return lines


def _biggest(snapshot: Any) -> list[dict[str, Any]]:
    return sorted(snapshot.files, key=lambda f: -int(f["bytes"]))[:BIGGEST]
