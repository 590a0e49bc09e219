"""One save: files written aside and digested on the way, then published by one rename."""

import errno
import hashlib
import os
import queue
import random
import shutil
import threading
from typing import Any, Dict, Iterable, List, Optional

from outlive.artifacts.digest import digest_file
from outlive.checkpoints.errors import CheckpointError, NoRoom
from outlive.checkpoints.record import RECORD, FileEntry, Record, inside
from outlive.checkpoints.room import room

WRITING = ".writing-"
REMOVING = ".removing-"
ASIDE = ".bad-"
NAME = "step-%09d"

OVERLAP_BYTES = 1 << 18
"""Pieces of at least this size are digested by a second thread while the first one writes them."""

WRITEBACK_BYTES = 32 << 20
"""The disk is set to work after so many bytes, so that the fsync at the end finds little left to do."""

FULL = (errno.ENOSPC, errno.EDQUOT)


def token() -> str:
    """Return eight random letters for a name that nobody else takes."""
    rng = random.SystemRandom()
    return "".join(rng.choice("abcdefghijkmnopqrstuvwxyz") for _ in range(8))


class DigestWriter:
    """A file that is written once from its start to its end, digested meanwhile, and fsynced by ``close``.

    Takes anything that offers its bytes (bytes, memoryview, array). It cannot seek: torch.save, safetensors and
    json do not need it. After an error nothing of it counts; ``failed`` says why.
    """

    def __init__(self, path: str, name: str, sync: bool = True) -> None:
        self.path = path
        self.name = name
        self.bytes = 0
        self.failed: Optional[BaseException] = None
        self.closed = False
        self._sync = sync
        self._digest = hashlib.sha256()
        self._kicked = 0
        self._entry: Optional[FileEntry] = None
        self._work: Optional["queue.Queue[Optional[memoryview]]"] = None
        self._idle: Optional["queue.Queue[bool]"] = None
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o644)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Nothing is kept back."""

    def write(self, data: Any) -> int:
        """Write all of ``data`` and return its size in bytes. Raises NoRoom when the disk is full."""
        if self.closed or self.failed is not None:
            raise ValueError("%s is closed" % self.path)
        with memoryview(data) as given:
            view = given if given.format == "B" and given.ndim == 1 else given.cast("B")
            size = view.nbytes
            apart = size >= OVERLAP_BYTES
            try:
                if apart:
                    self._hasher().put(view)
                else:
                    self._digest.update(view)
                try:
                    self._write(view)
                finally:
                    if apart:
                        assert self._idle is not None
                        self._idle.get()  # the caller may change its buffer as soon as we return
            except OSError as error:
                raise self._fail(error)
            finally:
                if view is not given:
                    view.release()
        self.bytes += size
        if self.bytes - self._kicked >= WRITEBACK_BYTES:
            self._kick()
        return size

    def _write(self, view: memoryview) -> None:
        done = 0
        while done < view.nbytes:
            done += os.write(self._fd, view[done:])

    def _fail(self, error: OSError) -> BaseException:
        self.failed = error
        if error.errno in FULL:
            self.failed = full_disk(self.path, self.name, self.bytes)
        self._end()
        return self.failed

    def _kick(self) -> None:
        if hasattr(os, "posix_fadvise"):
            try:
                os.posix_fadvise(self._fd, self._kicked, self.bytes - self._kicked, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass  # a hint; the fsync is what counts
        self._kicked = self.bytes

    def _hasher(self) -> "queue.Queue[Optional[memoryview]]":
        if self._work is None:
            work: "queue.Queue[Optional[memoryview]]" = queue.Queue()
            idle: "queue.Queue[bool]" = queue.Queue()
            digest = self._digest

            def loop() -> None:
                while True:
                    view = work.get()
                    if view is None:
                        return
                    digest.update(view)
                    del view
                    idle.put(True)

            threading.Thread(target=loop, name="outlive-digest", daemon=True).start()
            self._work, self._idle = work, idle
        return self._work

    def _end(self) -> None:
        if self._work is not None:
            self._work.put(None)
            self._work = None
        if not self.closed:
            self.closed = True
            os.close(self._fd)

    def close(self) -> None:
        """Make the bytes durable. Raises NoRoom or OSError when they are not."""
        if self.closed:
            return
        try:
            if self._sync:
                os.fsync(self._fd)
        except OSError as error:
            raise self._fail(error)
        self._end()
        self._entry = FileEntry(self.name, self.bytes, self._digest.hexdigest())

    def abort(self) -> None:
        """Close without believing anything."""
        if not self.closed:
            self.failed = self.failed or ValueError("abandoned")
            self._end()

    @property
    def entry(self) -> FileEntry:
        """The file as the record lists it. Raises CheckpointError before ``close`` or after a failure."""
        if self._entry is None:
            raise CheckpointError(
                "%s was not written whole: %s" % (self.path, self.failed or "it is still open"),
                "The checkpoints that were there are untouched.",
            )
        return self._entry

    def __enter__(self) -> "DigestWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()
        else:
            self.abort()


def full_disk(path: str, name: str, written: int) -> NoRoom:
    """Return the error for a disk that became full while ``name`` was written."""
    try:
        free = room(os.path.dirname(path))
    except OSError:
        return NoRoom(os.path.dirname(path), "bytes", 0, None, during=name)
    if free.files is not None and free.files == 0:
        return NoRoom(os.path.dirname(path), "inodes", 0, 0, during=name)
    return NoRoom(os.path.dirname(path), "bytes", 0, free.bytes, during="%s (at byte %d)" % (name, written))


class Writing:
    """One save under way. What is not published by ``Store.publish`` never counts."""

    def __init__(self, path: str, step: int = 0, sync: bool = True) -> None:
        self.path = path
        self.step = step
        self.sync = sync
        self._files: Dict[str, FileEntry] = {}
        self._open: List[DigestWriter] = []
        self._lock = threading.Lock()

    @classmethod
    def create(cls, directory: str, step: int, sync: bool = True) -> "Writing":
        """Begin a save in ``directory``. Raises NoRoom or OSError."""
        path = os.path.join(directory, WRITING + token())
        try:
            os.mkdir(path)
        except OSError as error:
            if error.errno in FULL:
                raise full_disk(path, "a new directory", 0)
            raise
        return cls(path, step, sync)

    @classmethod
    def join(cls, path: str) -> "Writing":
        """Take part, in another process, in the save that rank 0 began at ``path``. Send ``files`` to rank 0."""
        if not os.path.basename(path).startswith(WRITING) or not os.path.isdir(path):
            raise CheckpointError("%s is not a save that is under way" % path, "Nothing was written.")
        return cls(path)

    @property
    def files(self) -> List[FileEntry]:
        """What is written whole so far. Raises CheckpointError while a file is open or after one failed."""
        self._settle()
        return sorted(self._files.values())

    def open(self, name: str) -> DigestWriter:
        """Open a new file of the checkpoint; ``name`` may have folders. Raises NoRoom, OSError."""
        if not inside(name) or name == RECORD:
            raise ValueError("not a name inside a checkpoint: %r" % name)
        full = os.path.join(self.path, name)
        try:
            if "/" in name:
                os.makedirs(os.path.dirname(full), exist_ok=True)
            writer = DigestWriter(full, name, self.sync)
        except OSError as error:
            if error.errno in FULL:
                raise full_disk(full, name, 0)
            raise
        with self._lock:
            self._open.append(writer)
        return writer

    def add_bytes(self, name: str, data: Any) -> FileEntry:
        """Write one file whole."""
        with self.open(name) as writer:
            writer.write(data)
        return writer.entry

    def adopt(self, name: str) -> FileEntry:
        """Take in a file that somebody else wrote into ``path``: it is digested and fsynced here."""
        if not inside(name) or name == RECORD:
            raise ValueError("not a name inside a checkpoint: %r" % name)
        full = os.path.join(self.path, name)
        if self.sync:
            sync_path(full)
        sha256, size = digest_file(full)
        entry = FileEntry(name, size, sha256)
        self.include([entry])
        return entry

    def adopt_all(self) -> List[FileEntry]:
        """Take in every file in ``path`` that is not listed yet, sorted by name."""
        self._settle()
        found: List[FileEntry] = []
        for folder, dirs, names in os.walk(self.path):
            dirs.sort()
            for file in sorted(names):
                name = os.path.relpath(os.path.join(folder, file), self.path).replace(os.sep, "/")
                if name not in self._files and name != RECORD:
                    found.append(self.adopt(name))
        return found

    def include(self, entries: Iterable[FileEntry]) -> None:
        """List files that other ranks wrote and fsynced into the same directory."""
        with self._lock:
            for entry in entries:
                self._files[entry[0]] = FileEntry(*entry)

    def abandon(self) -> None:
        """Remove what was written. Never raises for what cannot be removed: the next start removes it."""
        for writer in self._open:
            writer.abort()
        shutil.rmtree(self.path, ignore_errors=True)

    def _settle(self) -> None:
        with self._lock:
            for writer in self._open:
                entry = writer.entry
                self._files[entry.path] = entry
            self._open = []

    def seal(self, record: Record) -> None:
        """Write the record and make every name durable. Step 3 of the commit."""
        folders = {self.path}
        for entry in record.files:
            full = os.path.join(self.path, entry.path)
            size = os.stat(full).st_size
            if size != entry.bytes:
                raise CheckpointError(
                    "%s has %d bytes, %d were written" % (full, size, entry.bytes), "Nothing was published."
                )
            folder = os.path.dirname(full)
            while len(folder) > len(self.path):
                folders.add(folder)
                folder = os.path.dirname(folder)
        full = os.path.join(self.path, RECORD)
        try:
            with DigestWriter(full, RECORD, self.sync) as writer:
                writer.write(record.to_json())
        except OSError as error:
            if error.errno in FULL:
                raise full_disk(full, RECORD, 0)
            raise
        if self.sync:
            for folder in sorted(folders, key=len, reverse=True):
                sync_path(folder)


def publish_as(writing_path: str, directory: str, step: int, sync: bool = True) -> str:
    """Give a sealed save its name: the one rename. Returns the name.

    The name is new: where the step is there already, letters are appended, so that its last number stays the step.
    """
    for number in range(10000):
        name = NAME % step + ("" if number == 0 else "-" + letters(number))
        target = os.path.join(directory, name)
        if os.path.lexists(target):
            continue
        try:
            os.rename(writing_path, target)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                continue
            if error.errno in FULL:
                raise full_disk(target, name, 0)
            raise
        if sync:
            sync_path(directory)
        return name
    raise CheckpointError("step %d is there ten thousand times in %s" % (step, directory), "Nothing was published.")


def letters(number: int) -> str:
    """Return b, c, ... z, ba, bb, ... for 1, 2, ...; never a digit."""
    text = ""
    while number:
        number, rest = divmod(number, 26)
        text = chr(ord("a") + rest) + text
    return text


def replace_file(path: str, data: bytes, sync: bool = True) -> None:
    """Publish ``data`` at ``path``: written aside, fsynced, renamed over, directory fsynced."""
    aside = os.path.join(os.path.dirname(path), ".%s-%s" % (os.path.basename(path), token()))
    try:
        with DigestWriter(aside, os.path.basename(path), sync) as writer:
            writer.write(data)
        os.replace(aside, path)
    except BaseException:
        try:
            os.unlink(aside)
        except OSError:
            pass  # not made, or the disk refuses that too: the next start removes it
        raise
    if sync:
        sync_path(os.path.dirname(path))


def sync_path(path: str) -> None:
    """Make a file, or the names in a directory, durable. Only a directory may refuse: some network file systems do."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        if not os.path.isdir(path):
            raise
    finally:
        os.close(fd)
