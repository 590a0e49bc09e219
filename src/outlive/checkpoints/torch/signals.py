"""A signal from the platform becomes one flush at the next step; the handler itself only notes the time."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Dict, Iterable, Optional


class Signals:
    """Notes SIGTERM and SIGUSR1. What stood there before is called or restored afterwards."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self.number = 0
        self.at_s: Optional[float] = None
        self.installed = False
        self._before: Dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                self._before[number] = signal.signal(number, self._note)
            self.installed = True

    def _note(self, number: int, _frame: Optional[FrameType]) -> None:
        if self.at_s is None or number == signal.SIGTERM:
            self.number, self.at_s = number, time.monotonic()

    def take(self) -> int:
        """Return the signal that came since the last call, 0 for none."""
        number, self.number, self.at_s = self.number, 0, None
        return number

    def pass_on(self, number: int) -> None:
        """Do what the signal would have done without us: a handler of the program's, or its default."""
        before = self._before.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, None)
        elif before == signal.SIG_DFL and number == signal.SIGTERM:
            self.close()
            os.kill(os.getpid(), number)
            time.sleep(60)  # it is delivered to this thread before the sleep ends

    def close(self) -> None:
        """Put back what stood there before, unless somebody changed it meanwhile."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, before)
        self._before = {}
