"""Level ``tensors``: NaN and infinity in raw float values, at the speed of the C inside the standard library.

A value is not finite when all bits of its exponent are set. Those bits sit in one or two bytes of each value, so a
strided slice (``block[3::4]``) gathers the bytes that can give it away, and ``in`` (memchr) finds that none does:
healthy tensors cost one slice and two searches. Only blocks with a suspect are counted, by turning each byte plane
into zeros and ones and joining the planes as one large integer.
"""

from typing import Dict, List, NamedTuple, Tuple


class Form(NamedTuple):
    """How a float type is laid out; one mask per byte, least significant byte first."""

    itemsize: int
    exponent: Tuple[int, ...]
    has_inf: bool = True


FORMS: Dict[str, Form] = {
    "f64": Form(8, (0, 0, 0, 0, 0, 0, 0xF0, 0x7F)),
    "f32": Form(4, (0, 0, 0x80, 0x7F)),
    "bf16": Form(2, (0x80, 0x7F)),
    "f16": Form(2, (0, 0x7C)),
    "f8_e5m2": Form(1, (0x7C,)),
    "f8_e4m3": Form(1, (0x7F,), False),
}
"""Float types whose values are scanned; a complex number is two of them."""

BLOCK_BYTES = 1 << 20
"""Feed at most this many bytes at a time, a multiple of every item size."""

_SIGN = 0x80


def _flags(keep: "List[int]") -> bytes:
    marked = bytearray(256)
    for value in keep:
        marked[value] = 1
    return bytes(marked)


def _set_bits(mask: int) -> bytes:
    return _flags([b for b in range(256) if b & mask == mask])


def _clear_bits(mask: int) -> bytes:
    return _flags([b for b in range(256) if not b & mask])


class ValueScan:
    """Counts the non-finite values of one tensor, fed in blocks of whole values."""

    def __init__(self, name: str, form: str, little: bool = True) -> None:
        self.name = name
        self.nan = 0
        self.infinite = 0
        self.negative_infinite = 0
        self.values = 0
        self._form = FORMS[form]
        self._little = little
        self._other = False  # a value that is neither 0 nor -inf was seen
        top = self._form.itemsize - 1
        self._top = top if little else 0
        mask = self._form.exponent[top]
        self._suspects = [b for b in range(256) if b & mask == mask]

    def feed(self, block: bytes) -> None:
        """Scan ``block`` (bytes or bytearray); a trailing part of a value is ignored."""
        size = self._form.itemsize
        self.values += len(block) // size
        high = block[self._top :: size]
        if any(b in high for b in self._suspects):
            self._count(block)
        elif not self._other:
            self._other = bool(block.strip(b"\0"))

    def _plane(self, block: bytes, byte: int, table: bytes) -> int:
        size = self._form.itemsize
        start = byte if self._little else size - 1 - byte
        whole = len(block) - len(block) % size
        return int.from_bytes(block[start:whole:size].translate(table), "little")

    def _count(self, block: bytes) -> None:
        n = len(block) // self._form.itemsize
        exponent = self._form.exponent
        bad = -1
        for byte, mask in enumerate(exponent):
            if mask:
                bad &= self._plane(block, byte, _set_bits(mask))
        if not bad:
            self._other = True
            return
        infinite, zero = (bad if self._form.has_inf else 0), -1
        top = len(exponent) - 1
        for byte, mask in enumerate(exponent):
            mantissa = 0xFF & ~mask & ~(_SIGN if byte == top else 0)
            if infinite and mantissa:
                infinite &= self._plane(block, byte, _clear_bits(mantissa))
            zero &= self._plane(block, byte, _clear_bits(0xFF))
        negative = infinite & self._plane(block, top, _set_bits(_SIGN)) if infinite else 0
        total, inf, below, zeros = (x.to_bytes(n, "little").count(1) for x in (bad, infinite, negative, zero))
        self.nan += total - inf
        self.infinite += inf
        self.negative_infinite += below
        self._other = self._other or below + zeros < n

    @property
    def is_mask(self) -> bool:
        """Only +0 and -inf, at least one of them -inf: an attention mask, saved with many models on purpose."""
        return bool(self.negative_infinite) and not self._other and not self.nan

    def sentence(self) -> str:
        """What is wrong with the tensor; empty when nothing is."""
        if not (self.nan or self.infinite) or self.is_mask:
            return ""
        parts = []
        if self.nan:
            parts.append("%d NaN" % self.nan)
        if self.infinite:
            parts.append("%d infinite" % self.infinite)
        return "tensor %r: %s of %d values" % (self.name, " and ".join(parts), self.values)
