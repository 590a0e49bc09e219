"""Append-only JSON lines with one writer: how a run's journal is written, torn and read.

A line is one record ``{"n": sequence, "k": kind, "b": boot clock s, "w": wall clock s, ...}``.
A reader believes only lines that end in a newline and parse; a torn last line is what a crash
leaves and is overwritten by a newline from the next writer, never removed.
"""

import json
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple

from outlive.wire.clock import boot_s, wall_s


class JournalWriter:
    """The only writer of one journal file.

    Opening repairs a torn tail by ending it with a newline (it then fails to parse and is skipped)
    and continues the sequence. Each ``append`` is on disk when it returns, unless ``sync=False``.
    Raises OSError as the file system gives it (ENOSPC included); a failed append leaves at most
    a torn line, and the next one begins on a line of its own.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.next_n = 0
        for record, _end in read_records(path, 0):
            self.next_n = int(record.get("n", -1)) + 1
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._torn = not _ends_in_newline(self._fd)

    def make(self, kind: str, **fields: Any) -> Dict[str, Any]:
        """Return the next record with its sequence number and times, not yet written."""
        record: Dict[str, Any] = {"n": self.next_n, "k": kind, "b": round(boot_s(), 3), "w": round(wall_s(), 3)}
        record.update(fields)
        self.next_n += 1
        return record

    def write(self, record: Dict[str, Any], sync: bool = True) -> None:
        """Write a record that ``make`` gave. After an OSError it may be written again: a number counts once."""
        raw = (b"\n" if self._torn else b"") + _line(record)
        self._torn = True
        view = memoryview(raw)
        while view:
            view = view[os.write(self._fd, view) :]
        self._torn = False
        if sync:
            os.fsync(self._fd)

    def append(self, kind: str, sync: bool = True, **fields: Any) -> Dict[str, Any]:
        """Make one record, write it and return it."""
        record = self.make(kind, **fields)
        self.write(record, sync)
        return record

    def close(self) -> None:
        os.close(self._fd)


def _line(record: Dict[str, Any]) -> bytes:
    words = {"separators": (",", ":"), "default": str}
    try:
        return (json.dumps(record, ensure_ascii=False, **words) + "\n").encode("utf-8", "surrogateescape")  # type: ignore[arg-type]
    except UnicodeEncodeError:
        # half of a surrogate pair, which the work's own output may hold; as an escape it goes round unchanged
        return (json.dumps(record, ensure_ascii=True, **words) + "\n").encode("ascii")  # type: ignore[arg-type]


def _ends_in_newline(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return size == 0 or os.pread(fd, 1, size - 1) == b"\n"


def read_records(path: str, start: int) -> Iterator[Tuple[Dict[str, Any], int]]:
    """Yield ``(record, end offset)`` of every whole record from byte ``start``.

    ``start`` must be 0 or an end offset that this function gave. Lines that do not parse are
    skipped. A missing file yields nothing.
    """
    try:
        handle = open(path, "rb")
    except FileNotFoundError:
        return
    with handle:
        handle.seek(start)
        at = start
        for raw in handle:
            if not raw.endswith(b"\n"):
                return
            at += len(raw)
            record = parse_line(raw)
            if record is not None:
                yield record, at


def parse_line(raw: bytes) -> Optional[Dict[str, Any]]:
    """Return the record of one line, or None when it is torn or not one of ours."""
    try:
        record = json.loads(raw.decode("utf-8", "surrogateescape"))
    except ValueError:
        return None
    return record if isinstance(record, dict) and "k" in record else None


def read_all(path: str) -> List[Dict[str, Any]]:
    """Return every whole record of the file."""
    return [record for record, _ in read_records(path, 0)]
