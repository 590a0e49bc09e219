"""The one pass over a large file: digest, checksums and values are taken from the same read.

A checkpoint is often larger than the memory left for caches, so each further pass is a further read of the disk.
"""

import hashlib
import zlib
from typing import BinaryIO, List, Optional

from outlive.artifacts.digest import CHUNK_BYTES, Changed, OnBytes
from outlive.artifacts.findings import Bad, Checksum, Layout, Values
from outlive.artifacts.tensors import ValueScan


def settle(layout: Layout, size: int) -> None:
    """Sort the stretches of ``layout`` and raise ``Bad`` when one leaves the file or two checksums overlap."""
    layout.checksums.sort()
    layout.values.sort()
    end = 0
    for part in layout.checksums:
        if part.offset < end:
            raise Bad("corrupt", "entry %r overlaps the one before it" % part.name)
        end = part.offset + part.nbytes
        if end > size:
            raise Bad("truncated", "entry %r ends at byte %d of %d" % (part.name, end, size))
    for tensor in layout.values:
        if tensor.offset < 0 or tensor.offset + tensor.nbytes > size:
            raise Bad("truncated", "tensor %r reaches beyond byte %d" % (tensor.name, size))


def read_through(f: BinaryIO, size: int, layout: Layout, want_digest: bool, on_bytes: Optional[OnBytes] = None) -> str:
    """Read ``f`` once, up to ``size``; note wrong checksums and non-finite values in ``layout``.

    Returns the sha256 in hex, or "" when no digest is wanted (then only the stretches are read). The stretches must
    have been settled. Raises ``Changed`` when the file is shorter than ``size``.
    """
    checksums = [part for part in layout.checksums if part.nbytes]
    values = [part for part in layout.values if part.nbytes]
    cuts = {0, size}
    for stretch in [(p.offset, p.nbytes) for p in checksums] + [(p.offset, p.nbytes) for p in values]:
        cuts.add(stretch[0])
        cuts.add(stretch[0] + stretch[1])
    edges = sorted(cuts)
    digest = hashlib.sha256()
    reader = _Pass(layout, checksums, values)
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    position = -1
    for start, end in zip(edges, edges[1:]):
        wanted = reader.enter(start)
        if not (want_digest or wanted):
            continue
        if position != start:
            f.seek(start)
        position = start
        while position < end:
            n = f.readinto(view[: min(CHUNK_BYTES, end - position)])  # type: ignore[attr-defined]
            if not n:
                raise Changed("ended at byte %d while it was read, %d were expected" % (position, size))
            # Values must be fed whole, and a raw read may stop anywhere.
            while n % 8 and position + n < end:
                more = f.readinto(view[n : min(CHUNK_BYTES, end - position)])  # type: ignore[attr-defined]
                if not more:
                    raise Changed("ended at byte %d while it was read, %d were expected" % (position + n, size))
                n += more
            position += n
            if want_digest:
                digest.update(view[:n])
            if wanted:
                reader.feed(buffer if n == CHUNK_BYTES else buffer[:n])
            if on_bytes is not None:
                on_bytes(n)
        reader.leave(end)
    return digest.hexdigest() if want_digest else ""


class _Pass:
    """Which checksum and which tensor the read is inside of."""

    def __init__(self, layout: Layout, checksums: List[Checksum], values: List[Values]) -> None:
        self._layout = layout
        self._checksums = checksums[::-1]
        self._values = values[::-1]
        self._crc = 0
        self._in_checksum = False
        self._scan: Optional[ValueScan] = None

    def enter(self, start: int) -> bool:
        if self._checksums and self._checksums[-1].offset == start:
            self._in_checksum = True
            self._crc = 0
        # Stretches of values that share a start (tied tensors seen by two readers) are read as the first of them.
        while self._values and self._values[-1].offset < start and self._scan is None:
            self._values.pop()
        if self._scan is None and self._values and self._values[-1].offset == start:
            tensor = self._values[-1]
            self._scan = ValueScan(tensor.name, tensor.form, tensor.little)
        return self._in_checksum or self._scan is not None

    def feed(self, block: bytearray) -> None:
        if self._in_checksum:
            self._crc = zlib.crc32(block, self._crc)
        if self._scan is not None:
            self._scan.feed(block)  # type: ignore[arg-type]

    def leave(self, end: int) -> None:
        if self._in_checksum and self._checksums[-1].offset + self._checksums[-1].nbytes == end:
            part = self._checksums.pop()
            self._in_checksum = False
            if self._crc != part.crc32:
                self._layout.find("corrupt", "entry %r does not match its checksum" % part.name)
        if self._scan is not None and self._values[-1].offset + self._values[-1].nbytes == end:
            self._values.pop()
            sentence = self._scan.sentence()
            self._scan = None
            if sentence:
                self._layout.find("nonfinite", sentence, "structure")
