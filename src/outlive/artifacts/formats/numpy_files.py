"""npy and npz."""

import ast
import io
import re
import zipfile
from typing import Any, BinaryIO, NamedTuple, Optional

from outlive.artifacts.findings import Bad, Layout, Source, Values
from outlive.artifacts.formats.pickles import Walk, note_globals
from outlive.artifacts.formats.zips import archives, check_entries, entry_offset, plain, read_full
from outlive.artifacts.tensors import ValueScan

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 1 << 16

_SIMPLE = re.compile(r"([<>|=]?)([a-zA-Z])(\d*)(\[[^\]]*\])?")
_FORMS = {"f2": "f16", "f4": "f32", "f8": "f64", "c8": "f32", "c16": "f64"}


class Header(NamedTuple):
    """What precedes the values of an array."""

    nbytes: int
    data_bytes: Optional[int]
    """Size of the values; None for pickled objects and for types that are not known."""
    form: str
    """Key of ``tensors.FORMS``; empty when the values are no floats."""
    little: bool
    objects: bool


def read_header(stream: BinaryIO) -> Header:
    """Read magic, version and header; raises ``Bad`` truncated or corrupt."""
    start = _exactly(stream, 8)
    if start[:6] != MAGIC:
        raise Bad("corrupt", "no npy signature")
    if start[6] not in (1, 2, 3):
        raise Bad("corrupt", "npy version %d" % start[6])
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(_exactly(stream, width), "little")
    if length > MAX_HEADER_BYTES:
        raise Bad("corrupt", "npy header of %d bytes" % length)
    text = _exactly(stream, length).decode("utf-8" if start[6] == 3 else "latin-1", "replace")
    if text.count("(") + text.count("[") + text.count("{") > 2000 or _depth(text) > 30:
        raise Bad("corrupt", "npy header is nested beyond sense")
    try:
        fields = ast.literal_eval(text.strip())
        descr, shape = fields["descr"], fields["shape"]
        count = 1
        for n in shape:
            if type(n) is not int or n < 0:
                raise ValueError("shape")
            count = min(count * n, 1 << 62)
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        raise Bad("corrupt", "npy header makes no sense: %.60r" % text)
    item = _item_bytes(descr)
    objects = "O" in repr(descr) and item is None
    simple = _SIMPLE.fullmatch(descr) if isinstance(descr, str) else None
    return Header(
        8 + width + length,
        None if item is None else item * count,
        _FORMS.get(simple.group(2) + simple.group(3), "") if simple else "",
        not (simple and simple.group(1) == ">"),
        objects,
    )


def _exactly(stream: BinaryIO, nbytes: int) -> bytes:
    data = read_full(stream, nbytes)
    if len(data) < nbytes:
        raise Bad("truncated", "npy ends inside its header")
    return data


def _depth(text: str) -> int:
    deepest = depth = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _item_bytes(descr: Any) -> Optional[int]:
    """Bytes of one element by its numpy type description; None when unknown or an object."""
    if isinstance(descr, str):
        match = _SIMPLE.fullmatch(descr)
        if match is None or match.group(2) == "O":
            return None
        size = int(match.group(3) or "1")
        return size * 4 if match.group(2) == "U" else size
    if isinstance(descr, tuple) and len(descr) == 2:
        return _shaped(descr[0], descr[1])
    if isinstance(descr, list):
        total = 0
        for part in descr:
            if not isinstance(part, tuple) or len(part) not in (2, 3):
                return None
            size_of = _shaped(part[1], part[2] if len(part) == 3 else ())
            if size_of is None:
                return None
            total += size_of
        return total
    return None


def _shaped(descr: Any, shape: Any) -> Optional[int]:
    size = _item_bytes(descr)
    for n in shape if isinstance(shape, tuple) else (shape,):
        if size is None or type(n) is not int or n < 0:
            return None
        size *= n
    return size


def inspect_npy(source: Source, layout: Layout) -> None:
    """Check one array, or several saved behind each other into one file."""
    position = 0
    while True:
        source.f.seek(position)
        header = read_header(source.f)
        position += header.nbytes
        if header.data_bytes is None:
            _pickled(source.f, source.size, position, header, layout, whole=True)
            return
        if position + header.data_bytes > source.size:
            raise Bad("truncated", "array needs %d bytes, %d are there" % (header.data_bytes, source.size - position))
        if layout.want_tensors and header.form:
            layout.values.append(Values(position, header.data_bytes, header.form, header.little, source.name))
        position += header.data_bytes
        if position == source.size:
            return
        source.f.seek(position)
        if source.f.read(6) != MAGIC[: source.size - position]:
            raise Bad("corrupt", "%d bytes after the array" % (source.size - position))


def _pickled(f: BinaryIO, end: int, position: int, header: Header, layout: Layout, whole: bool) -> None:
    if not header.objects:
        layout.find("unknown_type", "array of a type whose size is not known")
        return
    if not whole:
        layout.find("unknown_type", "compressed array of objects was not followed")
        return
    f.seek(position)
    walk = Walk(layout)
    try:
        stop = walk.run(f, end)
    finally:
        note_globals(layout, walk.globals)
    if stop != end:
        raise Bad("corrupt", "%d bytes after the pickled objects" % (end - stop))


class _Sink:
    """Follows a compressed array while it is unpacked."""

    def __init__(self, name: str, layout: Layout) -> None:
        self.name = name
        self._layout = layout
        self._header: Optional[Header] = None
        self._got = 0
        self._scan: Optional[ValueScan] = None
        self._rest = b""

    def __call__(self, block: bytes) -> None:
        if self._header is None:
            self._header = read_header(io.BytesIO(block))
            if self._header.form and self._layout.want_tensors:
                self._scan = ValueScan(self.name, self._header.form, self._header.little)
            block = block[self._header.nbytes :]
        self._got += len(block)
        if self._scan is not None:
            block = self._rest + block
            whole = len(block) - len(block) % 8
            self._scan.feed(block[:whole])
            self._rest = block[whole:]

    def close(self) -> None:
        if self._header is None:
            raise Bad("corrupt", "entry %r is empty" % self.name)
        if self._header.data_bytes is None:
            _pickled(io.BytesIO(), 0, 0, self._header, self._layout, whole=False)
        elif self._got != self._header.data_bytes:
            raise Bad("corrupt", "array %r has %d bytes, not %d" % (self.name, self._got, self._header.data_bytes))
        if self._scan is not None:
            self._scan.feed(self._rest)
            sentence = self._scan.sentence()
            if sentence:
                self._layout.find("nonfinite", sentence, "structure")


def inspect_npz(source: Source, layout: Layout) -> None:
    """Check the entries of an npz and every array in it."""
    for archive in archives(source):
        sinks = {i.filename: _Sink(i.filename[:-4], layout) for i in archive.infolist() if _packed_array(i)}
        check_entries(source, archive, layout, sinks)
        for sink in sinks.values():
            sink.close()
        for info in archive.infolist():
            if plain(info) and info.filename.endswith(".npy"):
                _stored(source, info, layout)


def _packed_array(info: zipfile.ZipInfo) -> bool:
    return info.filename.endswith(".npy") and not plain(info)


def _stored(source: Source, info: zipfile.ZipInfo, layout: Layout) -> None:
    begin = entry_offset(source, info)
    end = begin + info.file_size
    source.f.seek(begin)
    name = info.filename[:-4]
    header = read_header(source.f)
    if header.data_bytes is None:
        _pickled(source.f, end, begin + header.nbytes, header, layout, whole=True)
        return
    if header.nbytes + header.data_bytes != info.file_size:
        have = info.file_size - header.nbytes
        raise Bad("corrupt", "array %r has %d bytes, not %d" % (name, have, header.data_bytes))
    if layout.want_tensors and header.form:
        layout.values.append(Values(begin + header.nbytes, header.data_bytes, header.form, header.little, name))
