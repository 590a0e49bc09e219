"""The open-ended command: a ``Stream`` over a child process, framed (ssh) or plain (this machine)."""

from __future__ import annotations

import io
import os
import threading
import types
from collections.abc import Callable
from typing import IO, cast

from outlive.errors import TimeOver
from outlive.transport import pipes
from outlive.transport.base import Completed
from outlive.transport.framing import Peel

STDERR_MAX_BYTES = 1024 * 1024
"""Of a stream's standard error the last part is kept, so that a talkative command cannot fill our memory."""


class _After(io.RawIOBase):
    """Bytes that were read already, then the pipe."""

    def __init__(self, first: bytes, pipe: IO[bytes]) -> None:
        self._first = memoryview(first)
        self._pipe = pipe

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        if self._first:
            count = min(len(view), len(self._first))
            view[:count] = self._first[:count]
            self._first = self._first[count:]
            return count
        return os.readv(self._pipe.fileno(), [view])


class ProcessStream:
    """``Stream`` over ``process``.

    ``first`` are bytes of its stdout that were read before. ``on_stderr`` gets standard error from a thread.
    ``ending`` turns (returncode, rest of stdout) into a Completed or raises; it is called once, by ``finish``.
    """

    def __init__(
        self,
        process: pipes.Process,
        what: str,
        ending: Callable[[int, bytes], Completed],
        *,
        first: bytes = b"",
        errors: StderrReader,
    ) -> None:
        assert process.stdin and process.stdout
        self._process, self._what, self._ending, self._errors = process, what, ending, errors
        self._ended_with = 0
        os.set_blocking(process.stdout.fileno(), True)
        pipes.widen(process.stdout)
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = cast(IO[bytes], io.BufferedReader(_After(first, process.stdout), pipes.CHUNK_BYTES))

    def finish(self, timeout_s: float) -> Completed:
        """See ``base.Stream.finish``."""
        rest = bytearray()

        def drain() -> None:
            try:
                self.stdin.close()
            except OSError:
                pass  # the command closed its end first; its status tells
            while data := self.stdout.read(pipes.CHUNK_BYTES):
                rest.extend(data)
            self._ended_with = self._process.wait()
            self._errors.join(pipes.QUIET_S * 5)

        worker = threading.Thread(target=drain, daemon=True)
        worker.start()
        worker.join(timeout_s)
        if worker.is_alive():
            pipes.end(self._process)
            worker.join(1.0)
            raise TimeOver(f"`{self._what}` was not done after {timeout_s:g} s", after_s=timeout_s)
        return self._ending(self._ended_with, bytes(rest))

    def close(self) -> None:
        """Kill what is left of it locally."""
        pipes.end(self._process)
        self._errors.join(1.0)

    def __enter__(self) -> ProcessStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()


class StderrReader(threading.Thread):
    """Reads a process's standard error to its end: into a Peel if one is given, else plain."""

    def __init__(self, process: pipes.Process, peel: Peel | None = None) -> None:
        super().__init__(daemon=True)
        assert process.stderr
        self._pipe, self._peel, self._plain = process.stderr, peel, bytearray()
        self.start()

    def run(self) -> None:
        try:
            while data := os.read(self._pipe.fileno(), 65536):
                if self._peel is not None:
                    self._peel.feed(data)
                else:
                    self._plain += data
                    del self._plain[:-STDERR_MAX_BYTES]
        except (OSError, ValueError):
            pass  # closed under us by the end of the stream

    def text(self) -> bytes:
        """Return what was read so far (with a Peel: the command's own part)."""
        return bytes(self._peel.body if self._peel is not None else self._plain)
