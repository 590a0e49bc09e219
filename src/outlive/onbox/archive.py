"""How the archive of a snapshot lies on the disk, byte for byte: a plain tar whose places are known beforehand.

The first member is the manifest; the others follow in the order of their paths. Each has one header block, or the
blocks that Python's tarfile writes for long and non-ASCII names, links, and files from 8 GiB on. So the place of every
content follows from the manifest alone, also in archives that tarfile wrote.
"""

import json
import os
from operator import itemgetter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

MANIFEST = ".outlive-manifest.json"
BLOCK, RECORD = 512, 10240
_FIXED = b"0000000\0" * 2
_TIME = b"00000000000\0"
_KIND = b"        0"
_TAIL = b"\0" * 100 + b"ustar\x0000" + b"\0" * 247
_CONSTANT = sum(_FIXED) + sum(_TIME) + sum(_KIND) + sum(_TAIL)
LARGE_BYTES = 8**11


class Member(NamedTuple):
    """One entry's place. ``at`` is where its header begins, ``data`` where its content does, ``end`` the next entry."""

    item: Dict[str, Any]
    head: bytes
    at: int
    data: int
    size: int
    end: int


def header(name: str, mode: int, size: int, link: str = "") -> bytes:
    """Return the header of one entry."""
    if link or len(name) > 100 or size >= LARGE_BYTES or not name.isascii():
        import tarfile

        info = tarfile.TarInfo(name)
        info.size, info.mode = size, mode
        if link:
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, link, 0o777
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    text = name.encode("ascii")
    numbers = b"%07o\0" % mode
    length = b"%011o\0" % size
    check = b"%06o\0 " % (_CONSTANT + sum(text) + sum(numbers) + sum(length))
    return b"".join((text.ljust(100, b"\0"), numbers, _FIXED, length, _TIME, check, b"0", _TAIL))


def layout(files: List[Dict[str, Any]], manifest_bytes: int) -> List[Member]:
    """Return all entries, the manifest first, of the archive of these files."""
    head = header(MANIFEST, 0o644, manifest_bytes)
    members = [Member({}, head, 0, len(head), manifest_bytes, _padded(len(head) + manifest_bytes))]
    at = members[0].end
    for item in sorted(files, key=itemgetter("path")):
        link = item.get("link") or ""
        size = 0 if link else int(item["bytes"])
        head = header(item["path"], int(item["mode"]), size, link)
        data = at + len(head)
        end = _padded(data + size)
        members.append(Member(item, head, at, data, size, end))
        at = end
    return members


def whole(members: List[Member]) -> int:
    """Return the length of the archive: two empty blocks close it, and it fills records."""
    return -(-(members[-1].end + 2 * BLOCK) // RECORD) * RECORD


def _padded(size: int) -> int:
    return (size + BLOCK - 1) // BLOCK * BLOCK


def manifest_text(files: List[Dict[str, Any]]) -> bytes:
    """Return the manifest as the archive carries it."""
    return json.dumps(files, ensure_ascii=True).encode("ascii")


def read_manifest(path: str) -> Optional[bytes]:
    """Return the manifest of an archive, None when it has none. Raises OSError and ValueError."""
    with open(path, "rb") as handle:
        head = handle.read(BLOCK)
        if head[:100].rstrip(b"\0") != MANIFEST.encode("ascii"):
            return None
        size = int(head[124:136].rstrip(b"\0 ") or b"0", 8)
        text = handle.read(size)
    if len(text) != size:
        raise ValueError("the manifest of %s is cut" % path)
    return text


def read_at(fd: int, at: int, size: int, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield ``size`` bytes from ``at`` on; fewer where the file ends."""
    while size > 0:
        data = os.pread(fd, min(size, chunk_bytes), at)
        if not data:
            return
        yield data
        at += len(data)
        size -= len(data)
