"""safetensors files with the standard library: 8 bytes of header size, a JSON header, raw little-endian bytes."""

import json
import os
import struct
from typing import Any, BinaryIO, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from outlive.checkpoints.errors import Damaged

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "I64": 64, "U64": 64, "F64": 64,
}  # fmt: skip
HEADER_LIMIT_BYTES = 100 << 20
"""What the reference reader refuses too."""


class Tensor(NamedTuple):
    """One tensor of a header; ``start`` is its offset in the file."""

    dtype: str
    shape: Tuple[int, ...]
    start: int
    bytes: int


class Header(NamedTuple):
    """What a file says about itself."""

    tensors: Dict[str, Tensor]
    metadata: Dict[str, str]
    data_start: int


def encode_header(
    tensors: Sequence[Tuple[str, str, Sequence[int]]], metadata: Optional[Mapping[str, str]] = None
) -> Tuple[bytes, List[str]]:
    """Return (the bytes before the data, the names in the order of their data) for (name, dtype, shape) rows.

    Larger elements come first, so that every tensor is aligned. The rest of the file is their bytes one after another.
    """
    order = sorted(tensors, key=lambda row: (-BITS[row[1]], row[0]))
    header: Dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = {str(key): str(value) for key, value in metadata.items()}
    at = 0
    for name, dtype, shape in order:
        size = nbytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": [int(n) for n in shape], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, [row[0] for row in order]


def nbytes(dtype: str, shape: Sequence[int]) -> int:
    """Return the size of a tensor."""
    count = 1
    for n in shape:
        count *= int(n)
    return count * BITS[dtype] // 8


def write(
    file: Union[str, BinaryIO, Any],
    tensors: Mapping[str, Tuple[str, Sequence[int], Any]],
    metadata: Optional[Mapping[str, str]] = None,
) -> None:
    """Write ``{name: (dtype, shape, bytes-like)}`` to a path or to anything with ``write``, from start to end."""
    head, order = encode_header([(name, one[0], one[1]) for name, one in tensors.items()], metadata)
    for name, (dtype, shape, data) in tensors.items():
        with memoryview(data) as view:
            if view.nbytes != nbytes(dtype, shape):
                raise ValueError("%s: %d bytes given, its shape has %d" % (name, view.nbytes, nbytes(dtype, shape)))
    if isinstance(file, str):
        with open(file, "wb") as handle:
            _write(handle, head, order, tensors)
    else:
        _write(file, head, order, tensors)


def _write(file: Any, head: bytes, order: Iterable[str], tensors: Mapping[str, Tuple[str, Sequence[int], Any]]) -> None:
    file.write(head)
    for name in order:
        file.write(tensors[name][2])


def header(path: str) -> Header:
    """Read the header of a file and check that it covers the file exactly. Raises Damaged, OSError."""
    size = os.path.getsize(path)
    with open(path, "rb") as handle:
        first = handle.read(8)
        if len(first) < 8:
            raise Damaged(path, "it has %d bytes" % size)
        length = struct.unpack("<Q", first)[0]
        if length > min(size - 8, HEADER_LIMIT_BYTES):
            raise Damaged(path, "its header of %d bytes does not fit into it" % length)
        raw = handle.read(length)
    try:
        data = json.loads(raw.decode("utf-8"))
        metadata = {str(k): str(v) for k, v in (data.pop("__metadata__", None) or {}).items()}
        tensors: Dict[str, Tensor] = {}
        for name, one in data.items():
            start, end = one["data_offsets"]
            shape = tuple(int(n) for n in one["shape"])
            if end - start != nbytes(one["dtype"], shape) or start < 0 or min(shape, default=0) < 0:
                raise ValueError("%s does not have the size of its shape" % name)
            tensors[name] = Tensor(one["dtype"], shape, 8 + length + start, end - start)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, "its header is not whole: %s" % error)
    at = 8 + length
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].bytes)):
        if tensor.start != at:
            raise Damaged(path, "%s does not begin where the one before it ends" % name)
        at += tensor.bytes
    if at != size:
        raise Damaged(path, "it has %d bytes, its header speaks of %d" % (size, at))
    return Header(tensors, metadata, 8 + length)


def read(path: str, name: str, known: Optional[Header] = None) -> Tuple[str, Tuple[int, ...], bytes]:
    """Return (dtype, shape, bytes) of one tensor. Raises KeyError, Damaged, OSError."""
    tensor = (known if known is not None else header(path)).tensors[name]
    with open(path, "rb") as handle:
        handle.seek(tensor.start)
        data = handle.read(tensor.bytes)
    if len(data) != tensor.bytes:
        raise Damaged(path, "%s is cut short" % name)
    return tensor.dtype, tensor.shape, data
