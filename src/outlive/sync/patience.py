"""How often a cut transfer is taken up again: as long as it gains, and a bounded number of times where it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from outlive import errors

GAIN_BYTES = 64 * 1024
"""What counts as gain; less could keep a hopeless line busy for ever."""

Progress = Callable[[int, int, str], None]
"""progress(done_bytes, total_bytes, path of the file now moving)"""


@dataclass
class Patience:
    """``retries`` tries in a row without gain, ``first_wait_s`` doubled each time up to ``longest_wait_s``."""

    retries: int = 6
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    stall_s: float = 60.0
    """No byte for so long is a cut."""
    wait: Callable[[float], None] = time.sleep
    _tries: int = 0
    _best: int = -1
    cuts: int = 0
    """How often the transfer was cut so far."""

    def cut(self, error: errors.OutliveError, gained_bytes: int) -> None:
        """Take note of a cut and wait. ``gained_bytes`` is all that the far end holds. Raises ``error`` at the end."""
        if not isinstance(error, (errors.Unreachable, errors.TimeOver)):
            raise error
        self.cuts += 1
        if gained_bytes >= self._best + GAIN_BYTES:
            self._best, self._tries = gained_bytes, 0
        self._tries += 1
        if self._tries > self.retries:
            error.safe = error.safe or "What arrived is kept; the same command continues there."
            raise error
        self.wait(min(self.longest_wait_s, self.first_wait_s * 2.0 ** (self._tries - 1)))
