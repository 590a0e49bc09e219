"""How bytes that arrive become files: read back and compared where they lie, and durable, at the speed of the line.

A small file is written, read back through the same descriptor and compared before the next one. A large one is read
back by a thread that stays right behind the writer, so that its digest is known when its last byte is.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import queue
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.artifacts.digest import CHUNK_BYTES
from outlive.wire.names import sync_directory

FEW = 3
"""Up to so many files are made durable one by one, more of them with their whole file system."""
FLUSH_BYTES = 64 << 20
"""How much of a large file may wait for its disk."""


class Folders:
    """Directories below ``top`` that are real ones: nothing is written through a link."""

    def __init__(self, top: str) -> None:
        self.top = top
        self._real: set[str] = set()

    def above(self, path: str) -> None:
        """Make the directories above ``path``; what is in their way (a link, an older file) goes."""
        below = path.rpartition("/")[0]
        if not below or below in self._real:
            return
        self.above(below)
        full = f"{self.top}/{below}"
        if os.path.islink(full) or (os.path.exists(full) and not os.path.isdir(full)):
            os.unlink(full)
        os.makedirs(full, exist_ok=True)
        self._real.add(below)

    def forget(self) -> None:
        """Look again: something was removed."""
        self._real.clear()


def write_small(full: str, entry: Mapping[str, Any], data: memoryview) -> bool:
    """Write a file whole. Returns whether what can be read there has the entry's digest; if not it is gone again.

    Raises FileExistsError where something has its name, OSError as the disk does; then nothing is left either.
    """
    fd = os.open(full, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    right = False
    try:
        size, at = len(data), 0
        while at < size:
            at += os.write(fd, data[at:])
        right = hashlib.sha256(os.pread(fd, size + 1, 0)).hexdigest() == str(entry["sha256"])
        if right:
            dress(fd, entry)
    finally:
        os.close(fd)
        if not right:
            os.unlink(full)
    return right


def dress(fd: int, entry: Mapping[str, Any]) -> None:
    """Give a file the entry's mode and time."""
    mode = (int(entry.get("mode") or 0o644) & 0o777) | 0o600
    if mode != 0o600:
        os.fchmod(fd, mode)
    if entry.get("mtime_ns"):
        os.utime(fd, ns=(int(entry["mtime_ns"]), int(entry["mtime_ns"])))


def clear(full: str) -> None:
    """Remove what has a name in staging, left by an earlier version of this result."""
    if os.path.isdir(full) and not os.path.islink(full):
        shutil.rmtree(full)
    elif os.path.lexists(full):
        os.unlink(full)


@dataclass
class Arrived:
    """A large file that was read back. ``sha256`` is "" where it could not be read: ``error`` says why."""

    entry: dict[str, Any]
    header: Mapping[str, Any]
    offset: int
    sha256: str = ""
    error: OSError | None = None


class Trail:
    """Reads files back right behind their writer, in a thread of its own. A context manager.

    ``begin`` a part, say how much was ``wrote``, and ``end`` it; then it comes out of ``done``.
    """

    def __init__(self) -> None:
        self._words: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Arrived] = queue.SimpleQueue()
        self._pending = 0
        self._thread: threading.Thread | None = None

    def begin(self, part: Path, offset: int) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._words.put(part)
        if offset:
            self._words.put(offset)

    def wrote(self, count: int) -> None:
        self._words.put(count)

    def end(self, arrived: Arrived) -> None:
        self._pending += 1
        self._words.put(arrived)

    def done(self, wait: bool) -> list[Arrived]:
        """Return what was read back to its end, in order; with ``wait`` all of it."""
        found: list[Arrived] = []
        while self._pending and (wait or not self._done.empty()):
            found.append(self._done.get())
            self._pending -= 1
        return found

    def __enter__(self) -> Trail:
        return self

    def __exit__(self, *about: object) -> None:
        if self._thread is not None:
            self._words.put(None)
            self._thread.join()

    def _run(self) -> None:
        while isinstance(part := self._words.get(), Path):
            arrived, digest, error = self._follow(part)
            if arrived is None:
                return
            arrived.sha256, arrived.error = digest, error
            self._done.put(arrived)

    def _follow(self, part: Path) -> tuple[Arrived | None, str, OSError | None]:
        digest, error, waiting = hashlib.sha256(), None, 0
        buffer = memoryview(bytearray(CHUNK_BYTES))
        fd = -1
        try:
            fd = os.open(part, os.O_RDONLY)
        except OSError as failed:
            error = failed
        try:
            while True:
                word = self._words.get()
                if not isinstance(word, int):
                    break
                waiting += word
                while word and error is None:
                    try:
                        count = os.readv(fd, [buffer[: min(word, CHUNK_BYTES)]])
                        if not count:
                            error = OSError(0, "it became shorter while it was read back")
                            break
                        digest.update(buffer[:count])
                        word -= count
                        if waiting >= FLUSH_BYTES:
                            waiting = 0
                            os.fsync(fd)  # while the rest is on its way
                    except OSError as failed:
                        error = failed
            if isinstance(word, Arrived) and error is None:
                try:
                    os.fsync(fd)
                except OSError as failed:
                    error = failed
        finally:
            if fd >= 0:
                os.close(fd)
        return (word if isinstance(word, Arrived) else None), "" if error else digest.hexdigest(), error


def make_durable(top: str, paths: list[str], few: int = FEW) -> None:
    """Make these files of one file system durable. Raises OSError as the disk does."""
    if len(paths) > few and _sync_file_system(top):
        return
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def sync_names(top: str, folders: set[str]) -> None:
    """Make the names in these directories of one file system durable, where it can."""
    if len(folders) > FEW and _sync_file_system(top):
        return
    for folder in sorted(folders):
        sync_directory(folder)


def _sync_file_system(top: str) -> bool:
    """Return whether everything of a file system is on its disk now; False where that cannot be asked for."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return False
    fd = os.open(top, os.O_RDONLY)
    try:
        if syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), top)
    finally:
        os.close(fd)
    return True
