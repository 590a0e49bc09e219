"""Digests of files and streams, and the certainty that the file stood still meanwhile."""

import hashlib
import os
from typing import BinaryIO, Callable, Optional, Tuple

CHUNK_BYTES = 1 << 20

OnBytes = Callable[[int], None]
"""Called with the number of bytes read since the last call; never with 0."""


class Changed(Exception):
    """The file grew, shrank, was rewritten or replaced while it was read; ask again when it stands still."""


def digest_file(path: str, limit: Optional[int] = None, on_bytes: Optional[OnBytes] = None) -> Tuple[str, int]:
    """Return (sha256 in hex, bytes read) of the file at ``path``.

    With ``limit`` only the first ``limit`` bytes are read (fewer if the file is shorter), and a file that merely
    grows, such as a log, is not an error. Without it any change of size, time or identity raises ``Changed``.
    Raises OSError when the file cannot be opened or read.
    """
    with open(path, "rb", buffering=0) as f:
        before = os.fstat(f.fileno())
        sha256, read_bytes = digest_stream(f, limit, on_bytes)
        if limit is None:
            refuse_change(path, f.fileno(), before, read_bytes)
        elif os.fstat(f.fileno()).st_size < read_bytes or read_bytes < min(limit, before.st_size):
            raise Changed("%r shrank while it was read" % path)
    return sha256, read_bytes


def digest_stream(stream: BinaryIO, limit: Optional[int] = None, on_bytes: Optional[OnBytes] = None) -> Tuple[str, int]:
    """Return (sha256 in hex, bytes read) of ``stream`` to its end, or of its next ``limit`` bytes."""
    digest = hashlib.sha256()
    total = 0
    while limit is None or total < limit:
        chunk = stream.read(CHUNK_BYTES if limit is None else min(CHUNK_BYTES, limit - total))
        if not chunk:
            break
        digest.update(chunk)
        total += len(chunk)
        if on_bytes is not None:
            on_bytes(len(chunk))
    return digest.hexdigest(), total


def refuse_change(path: str, fd: int, before: os.stat_result, read_bytes: int) -> None:
    """Raise ``Changed`` unless the open file and its path are what ``before`` (an fstat) said, and were read whole.

    The change time is not compared: making a hard link for a copy alters it and no byte.
    """
    after = os.fstat(fd)
    if read_bytes != before.st_size or after.st_size != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
        raise Changed("%r changed while it was read: %d bytes before, %d after" % (path, before.st_size, after.st_size))
    try:
        named = os.stat(path)
    except FileNotFoundError:
        raise Changed("%r was removed while it was read" % path)
    if (named.st_dev, named.st_ino) != (before.st_dev, before.st_ino):
        raise Changed("%r was replaced while it was read" % path)
