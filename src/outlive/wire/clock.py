"""The two clocks. Ages are differences of the boot clock of one machine; the wall clock is for people.

Tests replace both with ``set_clock``; nothing else of ours reads ``time`` for a decision.
"""

import time
from typing import Callable, Optional

_boot: Optional[Callable[[], float]] = None
_wall: Optional[Callable[[], float]] = None

_BOOT_ID = getattr(time, "CLOCK_BOOTTIME", None)


def boot_s() -> float:
    """Seconds on this machine's boot clock: it never jumps, and counts sleep where the system can."""
    if _boot is not None:
        return _boot()
    if _BOOT_ID is not None:
        return time.clock_gettime(_BOOT_ID)
    return time.monotonic()


def wall_s() -> float:
    """Seconds since the epoch by the wall clock, which may jump either way."""
    return _wall() if _wall is not None else time.time()


def set_clock(boot: Optional[Callable[[], float]] = None, wall: Optional[Callable[[], float]] = None) -> None:
    """Replace the clocks for a test; call without arguments to put the real ones back."""
    global _boot, _wall
    _boot, _wall = boot, wall
