"""What files held when we last read all of their bytes, by what the file system says about them since.

A file is believed to hold the same as then while device, inode, size, time of change of its content and time of change
of its entry are all the same to the nanosecond. The last one nobody sets at will: every write moves it, and so does
putting an old time back. One more thing is asked, as git does it: when a file was read in the same tick of the clock
that its times show, a later write could carry the same times. Such a file is not remembered.

The record is a cache. One that is damaged, of another kind, or written under other rules counts as empty; two writers
at once leave one whole record. It grows with the tree it is about, and no further.
"""

import hashlib
import json
import os
import time
from typing import Any, Dict, List, Optional

FINE_NS, COARSE_NS = 50 * 10**6, 2100 * 10**6
"""How old a file's times must be when it is read; the second where they look like full seconds (FAT has two)."""
MOST_FILES = 400000
MOST_RECORDS = 64
"""How many trees are remembered in one directory."""


def settled(info: os.stat_result, read_ns: int) -> bool:
    """Return whether a write after ``read_ns`` (wall clock) must show in the file's times."""
    return all(
        stamp + (FINE_NS if stamp % 10**9 else COARSE_NS) < read_ns for stamp in (info.st_mtime_ns, info.st_ctime_ns)
    )


def same_file(one: os.stat_result, two: os.stat_result) -> bool:
    """Return whether two looks saw the same content of the same file."""
    return _stamp(one) == _stamp(two)


def _stamp(info: os.stat_result) -> List[int]:
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev]


class Seen:
    """The record of one tree. ``rules`` names all that its values depend on beside the content."""

    def __init__(self, directory: Optional[str], tree: str, rules: str) -> None:
        name = hashlib.sha256(tree.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        self._directory = directory
        self._path = os.path.join(directory, name) if directory else ""
        self._about = [tree, rules]
        self._old: Dict[str, List[Any]] = self._read() if directory else {}
        self._new: Dict[str, List[Any]] = {}
        self._learned = False

    def get(self, path: str, info: os.stat_result) -> Optional[List[Any]]:
        """Return the values that were put for this file as it stands now, None when it has to be read."""
        row = self._old.get(path)
        if row is None or row[0] != _stamp(info):
            return None
        self._new[path] = row
        return list(row[1:])

    def put(self, path: str, info: os.stat_result, read_ns: int, *values: Any) -> None:
        """Remember plain values for a file that was read whole between two equal looks; the first at ``read_ns``."""
        if settled(info, read_ns):
            self._new[path] = [_stamp(info)] + list(values)
            self._learned = True

    def keep(self) -> None:
        """Carry over what was not asked for: only a part of the tree was looked at."""
        if len(self._old) + len(self._new) <= MOST_FILES:
            for path, row in self._old.items():
                self._new.setdefault(path, row)

    def save(self) -> None:
        """Write the record if it changed. Failing to is no error: the next reader reads more."""
        if not self._directory or not (self._learned or len(self._new) != len(self._old)):
            return
        if len(self._new) > MOST_FILES:
            return
        paths = list(self._new)
        body = json.dumps([paths, [self._new[path] for path in paths]], separators=(",", ":")).encode("ascii")
        head = json.dumps({"about": self._about, "sha256": hashlib.sha256(body).hexdigest()}).encode("ascii")
        aside = "%s.%d.%x.part" % (self._path, os.getpid(), time.time_ns())
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(head + b"\n" + body)
            os.replace(aside, self._path)
            self._drop_oldest(self._directory)
        except OSError:
            _unlink(aside)

    def forget(self) -> None:
        """Drop the record: something in it was not so."""
        if self._path:
            _unlink(self._path)
        self._old, self._new = {}, {}

    def _read(self) -> Dict[str, List[Any]]:
        try:
            with open(self._path, "rb") as handle:
                head, _, body = handle.read().partition(b"\n")
            about = json.loads(head.decode("ascii"))
            if about["about"] != self._about or about["sha256"] != hashlib.sha256(body).hexdigest():
                return {}
            paths, rows = json.loads(body.decode("ascii"))
            return dict(zip(paths, rows))
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    @staticmethod
    def _drop_oldest(directory: str) -> None:
        names = [os.path.join(directory, name) for name in os.listdir(directory)]
        if len(names) <= MOST_RECORDS:
            return
        ages = sorted((_age(path), path) for path in names)
        for _, path in ages[: len(names) - MOST_RECORDS]:
            _unlink(path)


def _age(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
