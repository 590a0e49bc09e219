"""A stream that must keep moving: bytes that stop flowing for too long are a cut, not a wait."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Callable
from typing import IO

PIECE_BYTES, LARGEST_PIECE_BYTES = 16 * 1024, 64 * 1024
"""Small enough that a slow line (1 kB/s) still moves one within STALL_S; larger while the line is fast."""
FAST_S = 0.05
"""A piece that is taken within so long leaves room for a larger one."""
STALL_S = 60.0
"""How long a transfer may stand still."""


class Pace:
    """Calls ``give_up`` once, from a thread, when ``limit_s`` pass without a ``moved``. A context manager."""

    def __init__(self, limit_s: float, give_up: Callable[[], None]) -> None:
        self.limit_s = limit_s
        self.stalled = False
        self._give_up = give_up
        self._moved_s = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def moved(self) -> None:
        """Say that bytes flowed."""
        self._moved_s = time.monotonic()

    def allow(self, limit_s: float) -> None:
        """From now on another limit holds: the far end may be busy without a word."""
        self.moved()
        self.limit_s = limit_s

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self.limit_s / 4)):
            if time.monotonic() - self._moved_s > self.limit_s:
                self.stalled = True
                self._give_up()
                return

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._over.set()


class PacedWriter:
    """Writes all it is given, in pieces (a raw pipe may take less than asked), and tells the pace."""

    def __init__(self, sink: IO[bytes], pace: Pace) -> None:
        self._sink, self._pace = sink, pace
        self._piece_bytes = PIECE_BYTES

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            began_s = time.monotonic()
            # What stands behind the pipe of a stream that was given up is closed, before or under this write: that is
            # a broken pipe too.
            try:
                count = self._sink.write(view[: self._piece_bytes])
            except (ValueError, OSError) as error:
                raise BrokenPipeError(str(error)) from error
            view = view[count or 0 :]
            self._pace.moved()
            fast = time.monotonic() - began_s < FAST_S
            self._piece_bytes = LARGEST_PIECE_BYTES if fast else PIECE_BYTES
        return len(data)

    def flush(self) -> None:
        try:
            self._sink.flush()
        except (ValueError, OSError) as error:
            raise BrokenPipeError(str(error)) from error


class PacedReader:
    """Reads what is there, and tells the pace. A stream that was given up reads as ended."""

    def __init__(self, source: IO[bytes], pace: Pace) -> None:
        self._source, self._pace = source, pace
        self._read: Callable[[int], bytes] = getattr(source, "read1", source.read)

    def read(self, n: int = -1) -> bytes:
        try:
            data = self._read(n)
        except (ValueError, OSError):
            return b""
        self._pace.moved()
        return data

    def readline(self, n: int = -1) -> bytes:
        try:
            data = self._source.readline(n)
        except (ValueError, OSError):
            return b""
        self._pace.moved()
        return data
