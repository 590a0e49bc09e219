"""Ending what an ended attempt left behind."""

import signal
from typing import List, Optional

from outlive.onbox import attempt as attempts
from outlive.wire.clock import boot_s

UNKILLABLE_S = 30.0
"""A process that survives KILL for so long sits in the kernel; waiting for it would hold up the run for ever."""


class Sweep:
    """Ends what an ended attempt left behind: TERM, then KILL after a grace, then it is given up."""

    def __init__(self) -> None:
        self.done_for = 0
        self._of = 0
        self._since_b = 0.0
        self._killed_b: Optional[float] = None

    def tick(self, number: int, pids: List[int], grace_s: float) -> bool:
        """Do what is due now. Returns True when nothing is left, or nothing can be done about it."""
        now = boot_s()
        if not pids:
            self.done_for = number
            return True
        if self._of != number:
            self._of, self._since_b, self._killed_b = number, now, None
            attempts.signal_members(pids, signal.SIGTERM)
        elif now - self._since_b >= grace_s:
            attempts.signal_members(pids, signal.SIGKILL)
            self._killed_b = self._killed_b or now
            if now - self._killed_b > UNKILLABLE_S:
                self.done_for = number
                return True
        return False
