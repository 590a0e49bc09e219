"""Follows the work's log: metrics out of it, signs of life, and the cap on its size."""

import ctypes
import json
import os
import sys
from typing import Any, Callable, Dict, List, Optional

from outlive.diagnose.parsers import MetricParser, wire_point
from outlive.onbox.context import Context
from outlive.wire.clock import boot_s, wall_s

READ_BYTES = 4 << 20
"""Most that one tick reads, so that a flood of log never delays a decision for long."""


class LogTail:
    """Reads the log by offset. ``tick`` returns the metric points found since the last one."""

    def __init__(self, context: Context, on_first_line: Callable[[str], None]) -> None:
        self.context = context
        self.offset = _size(context.run.log)
        if context.view.attempt is not None and not context.view.attempt.ended:
            # a restarted supervisor reads its attempt again from the start, for the parser's state;
            # points already journaled are not written twice
            self.offset = 0
        self.skip_until_offset = _size(context.run.log) if self.offset == 0 and context.view.attempt else 0
        self.parser = MetricParser()
        self.last_growth_b: Optional[float] = None
        self.last_size = self.offset
        self.last_point: Dict[str, Any] = {}
        self.on_first_line = on_first_line
        self._first_seen = bool(context.view.first_line)
        self._metrics = open(context.run.metrics, "ab", buffering=0)
        self.head: bytes = b""

    def new_attempt(self) -> None:
        """Forget parser state: another process writes from here on."""
        self.parser = MetricParser()
        self._first_seen = False
        self.last_growth_b = None

    def tick(self) -> List[Dict[str, Any]]:
        size = _size(self.context.run.log)
        if size > self.last_size:
            self.last_growth_b = boot_s()
            self.last_size = size
        if self.offset >= size:
            return []
        with open(self.context.run.log, "rb") as handle:
            handle.seek(self.offset)
            data = handle.read(min(READ_BYTES, size - self.offset))
        known = self.offset < self.skip_until_offset
        self.offset += len(data)
        if not self._first_seen and not known:
            self._look_for_first_line(data)
        points = [p for p in self.parser.feed(data)]
        for point in points:
            self.last_point.update(point)
        if known or not points:
            return points
        lines = []
        for point in points:
            lines.append(json.dumps(dict(wire_point(point), b=round(boot_s(), 3), w=round(wall_s(), 3)), separators=(",", ":")))
        try:
            self._metrics.write(("\n".join(lines) + "\n").encode("utf-8"))
        except OSError:
            pass  # a full disk: the points are still in the log, which the client reads as well
        return points

    def _look_for_first_line(self, data: bytes) -> None:
        self.head = (self.head + data)[:4096]
        line = self.head.lstrip(b"\r\n").split(b"\n", 1)
        if len(line) == 2 and line[0].strip():
            self._first_seen = True
            self.head = b""
            self.on_first_line(line[0].decode("utf-8", "replace")[:300])

    def enforce_cap(self, cap_bytes: int) -> None:
        """Free the middle of a log that outgrew its cap, keeping every offset as it was.

        The head and the newest part stay; the gap becomes a hole in the file and is journaled, so
        that no reader takes the zeros for output.
        """
        gaps = self.context.view.log_gaps
        start = int(gaps[-1]["to"]) if gaps else cap_bytes // 4
        end = self.offset - cap_bytes // 2
        if cap_bytes <= 0 or end - start < cap_bytes // 4:
            return
        start, end = start & ~4095, end & ~4095
        if punch_hole(self.context.run.log, start, end - start):
            self.context.record("log_gap", **{"from": start, "to": end})

    def close(self) -> None:
        self._metrics.close()


def punch_hole(path: str, start: int, length: int) -> bool:
    """Give a range of a file back to the file system (Linux FALLOC_FL_PUNCH_HOLE). False where that cannot be done."""
    if not sys.platform.startswith("linux") or length <= 0:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_WRONLY)
    try:
        done: int = libc.fallocate(fd, 0x03, ctypes.c_int64(start), ctypes.c_int64(length))
    except AttributeError:
        return False
    finally:
        os.close(fd)
    return done == 0


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0
