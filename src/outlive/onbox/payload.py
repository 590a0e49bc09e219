"""Secrets and notice addresses that reach a supervisor which lives already: through a named pipe, never a file.

Requests come the same way (``ask``) when the disk has no room for them: a stop must be possible then.

What is in a pipe is in the kernel's memory alone. Nobody is killed to be told something, and what the
supervisor already holds stays: an arriving payload adds to it.
"""

import errno
import json
import os
import time
from typing import Any, Dict, Optional

from outlive.wire.names import RunFiles


def merge(held: Dict[str, Any], new: Dict[str, Any]) -> Dict[str, Any]:
    """Return what is held with the new values over it; what the new one does not mention is kept."""
    merged = dict(held)
    merged.update({k: v for k, v in new.items() if v and k not in ("secrets", "ask")})
    secrets = dict(held.get("secrets") or {})
    secrets.update(new.get("secrets") or {})
    if secrets:
        merged["secrets"] = secrets
    return merged


class PayloadPipe:
    """The supervisor's end. Where the file system has no named pipes, ``read`` never has anything."""

    def __init__(self, run: RunFiles) -> None:
        self._fd = -1
        self._buffer = b""
        try:
            try:
                os.mkfifo(run.payload, 0o600)
            except FileExistsError:
                pass
            self._fd = os.open(run.payload, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def read(self) -> Optional[Dict[str, Any]]:
        """Return a payload that arrived since the last call, or None."""
        if self._fd < 0:
            return None
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                break
            if not data:
                break
            self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        try:
            payload = json.loads(line.decode("ascii"))
        except ValueError:
            return None  # a writer that died half-way
        return payload if isinstance(payload, dict) else None


def deliver(run: RunFiles, payload: Dict[str, Any], wait_s: float = 3.0) -> bool:
    """Hand a payload to the run's living supervisor. Returns whether its pipe took it. Callers hold the start lock."""
    if not payload:
        return False
    until = time.monotonic() + wait_s
    while True:
        try:
            fd = os.open(run.payload, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            # nobody reads yet, or the pipe is not made yet
            if error.errno not in (errno.ENXIO, errno.ENOENT) or time.monotonic() >= until:
                return False
        time.sleep(0.05)
    try:
        os.set_blocking(fd, True)
        view = memoryview(json.dumps(payload, ensure_ascii=True).encode("ascii") + b"\n")
        while view:
            view = view[os.write(fd, view) :]
    except BrokenPipeError:
        return False
    finally:
        os.close(fd)
    return True
