"""safetensors: a JSON header, then the tensors without gap or overlap."""

import json
import struct
from typing import Any, Dict, List, Tuple

from outlive.artifacts.findings import Bad, Layout, Source, Values

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

DTYPE_BITS: Dict[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
FORM_OF: Dict[str, str] = {
    "F64": "f64",
    "F32": "f32",
    "C64": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "F8_E5M2": "f8_e5m2",
    "F8_E4M3": "f8_e4m3",
}


def looks_like(head: bytes, size: int) -> bool:
    """Return whether a file starts with a plausible header length and the brace of the header."""
    if len(head) < 9 or head[8:9] != b"{":
        return False
    return 2 <= int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES


def _no_twins(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name occurs twice")
    return names


def inspect_safetensors(source: Source, layout: Layout) -> None:
    """Check header, element sizes and that the tensors fill the file exactly."""
    (header_bytes,) = struct.unpack("<Q", source.at(0, 8))
    if header_bytes > MAX_HEADER_BYTES:
        raise Bad("corrupt", "header of %d bytes is beyond what the format allows" % header_bytes)
    layout.spend(header_bytes, 4)
    try:
        header = json.loads(source.at(8, header_bytes).decode("utf-8"), object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as err:
        raise Bad("corrupt", "header is no JSON: %s" % err)
    if not isinstance(header, dict):
        raise Bad("corrupt", "header is no JSON object")
    header.pop("__metadata__", None)
    begin = 8 + header_bytes
    rows = sorted(_row(name, entry, layout) for name, entry in header.items())
    end = 0
    for first, last, name, dtype in rows:
        if first != end:
            raise Bad("corrupt", "tensor %r %s" % (name, "overlaps another" if first < end else "follows a hole"))
        end = last
        if layout.want_tensors and dtype in FORM_OF:
            layout.values.append(Values(begin + first, last - first, FORM_OF[dtype], True, name))
    if begin + end > source.size:
        raise Bad("truncated", "tensors end at byte %d, the file at %d" % (begin + end, source.size))
    if begin + end < source.size:
        raise Bad("corrupt", "%d bytes after the last tensor" % (source.size - begin - end))


def _row(name: str, entry: Any, layout: Layout) -> Tuple[int, int, str, str]:
    try:
        dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [first, last, *shape]
        sound = isinstance(dtype, str) and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers) and first <= last
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise Bad("corrupt", "tensor %r has no sound dtype, shape and offsets" % name)
    bits = DTYPE_BITS.get(dtype)
    if bits is None:
        layout.find("unknown_type", "tensor %r has the unknown dtype %.40r" % (name, dtype))
        return first, last, name, ""
    for n in shape:
        bits = min(bits * n, 1 << 70)
    if bits != (last - first) * 8:
        raise Bad("corrupt", "tensor %r has %d bytes, its shape needs %d" % (name, last - first, (bits + 7) // 8))
    return first, last, name, dtype
