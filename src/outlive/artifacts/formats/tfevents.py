"""Records framed as in TensorBoard event files: length, checksum, data, checksum."""

import struct
from typing import List, Optional

from outlive.artifacts.findings import CRC_IN_PYTHON, Bad, Layout, Source

MAX_RECORD_BYTES = 1 << 30
_POLYNOMIAL = 0x82F63B78  # Castagnoli, bits reversed


def _byte_table() -> List[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_BYTES = _byte_table()
_pairs: Optional[List[int]] = None


def _pair_table() -> List[int]:
    """Table over two bytes at once: half the steps, worth its 65536 entries once records are long."""
    global _pairs
    if _pairs is None:
        _pairs = [_BYTES[(_BYTES[n & 0xFF] ^ n >> 8) & 0xFF] ^ _BYTES[n & 0xFF] >> 8 for n in range(65536)]
    return _pairs


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``."""
    crc = 0xFFFFFFFF
    done = 0
    if len(data) > 1 << 14:
        table = _pair_table()
        even = len(data) & ~1
        for pair in struct.iter_unpack("<H", memoryview(data)[:even]):
            crc = table[(crc ^ pair[0]) & 0xFFFF] ^ crc >> 16
        done = even
    for byte in data[done:]:
        crc = _BYTES[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """Return the checksum as the format stores it: rotated and offset, so that data may hold checksums itself."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def looks_like(head: bytes) -> bool:
    """Return whether a file starts with a record header whose checksum is right."""
    return len(head) >= 12 and masked(head[:8]) == struct.unpack("<I", head[8:12])[0]


def inspect_tfevents(source: Source, layout: Layout) -> None:
    """Check every record; a last one that is torn was being written when the process ended."""
    position = number = 0
    f = source.f
    while position < source.size:
        number += 1
        f.seek(position)
        head = f.read(12)
        if len(head) < 12:
            raise Bad("truncated", "record %d, the last, is torn" % number)
        length, check = struct.unpack("<QI", head)
        if masked(head[:8]) != check:
            raise Bad("corrupt", "record %d has a damaged length" % number)
        if length > MAX_RECORD_BYTES:
            raise Bad("over_budget", "record %d of %d bytes is too long to hold" % (number, length))
        if position + 16 + length > source.size:
            raise Bad("truncated", "record %d, the last, is torn" % number)
        layout.spend(length + 16, CRC_IN_PYTHON)
        data = f.read(length)
        if len(data) < length or masked(data) != int.from_bytes(f.read(4), "little"):
            raise Bad("corrupt", "record %d does not match its checksum" % number)
        position += 16 + length
