"""Whether the disk has room for a save, asked before the first byte is written."""

import os
from typing import NamedTuple, Optional

from outlive.checkpoints.errors import NoRoom

SPARE_BYTES = 16 << 20
"""Left free beside a save: the log and the journal of the run live on the same disk."""

SPARE_SHARE = 0.02
"""Of the save: blocks are rounded up, and what is estimated may be a little more."""

SPARE_FILES = 16


class Room(NamedTuple):
    """What is free for an ordinary user; None where the file system does not count."""

    bytes: Optional[int]
    files: Optional[int]


def room(path: str) -> Room:
    """Return what is free where ``path`` is or would be. Raises OSError when the file system does not answer."""
    there = os.path.abspath(path)
    while not os.path.exists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    found = os.statvfs(there)
    unit = found.f_frsize or found.f_bsize
    return Room(
        found.f_bavail * unit if found.f_blocks else None,
        min(found.f_favail, found.f_ffree) if found.f_files else None,
    )


def need_room(path: str, bytes: int, files: int) -> None:
    """Raise NoRoom unless there is space for ``bytes`` in ``files`` new files. What is not counted is not refused."""
    free = room(path)
    want = bytes + int(bytes * SPARE_SHARE) + SPARE_BYTES
    if free.bytes is not None and free.bytes < want:
        raise NoRoom(path, "bytes", want, free.bytes)
    if free.files is not None and free.files < files + SPARE_FILES:
        raise NoRoom(path, "inodes", files + SPARE_FILES, free.files)
