"""The in-memory twin of a box: an ``Exec`` that understands a handful of commands, and ``Files`` in a dictionary.

``MemoryExec`` runs ``true``, ``false``, ``cat``, ``sleep N``, ``printf FORMAT WORDS...`` (``%s`` and backslash
escapes), and ``sh -c`` with a list of ``echo WORDS``, ``exit N``, ``sleep N``, ``kill -9 $$`` joined by ``;``, with
``>&2`` and a final ``&``. ``programs`` adds more. It sleeps no real time unless a test's limit must be met. Faults:
``box.cut`` (every connection is dead), ``box.login_refused`` (fresh logins fail, as when keys were removed).
"""

from __future__ import annotations

import io
import re
import shlex
import threading
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO

from outlive.errors import LoginRefused, TimeOver, Unreachable
from outlive.transport.base import Completed, FileStat

Program = Callable[[Sequence[str], bytes], Completed]
"""A program of the twin: argv and stdin to how it ended."""


@dataclass
class _File:
    data: bytes
    mode: int
    mtime_ns: int


@dataclass
class MemoryBox:
    """What both twins share: files, further programs by name, and faults that a test switches on."""

    name: str = "memory"
    files: dict[str, _File] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    cut: bool = False
    login_refused: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)


class MemoryExec:
    """``Exec`` over a MemoryBox."""

    def __init__(self, box: MemoryBox | None = None) -> None:
        self.box = box or MemoryBox()

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """See ``base.Exec.run``. A sleep longer than the time left raises TimeOver at once."""
        if self.box.cut:
            raise Unreachable(f"{self.box.name} did not answer", place=self.box.name)
        if not argv:
            raise ValueError("an empty argv")
        self.box.calls.append(tuple(argv))
        done, slept_s = _run(self.box, argv, stdin)
        if slept_s > timeout_s:
            raise TimeOver(f"`{shlex.join(argv)}` was not done after {timeout_s:g} s", after_s=timeout_s)
        return done

    def stream(self, argv: Sequence[str]) -> MemoryStream:
        """See ``base.Exec.stream``. ``cat`` answers as it is written to; others at ``finish``."""
        if self.box.cut:
            raise Unreachable(f"{self.box.name} did not answer", place=self.box.name)
        self.box.calls.append(tuple(argv))
        return MemoryStream(self, argv)

    def prove_fresh(self, timeout_s: float = 20.0) -> None:
        """See ``base.Exec.prove_fresh``."""
        if self.box.cut:
            raise Unreachable(f"{self.box.name} did not answer", place=self.box.name)
        if self.box.login_refused:
            refused = LoginRefused(f"{self.box.name} no longer accepts our key", place=self.box.name)
            refused.login_lost = True
            raise refused

    def describe(self) -> str:
        """See ``base.Exec.describe``."""
        return self.box.name

    def close(self) -> None:
        """See ``base.Exec.close``."""


class _Feed(io.RawIOBase):
    """A pipe in memory: written at one end, read at the other, ended by closing."""

    def __init__(self) -> None:
        super().__init__()
        self._data, self._ended, self._changed = bytearray(), False, threading.Condition()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        chunk = bytes(memoryview(data))  # type: ignore[arg-type]
        with self._changed:
            self._data += chunk
            self._changed.notify_all()
        return len(chunk)

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        with self._changed:
            while not self._data and not self._ended:
                self._changed.wait()
            count = min(len(view), len(self._data))
            view[:count] = self._data[:count]
            del self._data[:count]
            return count

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class MemoryStream:
    """``Stream`` over a MemoryExec."""

    def __init__(self, exec: MemoryExec, argv: Sequence[str]) -> None:
        self._exec, self._argv = exec, argv
        self._in, self._out = _Feed(), _Feed()
        self._echo = list(argv) == ["cat"]
        self.stdin: IO[bytes] = self._out if self._echo else self._in  # type: ignore[assignment]
        self.stdout: IO[bytes] = io.BufferedReader(self._out)

    def finish(self, timeout_s: float) -> Completed:
        """See ``base.Stream.finish``."""
        self._in.end()
        self._out.end()
        if self._exec.box.cut:
            raise Unreachable(f"the connection to {self._exec.box.name} was lost", place=self._exec.box.name)
        if self._echo:
            return Completed(0, self.stdout.read(), b"")
        sent = self._in.read() or b""
        self._exec.box.calls.pop()
        return self._exec.run(self._argv, stdin=sent, timeout_s=timeout_s)

    def __enter__(self) -> MemoryStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._in.end()
        self._out.end()


class MemoryFiles:
    """``Files`` over a MemoryBox. Directories exist while they hold a file, or once held one."""

    def __init__(self, box: MemoryBox | None = None) -> None:
        self.box = box or MemoryBox()
        self._directories: set[str] = {"/"}

    def stat(self, path: str) -> FileStat | None:
        """See ``base.Files.stat``."""
        self._reach()
        if self._is_dir(path):
            return FileStat(0, 0o700, time.time_ns(), True)
        found = self.box.files.get(path)
        return FileStat(len(found.data), found.mode, found.mtime_ns, False) if found else None

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        """See ``base.Files.read``."""
        self._reach()
        if self._is_dir(path):
            raise IsADirectoryError(21, "is a directory", path)
        if path not in self.box.files:
            raise FileNotFoundError(2, "no such file or directory", path)
        return self.box.files[path].data[start : None if limit is None else start + limit]

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """See ``base.Files.write``."""
        self._reach()
        if self._is_dir(path):
            raise IsADirectoryError(21, "is a directory", path)
        parent = path.rpartition("/")[0]
        while parent:
            if parent in self.box.files:
                raise NotADirectoryError(20, "not a directory", parent)
            self._directories.add(parent)
            parent = parent.rpartition("/")[0]
        self.box.files[path] = _File(bytes(data), mode, time.time_ns())

    def list(self, path: str) -> list[str]:
        """See ``base.Files.list``."""
        self._reach()
        if not self._is_dir(path):
            raise FileNotFoundError(2, "no such file or directory", path)
        start = path.rstrip("/") + "/"
        every = [*self.box.files, *self._directories]
        return sorted({p[len(start) :].split("/", 1)[0] for p in every if p.startswith(start) and p != start})

    def remove(self, path: str) -> None:
        """See ``base.Files.remove``."""
        self._reach()
        if self._is_dir(path):
            raise IsADirectoryError(21, "is a directory", path)
        self.box.files.pop(path, None)

    def _is_dir(self, path: str) -> bool:
        start = path.rstrip("/") + "/"
        return path in self._directories or any(p.startswith(start) for p in self.box.files)

    def _reach(self) -> None:
        if self.box.cut:
            raise Unreachable(f"{self.box.name} did not answer", place=self.box.name)


def _run(box: MemoryBox, argv: Sequence[str], stdin: bytes) -> tuple[Completed, float]:
    """Return how ``argv`` ends and how many seconds it would sleep."""
    name, rest = argv[0], list(argv[1:])
    if name in box.programs:
        return box.programs[name](argv, stdin), 0.0
    if name in ("true", "false"):
        return Completed(int(name == "false"), b"", b""), 0.0
    if name == "cat" and not rest:
        return Completed(0, stdin, b""), 0.0
    if name == "sleep":
        return Completed(0, b"", b""), float(rest[0])
    if name == "printf":
        return Completed(0, _printf(rest[0], rest[1:]), b""), 0.0
    if name == "sh" and rest[:1] == ["-c"]:
        return _script(rest[1])
    return Completed(127, b"", f"{name}: not found\n".encode()), 0.0


def _printf(text: str, words: Sequence[str]) -> bytes:
    shape = re.sub(r"\\(n|0|t|\\)", lambda m: {"n": "\n", "0": "\0", "t": "\t", "\\": "\\"}[m[1]], text)
    out, queue = "", list(words)
    while True:
        out += re.sub("%s", lambda _: queue.pop(0) if queue else "", shape)
        if not queue or "%s" not in shape:
            return out.encode("utf-8", "surrogateescape")


def _script(text: str) -> tuple[Completed, float]:
    out, err, slept_s = b"", b"", 0.0
    for part in re.split(r"\s*;\s*", re.sub(r"&(?!\d)(?<!>&)\s*", "& ;", text)):
        background, to_err = part.endswith("& ") or part.endswith("&"), ">&2" in part
        words = shlex.split(part.replace(">&2", "").rstrip("& "))
        if not words or background:
            continue
        if words[0] == "echo":
            line = " ".join(words[1:]).encode() + b"\n"
            out, err = (out, err + line) if to_err else (out + line, err)
        elif words[0] == "sleep":
            slept_s += float(words[1])
        elif words[0] == "exit":
            return Completed(int(words[1]), out, err), slept_s
        elif words[:2] == ["kill", "-9"]:
            return Completed(137, out, err), slept_s
        else:
            raise ValueError(f"the in-memory twin does not know {words[0]!r} in `sh -c`; give it a program instead")
    return Completed(0, out, err), slept_s
