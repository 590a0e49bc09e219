"""``logs``: the run's own output, by offset, gaps named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outlive.ledger import Run
from outlive.runs.home import Home
from outlive.runs.look import poll_run
from outlive.runs.place import open_place


def tail(home: Home, record: Run, *, last_bytes: int = 65536) -> bytes:
    """Return the end of the log, whole lines. Raises PlaceError; what the mirror has is in ``mirrored``."""
    place = open_place(home, home.box_of(record.box))
    try:
        _, _, parts = poll_run(place, record.run, {"log": -last_bytes}, limit_bytes=last_bytes)
    finally:
        place.close()
    start, data = parts.get("log", (0, b""))
    return data if start == 0 else data.partition(b"\n")[2]


def whole(home: Home, record: Run) -> Iterator[bytes]:
    """Yield the log from its beginning in pieces."""
    place = open_place(home, home.box_of(record.box))
    try:
        offset = 0
        while True:
            _, status, parts = poll_run(place, record.run, {"log": offset}, timeout_s=60)
            start, data = parts.get("log", (offset, b""))
            if not data:
                return
            yield data
            offset = start + len(data)
            if offset >= status["log_bytes"] and status["ended"]:
                return
    finally:
        place.close()


def mirrored(home: Home, record: Run) -> Path | None:
    """Return the newest copy of the log on this machine, None when nothing was ever read here."""
    copies = sorted(home.mirror(record.run).glob("*/log"), key=lambda p: p.stat().st_mtime)
    return copies[-1] if copies else None
