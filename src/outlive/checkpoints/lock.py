"""One writer per directory, and who it is."""

import errno
import fcntl
import json
import os
import socket
import time
from typing import Any, Dict, Optional

from outlive.checkpoints.errors import Locked
from outlive.checkpoints.record import LOCK
from outlive.probes.process import is_alive, machine_identity, start_ticks

FREE = b'{"free": true}\n'
"""Not empty: an empty file in a result looks like one that was cut short."""

WAIT_S = 10.0
"""A training that was just killed may take a while to be gone: its memory has to be given back first."""

BUSY = (errno.EAGAIN, errno.EACCES)
UNABLE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def identity() -> Dict[str, Any]:
    """Return who we are: machine, pid, start ticks, and the host's name for people."""
    return {
        "machine": machine_identity(""),
        "pid": os.getpid(),
        "start_ticks": start_ticks(os.getpid()),
        "host": socket.gethostname(),
        "run": os.environ.get("OUTLIVE_RUN", ""),
    }


def owner(directory: str) -> Optional[Dict[str, Any]]:
    """Return who wrote the lock file last, or None where it says nothing readable."""
    try:
        with open(os.path.join(directory, LOCK), "rb") as handle:
            data = json.loads(handle.read(1 << 16).decode("utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) and not data.get("free") else None


def dead(who: Optional[Dict[str, Any]]) -> bool:
    """Return whether an owner is certainly gone: of this machine, and its process does not run."""
    if not who or who.get("machine") != machine_identity(""):
        return False
    pid, ticks = who.get("pid"), who.get("start_ticks")
    return isinstance(pid, int) and (ticks is None or isinstance(ticks, int)) and not is_alive(pid, ticks)


def describe(who: Optional[Dict[str, Any]]) -> str:
    """Return an owner in words."""
    if not who:
        return "it does not say which"
    text = "process %s on %s" % (who.get("pid"), who.get("host") or "an unnamed host")
    if who.get("pid") == os.getpid() and who.get("machine") == machine_identity(""):
        text = "this same process (pid %d)" % os.getpid()
    return text + (" (run %s)" % who["run"] if who.get("run") else "")


class DirectoryLock:
    """The exclusive hold on a checkpoint directory.

    It ends with its process, however that ends. A child that was forked without exec inherits the hold of a parent
    that died; such a lock, whose owner is provably gone, is replaced.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = os.path.join(directory, LOCK)
        self._fd: Optional[int] = None
        self._pid = 0

    def take(self, wait_s: Optional[float] = None) -> None:
        """Take it. Raises Locked when another process keeps it for longer than ``wait_s`` (WAIT_S where left out)."""
        until = time.monotonic() + (WAIT_S if wait_s is None else wait_s)
        while not self._try():
            if dead(owner(self.directory)):
                self._replace()
                continue
            if time.monotonic() >= until:
                raise Locked(self.directory, describe(owner(self.directory)))
            time.sleep(0.05)
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(identity()).encode("ascii"), 0)
        except OSError:
            pass  # a full disk: the lock holds, it only cannot say whose it is
        self._pid = os.getpid()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _try(self) -> bool:
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in BUSY:
                return False
            if error.errno in UNABLE:
                raise Locked(
                    self.directory,
                    "its file system has no locks (%s); use a local disk, and `durable` for the copy"
                    % (error.strerror or error),
                )
            raise
        try:
            same = os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            same = False
        if not same:  # somebody replaced it between our open and our lock
            os.close(fd)
            return False
        self._fd = fd
        return True

    def _replace(self) -> None:
        """Put a fresh file in the place of one that a dead owner's children hold."""
        guard = os.open(self.path + ".takeover", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            if dead(owner(self.directory)):
                os.unlink(self.path)
        except FileNotFoundError:
            pass
        finally:
            os.close(guard)

    def _forget(self) -> None:
        """In a forked child: it is not the owner."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    @property
    def held(self) -> bool:
        return self._fd is not None

    def release(self) -> None:
        """Give it back; the file stays, and says that nobody holds it."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            if self._pid == os.getpid():
                os.ftruncate(fd, 0)
                os.pwrite(fd, FREE, 0)
        except OSError:
            pass  # a full disk: who looks finds a process that is gone
        finally:
            os.close(fd)
