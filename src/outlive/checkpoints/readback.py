"""Digest of a file as the storage has it, past the page cache where the system lets us."""

import hashlib
import mmap
import os
from typing import Tuple


def digest_from_storage(path: str) -> Tuple[str, bool]:
    """Return (sha256, whether the bytes came past the page cache). Raises OSError."""
    flag = getattr(os, "O_DIRECT", 0)
    if flag:
        try:
            fd = os.open(path, os.O_RDONLY | flag)
        except OSError:
            fd = -1
        if fd >= 0:
            try:
                return _direct(fd), True
            except OSError:
                pass  # alignment or the file system refuses; the plain way below
            finally:
                os.close(fd)
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for chunk in iter(lambda: handle.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest(), False


def _direct(fd: int) -> str:
    digest = hashlib.sha256()
    buffer = mmap.mmap(-1, 1 << 20)  # page-aligned, as direct reads need
    try:
        while True:
            n = os.readv(fd, [buffer])
            digest.update(buffer[:n])
            if n < len(buffer):  # a direct read is short only at the end; the next one would be unaligned
                return digest.hexdigest()
    finally:
        buffer.close()
