"""The lock that makes a run's supervisor the only one, and tells others that it lives."""

import errno
import fcntl
import os
from typing import Optional

from outlive.wire.names import RunFiles


def lock_run(run: RunFiles) -> Optional[int]:
    """Take the run's supervisor lock. Returns the held descriptor, or None when another holds it."""
    fd = os.open(run.supervisor_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return fd


def supervised(run: RunFiles) -> bool:
    """Return whether a supervisor of the run holds its lock right now."""
    if not os.path.exists(run.dir):
        return False
    fd = lock_run(run)
    if fd is None:
        return True
    os.close(fd)
    return False
