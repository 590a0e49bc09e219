"""Pickles, read as data: opcodes are followed on a stack of stand-ins, nothing is imported, built or called.

The walk tells which globals a pickle names, whether it is whole, and, for torch files, which storages and tensors it
describes. Large strings and byte arrays are skipped, never held.
"""

import pickletools
import struct
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, Optional, Tuple

from outlive.artifacts.findings import PARSE_IN_PYTHON, Bad, Layout, Source
from outlive.artifacts.pickle_allow import ALLOWED

HELD_BYTES = 1 << 16
"""Arguments longer than this are skipped; no name or number that matters is."""

MAX_HELD = 5_000_000
"""Stack and memo entries before a pickle counts as too large to follow."""


class Global(NamedTuple):
    """A name that unpickling would import."""

    module: str
    name: str

    @property
    def full(self) -> str:
        return self.module + "." + self.name


class Box:
    """Stands for a container or a built object; keeps only children that can lead to tensors."""

    __slots__ = ("children", "items")

    def __init__(self) -> None:
        self.children: List[Tuple[Any, Any]] = []
        self.items: List[Any] = []


class Call(NamedTuple):
    """What a REDUCE would have called, for the ``build`` hook."""

    function: Any
    args: Any


OPAQUE = object()
"""Stands for any value that does not matter here."""

_MARK = object()

Hook = Callable[[Any], Any]


class Walk:
    """One pickle followed to its STOP. ``root`` is its value as stand-ins, ``globals`` the names it would import.

    ``persist`` turns a persistent id into a stand-in and ``build`` a ``Call`` (returning None for "just a box").
    With ``keep_items`` boxes also keep plain items.
    """

    def __init__(
        self, layout: Layout, persist: Optional[Hook] = None, build: Optional[Hook] = None, keep_items: bool = False
    ) -> None:
        self.globals: Dict[str, None] = {}
        self.root: Any = None
        self._layout = layout
        self._persist = persist
        self._build = build
        self._keep_items = keep_items
        self._stack: List[Any] = []
        self._memo: Dict[int, Any] = {}

    def run(self, f: BinaryIO, end: int) -> int:
        """Follow opcodes from the current position; return the position after STOP.

        Raises ``Bad``: truncated when ``end`` comes first, corrupt when the opcodes make no sense, over_budget.
        """
        position = f.tell()
        start = spent = position
        while True:
            code = f.read(1) if position < end else b""
            if not code:
                raise Bad("truncated", "pickle ends at byte %d without its STOP" % position)
            op = _OPS.get(code)
            if op is None:
                raise Bad("corrupt", "byte %d is no pickle opcode: %r" % (position, code))
            raw, position = _argument(f, op, position + 1, end)
            try:
                done = self._step(op.name, raw)
            except (IndexError, KeyError, ValueError, struct.error, TypeError, UnicodeDecodeError):
                raise Bad("corrupt", "pickle opcode %s before byte %d makes no sense" % (op.name, position))
            if raw is None:
                spent = position  # a skipped argument costs nothing
            if position - spent > HELD_BYTES or done:
                self._layout.spend(position - spent, PARSE_IN_PYTHON)
                spent = position
                if len(self._stack) + len(self._memo) > MAX_HELD:
                    raise Bad("over_budget", "pickle from byte %d holds too many objects to follow" % start)
            if done:
                return position

    def _step(self, name: str, raw: Optional[bytes]) -> bool:
        stack = self._stack
        if name in _INTS:
            stack.append(_integer(name, raw))
        elif name in _STRINGS:
            coding = "raw-unicode-escape" if name == "UNICODE" else "utf-8"
            stack.append(OPAQUE if raw is None else raw.decode(coding, "surrogatepass"))
        elif name in _OPAQUE_PUSHES:
            stack.append(OPAQUE)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memo[_number(name, raw)] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[_number(name, raw)])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET"):
            stack.append(Box())
        elif name == "EMPTY_TUPLE":
            stack.append(())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack.append(tuple([self._pop() for _ in range(count)][::-1]))
        elif name == "TUPLE":
            stack.append(tuple(self._pop_mark()))
        elif name in ("LIST", "FROZENSET"):
            box = Box()
            self._extend(box, self._pop_mark())
            stack.append(box)
        elif name == "DICT":
            box = Box()
            self._set(box, self._pop_mark())
            stack.append(box)
        elif name == "APPEND":
            value = self._pop()
            self._extend(stack[-1], [value])
        elif name in ("APPENDS", "ADDITEMS"):
            values = self._pop_mark()
            self._extend(stack[-1], values)
        elif name == "SETITEM":
            value, key = self._pop(), self._pop()
            self._set(stack[-1], [key, value])
        elif name == "SETITEMS":
            values = self._pop_mark()
            self._set(stack[-1], values)
        elif name == "BUILD":
            state = self._pop()
            for part in state if isinstance(state, tuple) else (state,):
                self._set(stack[-1], ["", part])
        elif name in ("GLOBAL", "INST"):
            module, attribute = (raw or b"").decode("utf-8").split("\n", 1)
            found = self._global(module, attribute)
            stack.append(self._call(found, tuple(self._pop_mark())) if name == "INST" else found)
        elif name == "STACK_GLOBAL":
            attribute, module = self._pop(), self._pop()
            if isinstance(module, str) and isinstance(attribute, str):
                stack.append(self._global(module, attribute))
            else:
                stack.append(self._global("?", "(a computed name)"))
        elif name in ("REDUCE", "NEWOBJ"):
            args, function = self._pop(), self._pop()
            stack.append(self._call(function, args))
        elif name == "NEWOBJ_EX":
            kwargs, args, function = self._pop(), self._pop(), self._pop()
            stack.append(self._call(function, (args, kwargs)))
        elif name == "OBJ":
            parts = self._pop_mark()
            stack.append(self._call(parts[0], tuple(parts[1:])))
        elif name in ("PERSID", "BINPERSID"):
            pid = self._pop() if name == "BINPERSID" else OPAQUE
            stack.append(self._persist(pid) if self._persist else OPAQUE)
        elif name in ("EXT1", "EXT2", "EXT4"):
            stack.append(self._global("copyreg", "(extension %d)" % int.from_bytes(raw or b"", "little")))
        elif name == "POP":
            if stack[-1] is _MARK:
                stack.pop()
            else:
                self._pop()
        elif name == "POP_MARK":
            self._pop_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name == "PROTO":
            if not raw or raw[0] > 5:
                raise ValueError("protocol of the future")
        elif name == "STOP":
            self.root = self._pop()
            return True
        return False

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("mark where a value belongs")
        return value

    def _pop_mark(self) -> List[Any]:
        stack = self._stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError("no mark")
        values = stack[at + 1 :]
        del stack[at:]
        return values

    def _global(self, module: str, name: str) -> Global:
        found = Global(module, name)
        if len(self.globals) < 1000:
            self.globals[found.full] = None
        return found

    def _call(self, function: Any, args: Any) -> Any:
        if self._build is not None:
            built = self._build(Call(function, args))
            if built is not None:
                return built
        box = Box()
        if isinstance(args, tuple):
            self._extend(box, list(args))
        return box

    def _extend(self, box: Any, values: List[Any]) -> None:
        if isinstance(box, Box):
            if self._keep_items:
                box.items.extend(values)
            if self._persist is not None:
                box.children.extend((i, v) for i, v in enumerate(values) if leads_on(v))

    def _set(self, box: Any, pairs: List[Any]) -> None:
        if len(pairs) % 2:
            raise ValueError("a key without value")
        if isinstance(box, Box) and self._persist is not None:
            box.children.extend((k, v) for k, v in zip(pairs[::2], pairs[1::2]) if leads_on(v))


def leads_on(value: Any) -> bool:
    """Return whether a stand-in can hold a tensor below it."""
    return not isinstance(value, (str, int, float, type(None), Global)) and value is not OPAQUE and value != ()


def _argument(f: BinaryIO, op: Any, position: int, end: int) -> Tuple[Optional[bytes], int]:
    """Return (argument, or None when it was skipped; position after it)."""
    if op.arg is None:
        return b"", position
    length = op.arg.n
    if length == pickletools.UP_TO_NEWLINE:
        lines = []
        for _ in range(2 if op.name in ("GLOBAL", "INST") else 1):
            line = f.readline(min(HELD_BYTES, max(end - position, 0)) + 1)
            position += len(line)
            if not line.endswith(b"\n") or position > end:
                if position >= end:
                    raise Bad("truncated", "pickle ends inside the argument of %s" % op.name)
                raise Bad("over_budget", "pickle with a line too long to hold before byte %d" % position)
            lines.append(line[:-1])
        return b"\n".join(lines), position
    if length < 0:
        width, signed = _PREFIX[length]
        prefix = f.read(width) if position + width <= end else b""
        if len(prefix) < width:
            raise Bad("truncated", "pickle ends inside the argument of %s" % op.name)
        position += width
        length = int.from_bytes(prefix, "little", signed=signed)
        if length < 0:
            raise Bad("corrupt", "pickle with a negative length before byte %d" % position)
    if position + length > end:
        raise Bad("truncated", "pickle announces %d bytes at byte %d and has %d" % (length, position, end - position))
    if length > HELD_BYTES:
        f.seek(position + length)
        return None, position + length
    raw = f.read(length)
    if len(raw) < length:
        raise Bad("truncated", "pickle ends inside the argument of %s" % op.name)
    return raw, position + length


_OPS = {op.code.encode("latin-1"): op for op in pickletools.opcodes}
_PREFIX = {
    pickletools.TAKEN_FROM_ARGUMENT1: (1, False),
    pickletools.TAKEN_FROM_ARGUMENT4: (4, True),
    pickletools.TAKEN_FROM_ARGUMENT4U: (4, False),
    pickletools.TAKEN_FROM_ARGUMENT8U: (8, False),
}
_INTS = frozenset({"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"})
_STRINGS = frozenset({"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"})
_OPAQUE_PUSHES = frozenset(
    "NONE NEWTRUE NEWFALSE FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING "
    "BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 NEXT_BUFFER".split()
)


def _number(name: str, raw: Optional[bytes]) -> int:
    if raw is None:
        raise ValueError("an index cannot be that long")
    return int(raw) if name in ("PUT", "GET") else int.from_bytes(raw, "little")


def _integer(name: str, raw: Optional[bytes]) -> Any:
    if raw is None or len(raw) > 300:
        return OPAQUE  # a number of many digits describes no tensor, and converting it can take for ever
    if name in ("INT", "LONG"):
        return int(raw.rstrip(b"L"))
    return int.from_bytes(raw, "little", signed=name in ("BININT", "LONG1", "LONG4"))


def note_globals(layout: Layout, names: Dict[str, None], prefixes: Tuple[str, ...] = ()) -> bool:
    """Add the finding ``pickle_globals`` when ``names`` are not all allowed; return whether they are."""
    foreign = [n for n in names if n not in ALLOWED and not n.startswith(prefixes or ("\0",))]
    if foreign:
        shown = ", ".join(ascii(n)[1:-1][:100] for n in foreign[:5])
        more = " and %d more" % (len(foreign) - 5) if len(foreign) > 5 else ""
        layout.find("pickle_globals", "names code that loading would run: %s%s" % (shown, more))
    return not foreign


def inspect_pickle(source: Source, layout: Layout) -> None:
    """Follow every pickle in the file (several dumps one after another are legal)."""
    position = 0
    names: Dict[str, None] = {}
    try:
        while position < source.size:
            source.f.seek(position)
            walk = Walk(layout)
            try:
                position = walk.run(source.f, source.size)
            finally:
                names.update(walk.globals)
    except Bad as bad:
        # joblib writes raw arrays between opcodes, for its own loader to find: what follows is no pickle, nor damage.
        if bad.code in ("over_budget",) or not any(n.startswith("joblib.") for n in names):
            raise
    finally:
        note_globals(layout, names)
