"""Writes what ``torch.load`` reads, front to back, without holding the interpreter while bytes move.

``torch.save`` into a Python file copies every tensor under the interpreter lock in older versions and seeks in none;
here each storage goes out in large pieces that ``hashlib``, ``zlib`` and ``write`` handle with the lock released, so
that a training thread beside it goes on. The container is the zip that torch has written since 1.6: a pickle that
names storages, and one stored entry for each, aligned to 64 bytes so that ``torch.load(mmap=True)`` works.
"""

import ctypes
import io
import pickle
import struct
import sys
import zlib
from typing import Any, BinaryIO, Dict, List, Tuple

import torch

PIECE_BYTES = 8 << 20
ALIGNMENT = 64
ROOT = "archive"
_STREAMED = 0x0808  # sizes and checksum follow the data; names are UTF-8
_ZIP64 = 45
_BIG = 0xFFFFFFFF


class _Pickler(pickle.Pickler):
    """Leaves storages out of the pickle and collects them, as torch's own does."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, protocol=2)
        self.keys: Dict[Tuple[int, int], str] = {}
        self.storages: List[Any] = []

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, torch.storage.TypedStorage):
            untyped, kind, items = obj._untyped_storage, getattr(torch, obj._pickle_storage_type()), obj._size()
        elif isinstance(obj, torch.UntypedStorage):
            untyped, kind, items = obj, torch.UntypedStorage, obj.nbytes()
        else:
            return None
        identity = (untyped.data_ptr(), untyped.nbytes())
        if identity[0] == 0 or identity not in self.keys:
            self.keys[identity] = str(len(self.storages))
            self.storages.append(untyped)
        return ("storage", kind, self.keys[identity], "cpu", items)


def write(file: Any, value: Any) -> None:
    """Write ``value`` (plain types and CPU tensors) to ``file``, which only needs ``write``."""
    head = io.BytesIO()
    pickler = _Pickler(head)
    pickler.dump(value)
    out = _Zip(file)
    out.entry("data.pkl", [memoryview(head.getvalue())])
    out.entry("byteorder", [memoryview(sys.byteorder.encode("ascii"))])
    for key, storage in enumerate(pickler.storages):
        out.entry("data/%d" % key, pieces(storage))
    out.entry("version", [memoryview(b"3\n")])
    out.close()


def pieces(value: Any) -> List[memoryview]:
    """Return the bytes of a CPU storage, or of a contiguous CPU tensor, as views; the caller keeps ``value`` alive."""
    size = value.nbytes() if isinstance(value, torch.UntypedStorage) else value.numel() * value.element_size()
    if not size:
        return []
    # ctypes, not numpy: torch works without it, and numpy knows no bfloat16
    whole = memoryview((ctypes.c_ubyte * size).from_address(value.data_ptr())).cast("B")
    return [whole[at : at + PIECE_BYTES] for at in range(0, size, PIECE_BYTES)]


class _Zip:
    """A zip of stored entries, written to a stream that cannot seek."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.at = 0
        self.directory: List[bytes] = []

    def entry(self, name: str, data: List[memoryview]) -> None:
        raw = ("%s/%s" % (ROOT, name)).encode("utf-8")
        start = self.at
        # the padding is an extra field of its own ("FB" is what torch writes), after the 64-bit sizes
        size64 = struct.pack("<HHQQ", 1, 16, 0, 0)
        pad = -(start + 30 + len(raw) + len(size64) + 4) % ALIGNMENT
        extra = size64 + struct.pack("<2sH", b"FB", pad) + b"Z" * pad
        self._put(
            struct.pack("<IHHHHHIIIHH", 0x04034B50, _ZIP64, _STREAMED, 0, 0, 0x21, 0, _BIG, _BIG, len(raw), len(extra))
        )
        self._put(raw + extra)
        checksum, size = 0, 0
        for piece in data:
            checksum = zlib.crc32(piece, checksum)
            size += len(piece)
            self._put(piece)
        self._put(struct.pack("<IIQQ", 0x08074B50, checksum, size, size))
        extra = struct.pack("<HHQQQ", 1, 24, size, size, start)
        self.directory.append(
            struct.pack(
                "<IHHHHHHIIIHHHHHII",
                *(0x02014B50, _ZIP64, _ZIP64, _STREAMED, 0, 0, 0x21, checksum, _BIG, _BIG),
                *(len(raw), len(extra), 0, 0, 0, 0, _BIG),
            )
            + raw
            + extra
        )

    def close(self) -> None:
        start, count = self.at, len(self.directory)
        for one in self.directory:
            self._put(one)
        size, end64 = self.at - start, self.at
        self._put(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, _ZIP64, _ZIP64, 0, 0, count, count, size, start))
        self._put(struct.pack("<IIQI", 0x07064B50, 0, end64, 1))
        self._put(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, _BIG, _BIG, 0))

    def _put(self, data: Any) -> None:
        self.file.write(data)
        self.at += len(data)
