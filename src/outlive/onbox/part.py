"""A file that arrives in pieces over several connections."""

import os
from types import TracebackType
from typing import Optional, Type

from outlive.wire.frames import Torn


class Part:
    """Appends to a part file, from a known size on.

    A connection that died for the client may still hold bytes for a program that lives on here, while the client is
    already back with a new one. Each piece is therefore written only where this writer expects the end to be; whoever
    finds another size gives way (Torn). What arrived stays for the next one.
    """

    def __init__(self, path: str, start: int) -> None:
        self.at = start
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._expect()
        except Torn:
            os.close(self._fd)
            raise

    def _expect(self) -> None:
        size = os.fstat(self._fd).st_size
        if size != self.at:
            raise Torn("the part file holds %d bytes, not %d; ask again" % (size, self.at))

    def write(self, data: bytes) -> None:
        """Append all of ``data``. Raises Torn when another writer was here, OSError when the disk is full."""
        view = memoryview(data)
        while view:
            self._expect()
            count = os.write(self._fd, view)
            self.at += count
            view = view[count:]

    def begin_sync(self) -> None:
        """Let the disk begin to write, without waiting for it. Linux only."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Close; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "Part":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()
