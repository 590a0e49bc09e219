"""Starts the packed program: finds our modules in one block that is compressed as a whole.

Packed as ``__main__.py`` of the archive. A hundred small files compressed one by one are a third larger, and reading a
zip's directory costs more than unpacking all of it. Modules lie in the order in which a call imports them, and the
block is unpacked only as far as somebody asks; ``outlive.transport.pack`` writes it.
"""

import sys
import zlib
from _thread import allocate_lock
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional

if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from zipimport import zipimporter

BLOCK = "outlive/sources"
FEED_BYTES = 8192


def unpacked(packed: bytes) -> Iterator[bytes]:
    """Yield the lines of a block: first names and sizes, then one module after the other.

    The first line is ``path size path size ...``; the sources follow without anything between them.
    """
    flow = zlib.decompressobj()
    feed = iter([packed[at : at + FEED_BYTES] for at in range(0, len(packed), FEED_BYTES)])
    held = bytearray()
    while b"\n" not in held:
        held += flow.decompress(next(feed))
    head = bytes(held[: held.index(b"\n")])
    yield head
    del held[: len(head) + 1]
    for word in head.split()[1::2]:
        size = int(word)
        while len(held) < size:
            held += flow.decompress(next(feed))
        yield bytes(held[:size])
        del held[:size]


class Block:
    """Finder and loader of the modules in the block; what else is in the archive is read from it as before."""

    def __init__(self, archive: "zipimporter") -> None:
        self.archive = archive
        self.packed = archive.get_data(BLOCK)
        self._flow = unpacked(self.packed)
        self._order = [word.decode("ascii") for word in next(self._flow).split()[::2]]
        self._paths = {module_of(path): path for path in self._order}
        self._next = iter(self._order)
        self._waiting: Dict[str, bytes] = {}
        """Unpacked on the way to a module that was asked for."""
        self._lock = allocate_lock()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        found = self._paths.get(name)
        if found is None:
            return None
        place = self.archive.archive + "/" + found
        package = found.endswith("/__init__.py")
        spec = ModuleSpec(name, self, origin=place, is_package=package)  # type: ignore[arg-type]
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [place.rpartition("/")[0]]
        return spec

    def create_module(self, spec: ModuleSpec) -> Optional["ModuleType"]:
        return None

    def exec_module(self, module: "ModuleType") -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> "CodeType":
        path = self._paths[name]
        place = self.archive.archive + "/" + path
        code: "CodeType" = compile(self._source(path), place, "exec", dont_inherit=True)
        return code

    def get_source(self, name: str) -> Optional[str]:
        """Return a module's text; tracebacks ask for it."""
        return self._again(self._paths[name]).decode("utf-8") if name in self._paths else None

    def get_data(self, path: str) -> bytes:
        """Return a file of data; ``pkgutil.get_data`` asks for it."""
        return self.archive.get_data(path)

    def is_package(self, name: str) -> bool:
        return self._paths[name].endswith("/__init__.py")

    def _source(self, path: str) -> bytes:
        with self._lock:
            while path not in self._waiting:
                try:
                    self._waiting[next(self._next)] = next(self._flow)
                except StopIteration:
                    return self._again(path)  # a module that is imported once more
            return self._waiting.pop(path)

    def _again(self, path: str) -> bytes:
        flow = unpacked(self.packed)
        next(flow)
        return next(source for found, source in zip(self._order, flow) if found == path)


def module_of(path: str) -> str:
    """Return the name of the module in a file of the archive."""
    name = path[: -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


if __name__ == "__main__":
    sys.meta_path.insert(0, Block(__loader__))  # type: ignore[name-defined]
    from outlive.onbox.__main__ import main

    sys.exit(main(sys.argv[1:]))
