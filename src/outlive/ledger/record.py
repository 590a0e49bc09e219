"""The ledger's file: append-only JSON lines, many writers, one lock around each append.

The lines are a journal's (``wire.journal``): ``n`` counts, a torn tail is ended with a newline by
the next writer and never believed or removed. Unlike a journal it has several writers (two
terminals, a patrol), so each append locks the file, finds the end and the last number, writes,
syncs and unlocks. The lock is advisory and is dropped by the kernel when its holder dies.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from outlive.ledger.secret import SecretInLedger, Secrets
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.journal import parse_line, read_records

KINDS = frozenset(
    {
        "intent",
        "box",
        "run",
        "approval",
        "approval_used",
        "request",
        "receipt",
        "proof",
        "proofs",
        "copy",
        "copies",
        "price",
        "place_state",
        "forgot",
        "adopted",
        "waiver",
        "note",
    }
)
"""What a record can be about; ``state`` says which fields each has."""

TAIL_BYTES = 64 * 1024


class Ledger:
    """One client's ledger. Holds no file open between calls; any number may exist on one file.

    ``path`` is created with its directory on the first append, readable by its owner only.
    ``secrets`` are the declared values that no record may hold.
    """

    def __init__(self, path: str | Path, secrets: Secrets | None = None) -> None:
        self.path = Path(path)
        self.secrets = secrets if secrets is not None else Secrets()

    def append(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """Write one record and return it; it is on disk when this returns.

        Fields are plain JSON values. Raises ValueError for an unknown kind, SecretInLedger when a
        field holds a declared secret, TypeError for a value that is not plain, OSError as the file
        system gives it. After an error nothing was recorded; at most a torn line is left.
        """
        record = self.append_if(lambda: True, kind, **fields)
        assert record is not None
        return record

    def append_if(self, condition: Callable[[], bool], kind: str, /, **fields: Any) -> dict[str, Any] | None:
        """Write one record if ``condition()`` holds while nobody else can write; else return None.

        The condition may read the ledger, not append to it. This is how one approval is used once
        by two clients.
        """
        records = self._write(condition, [(kind, fields)])
        return records[0] if records else None

    def append_all(self, kind: str, many: Iterable[dict[str, Any]], /) -> int:
        """Write one record per item with one sync, for results of many thousand files. Returns how many.

        Raises like ``append``; after an error of the disk some of them may be recorded.
        """
        return len(self._write(lambda: True, [(kind, fields) for fields in many]))

    def append_each(self, many: Iterable[tuple[str, dict[str, Any]]]) -> int:
        """Like ``append_all``, of several kinds: ``(kind, fields)``."""
        return len(self._write(lambda: True, list(many)))

    def _write(self, condition: Callable[[], bool], many: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        for kind, fields in many:
            if kind not in KINDS:
                raise ValueError(f"no such kind of record: {kind!r}")
            own = {"n", "k", "b", "w"} & fields.keys()
            if own:
                raise ValueError(f"the ledger sets {', '.join(sorted(own))} itself")
            where = self.secrets.found_in(fields)
            if where is not None:
                raise SecretInLedger(f"a {kind} record would hold a declared secret in {where}")
            json.dumps(fields)  # refuse what is not plain before anything is locked
        if not many:
            return []
        with self._locked() as fd:
            if not condition():
                return []
            number, torn = _end(fd)
            now = {"b": round(boot_s(), 3), "w": round(wall_s(), 3)}
            records = [{"n": number + i, "k": kind, **now, **fields} for i, (kind, fields) in enumerate(many)]
            lines = [json.dumps(r, separators=(",", ":"), ensure_ascii=False) + "\n" for r in records]
            _write_all(fd, (b"\n" if torn else b"") + "".join(lines).encode("utf-8", "surrogateescape"))
            os.fsync(fd)
        return records

    def records(self, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield ``(record, end offset)`` of each whole record from an end offset that this gave before."""
        return read_records(str(self.path), start)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if self._still_there(fd):
                    yield fd
                    return
            finally:
                os.close(fd)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND
        try:
            return os.open(self.path, flags)
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path, flags | os.O_CREAT, 0o600)
        # The file's name must survive a power cut as well as its first record.
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return fd

    def _still_there(self, fd: int) -> bool:
        """Return whether the locked file is the one that the path names (somebody may have moved it)."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False


def _end(fd: int) -> tuple[int, bool]:
    """Return the next record's number and whether the file's last line is torn."""
    size = os.fstat(fd).st_size
    if size == 0:
        return 0, False
    torn = os.pread(fd, 1, size - 1) != b"\n"
    length = TAIL_BYTES
    while True:
        start = max(0, size - length)
        tail = os.pread(fd, size - start, start)
        lines = tail.split(b"\n")
        if start > 0:
            lines = lines[1:]  # begins somewhere inside a line
        for raw in reversed(lines):
            record = parse_line(raw) if raw else None
            if record is not None and isinstance(record.get("n"), int):
                return int(record["n"]) + 1, torn
        if start == 0:
            return 0, torn
        length *= 4


def _write_all(fd: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(fd, view) :]
