"""The lock that makes a run's supervisor the only one, and tells others that it lives."""

import errno
import fcntl
import os
import time
from typing import Optional

from outlive.wire.names import RunFiles

BUSY = (errno.EAGAIN, errno.EACCES)


def take(path: str, wait_s: float = 1.0) -> Optional[int]:
    """Take an exclusive lock. Returns the held descriptor, or None when another holds it for longer than ``wait_s``.

    Waiting is needed because whoever asks ``held`` has the lock, shared, for that instant.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError as error:
            if error.errno not in BUSY:
                os.close(fd)
                raise
        if time.monotonic() >= until:
            os.close(fd)
            return None
        time.sleep(0.05)


def held(path: str) -> bool:
    """Return whether somebody holds the exclusive lock right now. Nothing is created."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in BUSY:
            raise
        return True
    finally:
        os.close(fd)
    return False


def lock_run(run: RunFiles) -> Optional[int]:
    """Take the run's supervisor lock. Returns the held descriptor, or None when another supervisor holds it."""
    return take(run.supervisor_lock)


def supervised(run: RunFiles) -> bool:
    """Return whether a supervisor of the run holds its lock right now."""
    return held(run.supervisor_lock)
