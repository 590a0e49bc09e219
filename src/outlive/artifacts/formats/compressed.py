"""Compressed streams (gzip, bzip2, xz) and tar archives, plain or within one."""

import bz2
import gzip
import lzma
import zlib
from typing import BinaryIO, Callable, Dict, Optional, Union

from outlive.artifacts.findings import Bad, Layout, Source
from outlive.artifacts.formats.zips import read_full

BLOCK = 512
CHUNK_BYTES = 1 << 20

OPENERS: Dict[str, Callable[..., BinaryIO]] = {
    "gz": gzip.open,  # type: ignore[dict-item]
    "bz2": bz2.open,  # type: ignore[dict-item]
    "xz": lzma.open,  # type: ignore[dict-item]
}


def is_tar_header(block: bytes) -> bool:
    """Return whether 512 bytes are the header of a tar member by its checksum."""
    if len(block) < BLOCK:
        return False
    try:
        said = int(block[148:156].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    return said == sum(block[:148]) + sum(block[156:BLOCK]) + 8 * 32


def holds_tar(source: Source, packing: str) -> bool:
    """Return whether the first unpacked block of a compressed file is a tar header."""
    source.f.seek(0)
    try:
        with OPENERS[packing](source.f, "rb") as stream:
            return is_tar_header(read_full(stream, BLOCK))
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError):
        return False


class _Unpacked:
    """The unpacked stream of a file, read forward within the budget."""

    def __init__(self, source: Source, packing: str, layout: Layout) -> None:
        source.f.seek(0)
        self._stream = OPENERS[packing](source.f, "rb")
        self._packing = packing
        self._layout = layout

    def read(self, nbytes: int) -> bytes:
        try:
            data = read_full(self._stream, nbytes)
        except EOFError:
            raise Bad("truncated", "%s stream ends early" % self._packing)
        except (zlib.error, lzma.LZMAError, ValueError) as err:
            raise Bad("corrupt", "%s stream: %s" % (self._packing, err))
        except OSError as err:
            if err.errno is not None:
                raise
            raise Bad("corrupt", "%s stream: %s" % (self._packing, err))
        self._layout.spend(len(data))
        return data

    def skip(self, nbytes: int) -> int:
        left = nbytes
        while left:
            data = self.read(min(left, CHUNK_BYTES))
            if not data:
                break
            left -= len(data)
        return nbytes - left

    def drain(self) -> None:
        while self.read(CHUNK_BYTES):
            pass


class _Plain:
    """A tar that is not compressed: what is skipped is not read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._position = 0

    def read(self, nbytes: int) -> bytes:
        self._source.f.seek(self._position)
        data = read_full(self._source.f, nbytes)
        self._position += len(data)
        return data

    def skip(self, nbytes: int) -> int:
        before = self._position
        self._position = min(before + nbytes, self._source.size)
        return self._position - before

    def drain(self) -> None:
        pass


def inspect_stream(source: Source, layout: Layout) -> None:
    """Unpack a compressed file to its end; its own checksums decide."""
    _Unpacked(source, layout.kind, layout).drain()


def inspect_packed_tar(source: Source, layout: Layout) -> None:
    """Check members and the stream of a compressed tar."""
    _walk(_Unpacked(source, layout.kind.split(".")[1], layout), layout)


def inspect_tar(source: Source, layout: Layout) -> None:
    """Check that the headers of a tar are sound and its members and end are there."""
    _walk(_Plain(source), layout)


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise Bad("corrupt", "tar member with no sound size")


def _walk(stream: Union[_Unpacked, _Plain], layout: Layout) -> None:
    size_override: Optional[int] = None
    members = 0
    while True:
        header = stream.read(BLOCK)
        if len(header) < BLOCK:
            raise Bad("truncated", "tar without its end after %d members" % members)
        if not header.strip(b"\0"):
            stream.drain()
            return
        if not is_tar_header(header):
            raise Bad("corrupt", "tar header %d is damaged" % (members + 1))
        members += 1
        layout.spend(BLOCK, 4)
        kind = header[156:157]
        size = _number(header[124:136])
        if kind in (b"1", b"2", b"3", b"4", b"5", b"6"):
            size = 0  # links, devices and directories have no data, whatever the field says
        elif kind not in (b"x", b"g") and size_override is not None:
            size = size_override
        extended = header[482] if kind == b"S" else 0
        while extended:
            sparse = stream.read(BLOCK)
            if len(sparse) < BLOCK:
                raise Bad("truncated", "tar ends in member %d" % members)
            extended = sparse[504]
        padded = -(-size // BLOCK) * BLOCK
        if kind == b"x":
            if size > 1 << 20:
                raise Bad("corrupt", "tar with an extended header of %d bytes" % size)
            body = stream.read(padded)
            if len(body) < padded:
                raise Bad("truncated", "tar ends in member %d" % members)
            size_override = _pax_size(body[:size])
            continue
        if stream.skip(padded) < padded:
            raise Bad("truncated", "tar ends in member %d" % members)
        if kind not in (b"L", b"K", b"g"):
            size_override = None


def _pax_size(body: bytes) -> Optional[int]:
    """The member size that an extended header gives, for members too large for the plain field."""
    for line in body.split(b"\n"):
        record = line.partition(b" ")[2]
        if record.startswith(b"size="):
            try:
                return max(int(record[5:]), 0)
            except ValueError:
                raise Bad("corrupt", "tar with an extended size that is no number")
    return None
