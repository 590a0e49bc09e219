"""Zip archives: directory, extents of stored entries, checked unpacking of compressed ones."""

import io
import lzma
import struct
import zipfile
import zlib
from typing import IO, BinaryIO, Callable, Iterator, List, Mapping, Optional

from outlive.artifacts.findings import Bad, Checksum, Layout, Source
from outlive.artifacts.tensors import BLOCK_BYTES

LOCAL_HEADER = b"PK\x03\x04"
EMPTY_ARCHIVE = b"PK\x05\x06"

MAX_ARCHIVES = 100_000


class Window(io.RawIOBase):
    """The first ``end`` bytes of a file, as a file."""

    def __init__(self, f: BinaryIO, end: int) -> None:
        super().__init__()
        self._f = f
        self._end = end
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._end)[whence]
        if self._position < 0:
            raise ValueError("before the start")
        return self._position

    def read(self, size: Optional[int] = -1) -> bytes:
        left = max(self._end - self._position, 0)
        self._f.seek(self._position)
        data = self._f.read(left if size is None or size < 0 else min(size, left))
        self._position += len(data)
        return data


def archives(source: Source) -> Iterator[zipfile.ZipFile]:
    """Yield the archives of a file, last first: distributed checkpoints write one behind the other.

    Raises ``Bad``: truncated without a directory, corrupt when the directory is no sense.
    """
    end = source.size
    for _ in range(MAX_ARCHIVES):
        try:
            archive = zipfile.ZipFile(Window(source.f, end))
        except zipfile.BadZipFile as err:
            if end == source.size and "not a zip" in str(err):
                raise Bad("truncated", "zip archive without its directory, which is written last")
            raise Bad("corrupt", "zip directory: %s" % err)
        except (struct.error, ValueError, OverflowError, NotImplementedError, EOFError, KeyError) as err:
            raise Bad("corrupt", "zip directory: %s" % err)
        yield archive
        first = min((i.header_offset for i in archive.infolist()), default=0)
        if first == 0:
            return
        if first < 0 or source.at(0, 4) != LOCAL_HEADER:
            raise Bad("corrupt", "zip archive with bytes before its first entry")
        end = first
    raise Bad("over_budget", "more than %d archives in one file" % MAX_ARCHIVES)


def entry_offset(source: Source, info: zipfile.ZipInfo) -> int:
    """Return where the data of an entry begins; raises ``Bad`` (corrupt) when its own header is not there."""
    header = source.at(info.header_offset, 30)
    if header[:4] != LOCAL_HEADER:
        raise Bad("corrupt", "no header where entry %r should begin" % info.filename)
    name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
    return info.header_offset + 30 + int(name_bytes) + int(extra_bytes)


def plain(info: zipfile.ZipInfo) -> bool:
    """Return whether an entry lies in the file as it is: neither compressed nor encrypted."""
    return info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1


def check_entries(
    source: Source,
    archive: zipfile.ZipFile,
    layout: Layout,
    sinks: Optional[Mapping[str, Callable[[bytes], None]]] = None,
) -> None:
    """Add a checksum to ``layout`` for each stored entry; unpack and compare each compressed one.

    Compressed data also goes, in blocks of ``BLOCK_BYTES``, to the function in ``sinks`` under its name.
    Entries may not overlap: that is how a small archive claims to hold petabytes.
    """
    extents: List[Checksum] = []
    for info in archive.infolist():
        offset = entry_offset(source, info)
        extents.append(Checksum(offset, info.compress_size, info.CRC, info.filename))
        if info.flag_bits & 1:
            raise Bad("encrypted", "zip entry %r is encrypted" % info.filename)
        if plain(info) and info.file_size != info.compress_size:
            raise Bad("corrupt", "stored entry %r has two sizes" % info.filename)
        if not info.compress_size and plain(info) and info.CRC:
            raise Bad("corrupt", "empty entry %r has a checksum" % info.filename)
    end = 0
    for part in sorted(extents):
        if part.offset < end:
            raise Bad("corrupt", "zip entry %r overlaps the one before it" % part.name)
        end = part.offset + part.nbytes
        if end > source.size:
            raise Bad("truncated", "zip entry %r ends at byte %d of %d" % (part.name, end, source.size))
    for info, part in zip(archive.infolist(), extents):
        if plain(info):
            layout.checksums.append(part)
        else:
            _unpack(archive, info, layout, sinks.get(info.filename) if sinks else None)


def _unpack(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, layout: Layout, sink: Optional[Callable[[bytes], None]]
) -> None:
    total = 0
    try:
        with archive.open(info) as stream:
            while True:
                block = read_full(stream, BLOCK_BYTES)
                if not block:
                    break
                total += len(block)
                layout.spend(len(block))
                if sink is not None:
                    sink(block)
    except NotImplementedError as err:
        layout.find("unknown_type", "zip entry %r: %s" % (info.filename, err))
        return
    except EOFError:
        raise Bad("truncated", "zip entry %r ends early" % info.filename)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, RuntimeError) as err:
        raise Bad("corrupt", "zip entry %r: %s" % (info.filename, err))
    except OSError as err:
        if err.errno is not None:
            raise
        raise Bad("corrupt", "zip entry %r: %s" % (info.filename, err))  # how bz2 says that its data is damaged
    if total != info.file_size:
        raise Bad("corrupt", "zip entry %r unpacks to %d bytes, not %d" % (info.filename, total, info.file_size))


def read_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, layout: Layout) -> bytes:
    """Return the content of one small entry; raises ``Bad`` when it is damaged or beyond the budget."""
    if info.file_size > 1 << 30:
        raise Bad("over_budget", "zip entry %r is too large to hold" % info.filename)
    held = io.BytesIO()
    _unpack(archive, info, layout, held.write)  # type: ignore[arg-type]
    return held.getvalue()


def read_full(stream: IO[bytes], nbytes: int) -> bytes:
    """Return ``nbytes`` from a stream that may give less at a time; fewer only at its end."""
    data = stream.read(nbytes)
    if len(data) in (0, nbytes):
        return data
    parts = [data]
    got = len(data)
    while got < nbytes:
        data = stream.read(nbytes - got)
        if not data:
            break
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def inspect_zip(source: Source, layout: Layout) -> None:
    """Check every entry of an archive."""
    for archive in archives(source):
        check_entries(source, archive, layout)
