"""One save at a time beside the training; what goes wrong there is raised at the training's next call."""

import threading
from typing import Callable, Optional


class Writer:
    """Runs at most one job in a thread of its own. A job is never lost at exit: the interpreter waits for it."""

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether the last job raised something that nobody has seen yet."""
        return self._error is not None

    def submit(self, job: Callable[[], None]) -> None:
        """Start ``job``; wait first for the one before. Raises what that one raised."""
        self.wait()

        def run() -> None:
            try:
                job()
            except BaseException as error:  # the thread's outer edge: it is raised again where somebody sees it
                self._error = error

        # not a daemon: a program that ends without close() still commits what is in flight
        self._thread = threading.Thread(target=run, name="outlive-checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when nothing is in flight. Raises what the last job raised, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def check(self) -> None:
        """Raise what a finished job raised, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error
