"""A snapshot before it leaves, and what was sent."""

from __future__ import annotations

from typing import Any

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


def pushed_data(box: str, snapshot: Any, pushed: Any) -> dict[str, Any]:
    """Return ``push --json`` for code."""
    return {
        "schema": "outlive/push/1",
        "box": box,
        **preview_data(snapshot),
        "sent_bytes": pushed.sent_bytes,
        "sent_files": pushed.sent_files,
        "already": pushed.already,
        "resumed_from": pushed.resumed_from,
    }


def pushed_lines(box: str, snapshot: Any, pushed: Any) -> list[str]:
    """Return what became of a push, from the comparison on the box."""
    name = snapshot.digest[:12]
    if pushed.already:
        return [f"{box} has snapshot {name} already: compared, nothing was sent"]
    lines = [
        f"snapshot {name} is on {box}, compared: {pushed.sent_files} files, {amounts.size(pushed.sent_bytes)} sent"
    ]
    if pushed.resumed_from:
        lines.append(f"continued after {amounts.size(pushed.resumed_from)} of a push that was cut")
    return lines


def _biggest(snapshot: Any) -> list[dict[str, Any]]:
    return sorted(snapshot.files, key=lambda f: -int(f["bytes"]))[:BIGGEST]
