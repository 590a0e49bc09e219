"""The contract of a transport: two protocols, ``Exec`` and ``Files``.

What a caller may rely on, and every implementation must pass (``outlive.testing.transport``):

* **Words stay words.** ``argv`` reaches the program exactly: spaces, quotes, newlines, leading
  dashes, ``$``, backslashes, Chinese. Nothing is looked up in a shell that the caller did not name.
* **Secrets never travel in ``argv``.** Implementations may log argv; they never log stdin.
* **A connection that dies is never a status.** ``run`` returns a ``Completed`` only when the far end
  reported how the command ended; otherwise it raises ``Unreachable``. The command may then have
  run, be running or never have started: callers make what they send repeatable.
* **Every wait has an end.** ``run`` raises ``TimeOver`` after ``timeout_s`` and has then killed its local
  half; the far half may live on.
* **Bytes are bytes.** stdout and stderr are separate, unchanged and complete up to the end of the command.
* **No terminal, no prompt.** Nothing here asks a question; a missing key or unknown host is an error.
* ``close`` may be called twice and ends only connections that this object opened.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Protocol


@dataclass(frozen=True)
class Completed:
    """How a command ended, by the far end's own word."""

    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class FileStat:
    """Size in bytes, mode bits and modification time (far clock, ns) of a regular file or directory."""

    bytes: int
    mode: int
    mtime_ns: int
    is_dir: bool


class Stream(Protocol):
    """A running command with open ends. Leaving the context kills what is left of it locally."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def finish(self, timeout_s: float) -> Completed:
        """Close stdin, drain the rest and return how it ended. Raises like ``Exec.run``."""
        ...

    def __enter__(self) -> Stream: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None: ...


class Exec(Protocol):
    """Run commands on a box."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """Run ``argv`` to its end with ``stdin`` and return how it ended.

        Raises Unreachable (exit 4) when the connection fails or dies, TimeOver (7) when the time is up.
        """
        ...

    def stream(self, argv: Sequence[str]) -> Stream:
        """Start ``argv`` with pipes at both ends, for bytes that do not fit in memory."""
        ...

    def prove_fresh(self, timeout_s: float = 20.0) -> None:
        """Authenticate anew, past any shared connection, and run a no-op.

        Returns when a fresh login works. Raises LoginRefused when the far end answers but no longer
        accepts us (finding ``login_lost`` if a shared connection still lives), Unreachable otherwise.
        """
        ...

    def describe(self) -> str:
        """Return the address as the user would type it."""
        ...

    def close(self) -> None:
        """End what this object opened."""
        ...


class Files(Protocol):
    """Read and write whole files and parts of them on a box or a mounted place."""

    def stat(self, path: str) -> FileStat | None:
        """Return the file's stat following links, or None when there is none."""
        ...

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        """Return bytes from ``start``; short at the end of the file. Raises FileNotFoundError."""
        ...

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Publish ``data`` under ``path``: written aside in the same directory, then renamed.

        Missing parents are made. A reader sees the old file or the whole new one.
        """
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises FileNotFoundError."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file; no error when there is none. Never a directory."""
        ...
