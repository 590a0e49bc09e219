"""Starts the packed program: finds our modules in one block that is compressed as a whole.

Packed as ``__main__.py`` of the archive. A hundred small files compressed one by one are a third larger, and reading a
zip's directory costs more than unpacking all of it. Modules lie in the order in which a call imports them, and the
block is unpacked only as far as somebody asks; ``outlive.transport.pack`` writes it.

Compiling what a call imports takes longer than the call. So the bytecode is kept in one file beside the program, for
each version of Python one, grown by whoever had to compile something. It is a cache: checked by length and sum, left
alone where it cannot be written, and made anew when it is torn or of another Python.
"""

import marshal
import os
import sys
import zlib
from _thread import allocate_lock
from importlib._bootstrap_external import MAGIC_NUMBER
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from zipimport import zipimporter

BLOCK = "outlive/sources"
FEED_BYTES = 8192
PREFIX = "supervisor-"
SUFFIX = ".pyz"
MAX_KEPT_BYTES = 16 << 20


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
        self._lock = allocate_lock()
        self._opened = False
        self._waiting: Dict[str, bytes] = {}
        """Unpacked on the way to a module that was asked for."""
        self._kept = Kept(archive.archive)
        self._paths = {module_of(path): path for path in self._kept.order}
        if not self._paths:
            self._open()

    def _open(self) -> None:
        """Read the block itself; a start that finds all its bytecode never does."""
        if self._opened:
            return
        self._opened = True
        self.packed = self.archive.get_data(BLOCK)
        self._flow = unpacked(self.packed)
        self._order = [word.decode("ascii") for word in next(self._flow).split()[::2]]
        self._paths = {module_of(path): path for path in self._order}
        self._next = iter(self._order)
        self._kept.order = self._order

    def keep(self) -> None:
        """Write down what had to be compiled, for the next start."""
        self._kept.write()

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
        code = self._kept.get(path)
        if code is None:
            place = self.archive.archive + "/" + path
            code = compile(self._source(path), place, "exec", dont_inherit=True)
            self._kept.add(path, code)
        return code

    def get_source(self, name: str) -> Optional[str]:
        """Return a module's text; tracebacks ask for it."""
        self._open()
        return self._again(self._paths[name]).decode("utf-8") if name in self._paths else None

    def get_data(self, path: str) -> bytes:
        """Return a file of data; ``pkgutil.get_data`` asks for it."""
        return self.archive.get_data(path)

    def is_package(self, name: str) -> bool:
        return self._paths[name].endswith("/__init__.py")

    def _source(self, path: str) -> bytes:
        with self._lock:
            self._open()
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


class Kept:
    """The bytecode of a program's modules, for the Python that runs it, in one file beside it."""

    def __init__(self, program: str) -> None:
        self.path = ""
        name = os.path.basename(program)
        tag = sys.implementation.cache_tag
        # only under a digest's name: such a program is never replaced by another one
        if tag and name.startswith(PREFIX) and name.endswith(SUFFIX) and not sys.flags.optimize:
            self.path = "%s.%s.code" % (program[: -len(SUFFIX)], tag)
        self._program = program
        self._grown = False
        self.order, self._codes = self._read()

    def get(self, path: str) -> Optional["CodeType"]:
        found = self._codes.get(path)
        if found is None:
            return None
        code: "CodeType" = marshal.loads(found)
        return code

    def add(self, path: str, code: "CodeType") -> None:
        if self.path:
            self._codes[path] = marshal.dumps(code)
            self._grown = True

    def _head(self, body: bytes) -> bytes:
        """What stands before the bytecode: whose it is, and what it must sum up to."""
        size = os.stat(self._program).st_size
        return MAGIC_NUMBER + b"%d %d %d\n" % (size, len(body), zlib.crc32(body))

    def _read(self) -> Tuple[List[str], Dict[str, bytes]]:
        """Return the paths of all modules, and the bytecode of those that are kept."""
        if not self.path:
            return [], {}
        try:
            with open(self.path, "rb") as handle:
                data = handle.read(MAX_KEPT_BYTES)
            body = data[data.index(b"\n", len(MAGIC_NUMBER)) + 1 :]
            if data != self._head(body) + body:
                return [], {}
            order, codes = marshal.loads(body)
            return order, codes
        except (OSError, ValueError, EOFError, TypeError):
            return [], {}

    def write(self) -> None:
        """Write it aside and rename it; where that fails it is tried by the next start."""
        if not self._grown:
            return
        self._grown = False
        aside = "%s.%d.part" % (self.path, os.getpid())
        try:
            body = marshal.dumps((self.order, self._codes))
            data = self._head(body) + body
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                whole = os.write(fd, data) == len(data)
            finally:
                os.close(fd)
            if whole:
                os.rename(aside, self.path)
            else:
                os.unlink(aside)
        except OSError:
            try:
                os.unlink(aside)
            except OSError:
                pass  # it was never made, or the disk takes nothing at all


def module_of(path: str) -> str:
    """Return the name of the module in a file of the archive."""
    name = path[: -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


if __name__ == "__main__":
    block = Block(__loader__)  # type: ignore[name-defined]
    sys.meta_path.insert(0, block)
    from outlive.onbox.__main__ import entry

    work = entry(sys.argv[1:])
    block.keep()
    status = work()
    if sys.argv[1:2] == ["call"]:
        block.keep()  # with what the call itself imported
    sys.exit(status)
