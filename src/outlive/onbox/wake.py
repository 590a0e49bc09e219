"""The supervisor's sleep between two rounds, which ends early when the work does.

Where the kernel tells (Linux 5.3 and Python 3.9 or newer) a dead work is met at once and not at the next round;
elsewhere a round is soon enough.
"""

import os
import select
import time
from typing import Any, Optional

from outlive.probes.process import is_alive
from outlive.wire.clock import boot_s

FRESH_S = 3.0
"""For so long after the work's end its record is waited for in short rounds."""


class Wake:
    """Watches one process at a time. ``sleep`` is `time.sleep` that knows about it."""

    def __init__(self) -> None:
        self.watched: Optional[int] = None
        """Number of the attempt whose work is watched, or was tried to be."""
        self.ended_b: Optional[float] = None
        self._fd = -1

    def watch(self, number: int, pid: int, ticks: Optional[int]) -> None:
        """Watch the work of attempt ``number`` from now on."""
        self.forget()
        self.watched = number
        try:
            self._fd = _open(pid)
        except (AttributeError, OSError):
            return  # no such call here, or it is gone already: the rounds will see
        if not is_alive(pid, ticks):
            self._ended()  # the number may be another's by now

    def forget(self) -> None:
        """Watch nothing."""
        self.watched = self.ended_b = None
        self._close()

    @property
    def fresh(self) -> bool:
        """Whether the watched work ended a moment ago."""
        return self.ended_b is not None and boot_s() < self.ended_b + FRESH_S

    def sleep(self, seconds: float) -> None:
        if self._fd < 0:
            time.sleep(seconds)
        elif select.select([self._fd], [], [], seconds)[0]:
            self._ended()

    def _ended(self) -> None:
        self.ended_b = boot_s()
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(pid: int) -> int:
    call: Any = getattr(os, "pidfd_open")  # noqa: B009 - not on every Python and system that this runs on
    return int(call(pid))
