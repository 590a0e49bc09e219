"""Drive one child process through its pipes with a deadline. Both executors of this package stand on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Protocol

CHUNK_BYTES = 256 * 1024
WIDE_BYTES = 1024 * 1024
QUIET_S = 0.2
"""How long outputs that somebody else still holds open are read after the process has ended."""


class Process(Protocol):
    """What is driven: a ``subprocess.Popen[bytes]``, or something with its face (``mux.MuxProcess``)."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Ended:
    """How driving ended: ``returncode`` None means that the process still runs (deadline, or ``enough``)."""

    returncode: int | None
    late: bool = False


def drive(
    process: Process,
    stdin: bytes,
    deadline: Callable[[], float],
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    enough: Callable[[], bool] = lambda: False,
) -> Ended:
    """Write ``stdin``, hand on both outputs as they come, and return when the process has ended and its outputs too.

    ``deadline`` gives the moment (``time.monotonic``; real sockets know no test clock) at which to give up, and may
    change while driving. ``enough`` ends early. A grandchild that keeps the pipes open does not hold us: after the
    process's end we read until nothing came for QUIET_S. Leaves the process to the caller (``end``).
    """
    assert process.stdin and process.stdout and process.stderr
    pending = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for pipe, sink in ((process.stdout, on_stdout), (process.stderr, on_stderr)):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, sink)
        if pending:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, None)
        else:
            process.stdin.close()
        open_outputs, last_s = 2, time.monotonic()
        while open_outputs and not enough():
            now = time.monotonic()
            left = deadline() - now
            if left <= 0:
                return Ended(None, late=True)
            events = selector.select(min(left, 0.1))
            if events:
                last_s = time.monotonic()
            elif process.poll() is not None and now - last_s >= QUIET_S:
                break
            for key, _ in events:
                if key.data is None:
                    try:
                        pending = pending[os.write(key.fd, pending[:CHUNK_BYTES]) :]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        pending = pending[:0]  # the command does not want the rest; its status will say
                    if not pending:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                try:
                    data = os.read(key.fd, CHUNK_BYTES)
                except BlockingIOError:
                    continue
                if data:
                    key.data(data)
                else:
                    selector.unregister(key.fileobj)
                    open_outputs -= 1
    if enough():
        return Ended(None)
    try:
        return Ended(process.wait(max(0.0, deadline() - time.monotonic())))
    except subprocess.TimeoutExpired:
        return Ended(None, late=True)


def end(process: Process, grace_s: float = 0.0) -> None:
    """Kill the process and its session unless it ends by itself within ``grace_s``, reap it, close its pipes."""
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        try:
            if isinstance(process, subprocess.Popen):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        except (ProcessLookupError, PermissionError):
            process.kill()
        process.wait()
    close(process)


def close(process: Process) -> None:
    """Close our ends of the pipes; what still runs in its session goes on."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            try:
                pipe.close()
            except OSError:
                pass  # unwritten bytes for a reader that is gone


def widen(pipe: IO[bytes]) -> None:
    """Let a pipe hold more, so that its two ends wake each other less often. No error where it cannot."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, WIDE_BYTES)


def start(argv: list[str], env: dict[str, str] | None = None, cwd: str | None = None) -> subprocess.Popen[bytes]:
    """Start ``argv`` in its own session with three unbuffered pipes."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True, env=env, cwd=cwd
    )
