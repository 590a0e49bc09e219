"""Run commands on this machine: the transport of ``local:`` boxes."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence

from outlive.errors import TimeOver
from outlive.transport import pipes
from outlive.transport.base import Completed
from outlive.transport.streams import ProcessStream, StderrReader


class LocalExec:
    """``Exec`` on this machine. Commands run without a shell, each in a session of its own.

    ``cwd`` is where commands start (default: the home directory, as after a login). ``env`` replaces the environment.
    As on other machines a command that cannot be found ends with 127, one that may not be executed with 126, and a
    death by signal N with 128+N.
    """

    def __init__(self, cwd: str | None = None, env: Mapping[str, str] | None = None, name: str = "local:") -> None:
        self._cwd, self._env, self._name = cwd, env, name

    def _start(self, argv: Sequence[str]) -> pipes.Process | Completed:
        if not argv:
            raise ValueError("an empty argv")
        cwd = self._cwd or os.path.expanduser("~")
        try:
            return pipes.start(
                list(argv), None if self._env is None else dict(self._env), cwd if os.path.isdir(cwd) else "/"
            )
        except (FileNotFoundError, NotADirectoryError):
            return Completed(127, b"", f"{argv[0]}: not found\n".encode("utf-8", "surrogateescape"))
        except PermissionError:
            return Completed(126, b"", f"{argv[0]}: permission denied\n".encode("utf-8", "surrogateescape"))

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """See ``base.Exec.run``."""
        process = self._start(argv)
        if isinstance(process, Completed):
            return process
        out, err = bytearray(), bytearray()
        deadline = time.monotonic() + timeout_s
        killed = True
        try:
            ended = pipes.drive(process, stdin, lambda: deadline, out.extend, err.extend)
            killed = ended.returncode is None
        finally:
            if killed:
                pipes.end(process)
            else:
                pipes.close(process)
        if ended.returncode is None:
            raise TimeOver(f"`{_shown(argv)}` was not done after {timeout_s:g} s; it was killed", after_s=timeout_s)
        return Completed(_status(ended.returncode), bytes(out), bytes(err))

    def stream(self, argv: Sequence[str]) -> ProcessStream:
        """See ``base.Exec.stream``."""
        process = self._start(argv)
        if isinstance(process, Completed):
            # The error must come from finish(), as it does from far away.
            failed = process
            process = pipes.start(
                ["sh", "-c", 'printf %s "$1" >&2; exit "$2"', "sh", failed.stderr.decode(), str(failed.returncode)]
            )
        errors = StderrReader(process)
        return ProcessStream(
            process, _shown(argv), lambda rc, rest: Completed(_status(rc), rest, errors.text()), errors=errors
        )

    def prove_fresh(self, timeout_s: float = 20.0) -> None:
        """See ``base.Exec.prove_fresh``. This machine is always here."""
        self.run(["true"], timeout_s=timeout_s)

    def describe(self) -> str:
        """See ``base.Exec.describe``."""
        return self._name

    def close(self) -> None:
        """See ``base.Exec.close``. Nothing stays open between commands."""


def _status(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


def _shown(argv: Sequence[str]) -> str:
    text = shlex.join(argv)
    return text if len(text) <= 80 else text[:77] + "..."
