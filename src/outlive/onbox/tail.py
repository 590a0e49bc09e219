"""Follows the work's log: metrics out of it, signs of life, and the cap on its size."""

import ctypes
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from outlive.diagnose.parsers import MetricParser, wire_point
from outlive.onbox.context import Context
from outlive.wire.clock import boot_s, wall_s

READ_BYTES = 1 << 20
READ_S = 0.3
"""How long one tick reads, so that a flood of log never delays a decision for long."""
FLOOD_BYTES = 64 << 20
"""Unread log beyond which it is passed over."""
RUSH_S = 0.05
"""How often the cap is looked at while the log rushes: a flood fills a small disk between two usual looks."""


class LogTail:
    """Reads the log by offset. ``tick`` returns the metric points found since the last one."""

    def __init__(
        self, context: Context, on_first_line: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.context = context
        self._sleep = sleep
        self.offset = _size(context.run.log)
        self.skip_until_offset = 0
        if context.view.attempt is not None and not context.view.attempt.ended:
            # a restarted supervisor reads its attempt again from its start, for the parser's state; points that
            # the last supervisor wrote are not written twice, those of the time without one are
            self.offset = context.view.attempt.log_from
            self.skip_until_offset = _read_up_to(context.run.metrics)
        self.parser = MetricParser()
        self.last_growth_b: Optional[float] = None
        self.last_size = self.offset
        self.last_point: Dict[str, Any] = {}
        self.on_first_line = on_first_line
        self._first_seen = bool(context.view.first_line)
        self._metrics = open(context.run.metrics, "ab", buffering=0)
        self.head: bytes = b""
        self.rushing = False
        """Whether the log grew so fast at the last look that its cap cannot wait for the next usual one."""

    def new_attempt(self) -> None:
        """Forget parser state: another process writes from here on."""
        self.parser = MetricParser()
        self._first_seen = False
        self.last_growth_b = None

    @property
    def lagging(self) -> bool:
        """Whether there is log that has not been read yet."""
        return self.offset < _size(self.context.run.log)

    def tick(self) -> List[Dict[str, Any]]:
        """Read what is new, for at most a fraction of a second."""
        size = _size(self.context.run.log)
        if size > self.last_size:
            self.last_growth_b = boot_s()
        cap_bytes = int(self.context.limits["log_cap_bytes"])
        self.rushing = 0 < max(cap_bytes // 16, READ_BYTES) <= size - self.last_size
        self.last_size = size
        self._skip_flood(size)
        points: List[Dict[str, Any]] = []
        until = time.monotonic() + (RUSH_S if self.rushing else READ_S)
        while self.offset < size:
            points += self._read(size)
            if time.monotonic() >= until:
                break
        return points

    def _read(self, size: int) -> List[Dict[str, Any]]:
        known = self.offset < self.skip_until_offset
        end = min(size, self.skip_until_offset) if known else size
        with open(self.context.run.log, "rb") as handle:
            handle.seek(self.offset)
            data = handle.read(min(READ_BYTES, end - self.offset))
        self.offset += len(data)
        if not data:
            self.offset = size  # it was cut short under our hands
        if not self._first_seen:
            self._look_for_first_line(data)
        points = [p for p in self.parser.feed(data)]
        for point in points:
            self.last_point.update(point)
        if points and not known:
            self._write(points)
        return points

    def _write(self, points: List[Dict[str, Any]]) -> None:
        stamp = {"b": round(boot_s(), 3), "w": round(wall_s(), 3), "at": self.offset}
        lines = [json.dumps(dict(wire_point(point), **stamp), separators=(",", ":")) for point in points]
        try:
            self._metrics.write(("\n".join(lines) + "\n").encode("utf-8", "replace"))
        except OSError:
            pass  # a full disk: the points are still in the log, which the client reads as well

    def _skip_flood(self, size: int) -> None:
        """Jump over what is written faster than it can be read: its place is the cap's business, not ours."""
        cap_bytes = int(self.context.limits["log_cap_bytes"])
        lag = min(FLOOD_BYTES, cap_bytes // 4) if cap_bytes > 0 else FLOOD_BYTES
        if size - self.offset > max(lag, 2 * READ_BYTES) and self.offset >= self.skip_until_offset:
            self.context.trouble(
                "log", "the log grows faster than it can be read; some of its metrics were passed over"
            )
            self.offset = size - READ_BYTES

    def _look_for_first_line(self, data: bytes) -> None:
        self.head = (self.head + data)[:4096]
        line = self.head.lstrip(b"\r\n").split(b"\n", 1)
        if len(line) == 2 and line[0].strip():
            self._first_seen = True
            self.head = b""
            self.on_first_line(line[0].decode("utf-8", "replace")[:300])

    def pause(self, seconds: float) -> List[Dict[str, Any]]:
        """Sleep for so long, or less; while the log rushes, read it and keep its cap. Returns the points found."""
        points: List[Dict[str, Any]] = []
        until = time.monotonic() + seconds
        while self.rushing and until - time.monotonic() > RUSH_S:
            self._sleep(RUSH_S)
            points += self.tick()
            self.enforce_cap(int(self.context.limits["log_cap_bytes"]))
        self._sleep(max(0.0, until - time.monotonic()))
        return points

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
            gap: Dict[str, Any] = {"from": start, "to": end}
            self.context.record("log_gap", **gap)

    def close(self) -> None:
        self._metrics.close()


def _read_up_to(metrics: str) -> int:
    """Return the log offset up to which the last supervisor's metrics were written."""
    try:
        with open(metrics, "rb") as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - 8192))
            lines = handle.read().split(b"\n")
    except FileNotFoundError:
        return 0
    for line in reversed(lines[:-1]):
        try:
            return int(json.loads(line.decode("utf-8", "replace")).get("at", 0))
        except (ValueError, AttributeError, TypeError):
            continue
    return 0


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
