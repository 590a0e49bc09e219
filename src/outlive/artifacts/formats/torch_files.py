"""What ``torch.save`` writes: the zip of today and the row of pickles of before 1.6. Torch is neither needed nor named.

The pickle is followed as data; it tells which bytes of which storage each tensor covers, so that extents can be
compared with the file and values scanned where tensors really are: the rest of a storage may be uninitialised memory.
"""

import io
import struct
import zipfile
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from outlive.artifacts.findings import Bad, Layout, Source, Values
from outlive.artifacts.formats.pickles import OPAQUE, Box, Call, Global, Walk, note_globals
from outlive.artifacts.formats.zips import archives, check_entries, entry_offset, plain, read_entry
from outlive.artifacts.pickle_allow import DTYPES, ITEM_BYTES, PARTS, STORAGES

LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class Storage(NamedTuple):
    """A storage as a persistent id describes it."""

    element: str
    key: str
    location: str
    items: int

    @property
    def nbytes(self) -> int:
        return self.items * ITEM_BYTES[self.element]


class Tensor(NamedTuple):
    """The part of a storage that a tensor covers: from ``first`` to before ``last``, counted in elements."""

    storage: Storage
    element: str
    first: int
    last: int


def persist(pid: Any) -> Any:
    """Turn ``('storage', class, key, location, items, ...)`` into a ``Storage``; anything else is opaque."""
    if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], Global)):
        return OPAQUE
    element = STORAGES.get(pid[1].name)
    key, location, items = pid[2], pid[3], pid[4]
    if element is None or not isinstance(items, int) or items < 0:
        return OPAQUE
    return Storage(element, str(key), str(location), items)


def build(call: Call) -> Any:
    """Turn a call of the tensor rebuilders into a ``Tensor``; None for every other call."""
    if not isinstance(call.function, Global) or not isinstance(call.args, tuple):
        return None
    name, args = call.function.name, call.args
    if name == "_rebuild_from_type_v2" and len(args) >= 3:
        return build(Call(args[0], args[2])) if isinstance(args[2], tuple) else None
    if name in ("_rebuild_parameter", "_rebuild_parameter_with_state") and args and isinstance(args[0], Tensor):
        return args[0]
    if name not in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"):
        return None
    if len(args) < 4 or not isinstance(args[0], Storage):
        return None
    storage, offset, shape, stride = args[:4]
    element = storage.element
    if name == "_rebuild_tensor_v3":
        dtype = args[6] if len(args) > 6 else None
        element = DTYPES.get(dtype.name, "") if isinstance(dtype, Global) else ""
    numbers = [offset, *shape, *stride] if isinstance(shape, tuple) and isinstance(stride, tuple) else [None]
    if not element or not all(isinstance(n, int) and n >= 0 for n in numbers) or len(shape) != len(stride):
        return None
    last = offset if 0 in shape else offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride))
    item = ITEM_BYTES[element]
    if last * item > storage.nbytes:
        raise Bad(
            "corrupt",
            "a tensor of %d bytes reaches outside storage %r of %d" % (last * item, storage.key, storage.nbytes),
        )
    return Tensor(storage, element, offset, last)


def named_tensors(root: Any) -> List[Tuple[str, Tensor]]:
    """Return (path such as ``optimizer.state.0.exp_avg``, tensor) for all tensors below ``root``."""
    found: List[Tuple[str, Tensor]] = []
    seen = set()
    pending: List[Tuple[str, Any]] = [("", root)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, Tensor):
            found.append((path or "tensor", value))
        elif isinstance(value, Storage):
            found.append((path or "storage", Tensor(value, value.element, 0, value.items)))
        elif isinstance(value, (Box, tuple)):
            if id(value) in seen:
                continue
            seen.add(id(value))
            children = value.children if isinstance(value, Box) else list(enumerate(value))
            for key, child in reversed(children):
                step = str(key) if isinstance(key, (str, int)) else "?"
                pending.append((path + "." + step if path and step else path or step, child))
    return found


def place_values(layout: Layout, offsets: Dict[str, int], tensors: List[Tuple[str, Tensor]], little: bool) -> None:
    """Add the float stretches that ``tensors`` cover; each byte once, under the first name that covers it."""
    by_key: Dict[str, List[Tuple[int, int, str, str]]] = {}
    for name, tensor in tensors:
        form = PARTS.get(tensor.element, tensor.element)
        item = ITEM_BYTES[tensor.element]
        if not form.startswith("i") and tensor.last > tensor.first and tensor.storage.key in offsets:
            span = (tensor.first * item, tensor.last * item, name, form)
            by_key.setdefault(tensor.storage.key, []).append(span)
    for key, spans in by_key.items():
        end = 0
        for first, last, name, form in sorted(spans, key=lambda s: s[:2]):
            first = max(first, end)
            if first < last:
                layout.values.append(Values(offsets[key] + first, last - first, form, little, name))
                end = last


def inspect_torch_zip(source: Source, layout: Layout) -> None:
    """Check entries, opcodes and extents of a torch zip, or of several behind each other (distributed checkpoints)."""
    for archive in archives(source):
        check_entries(source, archive, layout)
        _inspect_archive(source, archive, layout)


def _inspect_archive(source: Source, archive: zipfile.ZipFile, layout: Layout) -> None:
    entries = {info.filename: info for info in archive.infolist()}
    pickle_name = next((n for n in entries if n == "data.pkl" or n.endswith("/data.pkl")), None)
    if pickle_name is None:
        layout.find("corrupt", "torch archive without data.pkl")
        return
    top = pickle_name[: -len("data.pkl")]
    script = any(n.startswith(top + "code/") for n in entries)
    raw = read_entry(archive, entries[pickle_name], layout)
    order = entries.get(top + "byteorder")
    little = order is None or read_entry(archive, order, layout).strip() != b"big"
    walk = Walk(layout, persist, build)
    try:
        walk.run(io.BytesIO(raw), len(raw))
    except Bad as bad:
        # The entry has its whole length by the directory, so a pickle that stops short was damaged, not cut.
        raise Bad("corrupt" if bad.code == "truncated" else bad.code, "%s: %s" % (pickle_name, bad.text))
    finally:
        note_globals(layout, walk.globals, ("__torch__.",) if script else ())
    offsets: Dict[str, int] = {}
    tensors = named_tensors(walk.root)
    for _, tensor in tensors:
        storage = tensor.storage
        if storage.key in offsets or storage.location == "meta":
            continue
        info = entries.get(top + "data/" + storage.key)
        if info is None:
            raise Bad("corrupt", "storage %r is named by the pickle and missing in the archive" % storage.key)
        if info.file_size < storage.nbytes:
            raise Bad(
                "corrupt", "storage %r has %d bytes, %d belong there" % (storage.key, info.file_size, storage.nbytes)
            )
        if plain(info):
            offsets[storage.key] = entry_offset(source, info)
        elif layout.want_tensors:
            layout.find("unknown_type", "compressed storages are not scanned for values", "structure")
    if layout.want_tensors:
        place_values(layout, offsets, tensors, little)


def inspect_torch_legacy(source: Source, layout: Layout) -> None:
    """Check the pickles and the row of storages of a file by torch before 1.6."""
    f = source.f
    position = 0
    walks: List[Walk] = []
    names: Dict[str, None] = {}
    try:
        for n in range(5):  # magic, protocol, machine, the object, the keys of its storages
            f.seek(position)
            walk = Walk(layout, persist, build, keep_items=n == 4)
            try:
                position = walk.run(f, source.size)
            finally:
                names.update(walk.globals)
            walks.append(walk)
    finally:
        note_globals(layout, names)
    keys = walks[4].root
    if not isinstance(keys, Box):
        raise Bad("corrupt", "the list of storages is no list")
    tensors = named_tensors(walks[3].root)
    storages: Dict[str, Storage] = {tensor.storage.key: tensor.storage for _, tensor in tensors}
    offsets: Dict[str, int] = {}
    for key in keys.items:
        storage: Optional[Storage] = storages.get(str(key))
        if storage is None:
            layout.find("unknown_type", "storage %.60r belongs to no tensor, its extent is unknown" % (key,))
            return
        (items,) = struct.unpack("<q", source.at(position, 8))
        position += 8
        if items != storage.items:
            raise Bad("corrupt", "storage %r has %d values, the pickle says %d" % (storage.key, items, storage.items))
        offsets[storage.key] = position
        position += storage.nbytes
        if position > source.size:
            raise Bad("truncated", "storage %r ends at byte %d of %d" % (storage.key, position, source.size))
    missing = [key for key in storages if key not in offsets and storages[key].location != "meta"]
    if missing:
        raise Bad("corrupt", "storage %r is named by the pickle and not in the file" % missing[0])
    if position < source.size:
        layout.find("corrupt", "%d bytes after the last storage" % (source.size - position))
    if layout.want_tensors:
        place_values(layout, offsets, tensors, True)
