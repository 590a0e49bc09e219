"""The commands that the scheduler twins understand, on a clock of their own.

``["sh", "-c", LINE]`` or a string ``LINE`` of commands joined by ``;``: ``echo WORDS``, ``echo WORDS > FILE``,
``sleep N``, ``exit N``, ``kill -9 $$``, and ``test -n "$NAME" || exit N``. Everything else is a ValueError when it is
met.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

TEST = re.compile(r'test -n "\$(\w+)" \|\| exit (\d+)')


class MemoryWork:
    """One process of a twin. ``advance`` lets time pass for it; ``code`` is its status once it has ended, else None."""

    def __init__(self, run: str | Sequence[str], env: Mapping[str, str], files: dict[str, bytes]) -> None:
        words = ["sh", "-c", run] if isinstance(run, str) else list(run)
        if words[:2] != ["sh", "-c"] or len(words) != 3:
            raise ValueError(f"the twin runs `sh -c LINE` only, not {shlex.join(words)}")
        self._steps = [step.strip() for step in words[2].split(";") if step.strip()]
        self._env, self._files = env, files
        self._sleep_s = 0.0
        self.code: int | None = None
        self.signal: int | None = None

    def advance(self, seconds: float) -> bytes:
        """Let ``seconds`` pass and return what it wrote meanwhile."""
        out, left_s = b"", seconds
        while self.code is None:
            if self._sleep_s > left_s:
                self._sleep_s -= left_s
                break
            left_s, self._sleep_s = left_s - self._sleep_s, 0.0
            if not self._steps:
                self.code = 0
                break
            out += self._step(self._steps.pop(0))
        return out

    def end(self, signal: int) -> None:
        """End it by a signal."""
        if self.code is None:
            self.code, self.signal = 128 + signal, signal

    def _step(self, step: str) -> bytes:
        tested = TEST.fullmatch(step)
        if tested:
            self.code = None if self._env.get(tested[1]) else int(tested[2])
            return b""
        words = shlex.split(step)
        if words[0] == "echo" and len(words) > 2 and words[-2] == ">":
            self._files[words[-1]] = " ".join(words[1:-2]).encode() + b"\n"
        elif words[0] == "echo":
            return " ".join(words[1:]).encode() + b"\n"
        elif words[0] == "sleep":
            self._sleep_s = float(words[1])
        elif words[0] == "exit":
            self.code = int(words[1])
        elif words == ["kill", "-9", "$$"]:
            self.end(9)
        else:
            raise ValueError(f"the twin does not know {step!r}")
        return b""
