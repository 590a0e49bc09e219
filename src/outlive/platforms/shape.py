"""From plain data to the classes of ``model``, with every fault named by its path. Nothing else reads annotations."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from outlive.errors import nearest
from outlive.platforms.model import Like, OneOf, Text

Faults = list[tuple[str, str]]
"""(path, what is wrong), for instance (``tiers[0].path``, ``missing``)."""

Reader = Callable[[Any, str, Faults], Any]

_readers: dict[type, dict[str, Reader]] = {}


def build(cls: type[Any], data: Any, at: str, faults: Faults) -> Any:
    """Return an instance of ``cls`` made from ``data``, or None after adding what is wrong to ``faults``.

    A missing key, an unknown key, a wrong type and a word outside its vocabulary are faults; nothing is defaulted.
    """
    if cls is Text and isinstance(data, str):
        data = {"en": data, "zh": None}
    if not isinstance(data, Mapping):
        faults.append((at, f"must be a mapping, is {_kind(data)}"))
        return None
    readers = _readers.get(cls) or _prepare(cls)
    before = len(faults)
    values: dict[str, Any] = {}
    for name, read in readers.items():
        where = f"{at}.{name}" if at else name
        if name in data:
            values[name] = read(data[name], where, faults)
        else:
            faults.append((where, "missing"))
    if len(data) != len(values):
        for name in data:
            if name not in readers:
                near = nearest(str(name), readers)
                hint = f"; did you mean `{near}`?" if near else ""
                faults.append((f"{at}.{name}" if at else str(name), f"no such key{hint}"))
    return cls(**values) if len(faults) == before else None


def keys(cls: type[Any]) -> list[str]:
    """Return the keys that data for ``cls`` must have, in the order in which files write them."""
    return [f.name for f in dataclasses.fields(cls) if not f.metadata.get("runtime")]


def _prepare(cls: type[Any]) -> dict[str, Reader]:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [f for f in dataclasses.fields(cls) if not f.metadata.get("runtime")]
    _readers[cls] = {f.name: _reader(hints[f.name]) for f in fields}
    return _readers[cls]


def _reader(kind: Any, rule: OneOf | Like | None = None) -> Reader:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        kind, rule = typing.get_args(kind)
        return _reader(kind, rule)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (a for a in typing.get_args(kind) if a is not types.NoneType)
        read = _reader(inner, rule)
        return lambda value, at, faults: None if value is None else read(value, at, faults)
    if origin is tuple:
        return _list_reader(_reader(typing.get_args(kind)[0], rule))
    if origin is dict:
        return _read_words
    if dataclasses.is_dataclass(kind):
        cls = typing.cast("type[Any]", kind)
        return lambda value, at, faults: build(cls, value, at, faults)
    if kind is str:
        return _string_reader(rule)
    return {int: _read_int, float: _read_number, bool: _read_bool}[kind]


def _list_reader(read: Reader) -> Reader:
    def read_list(value: Any, at: str, faults: Faults) -> Any:
        if not isinstance(value, (list, tuple)):
            faults.append((at, f"must be a list, is {_kind(value)}"))
            return ()
        return tuple([read(item, f"{at}[{i}]", faults) for i, item in enumerate(value)])

    return read_list


def _string_reader(rule: OneOf | Like | None) -> Reader:
    choices = rule.choices if isinstance(rule, OneOf) else None
    pattern = rule.pattern if isinstance(rule, Like) else None

    def read_string(value: Any, at: str, faults: Faults) -> Any:
        if not isinstance(value, str):
            faults.append((at, f"must be a string, is {_kind(value)}"))
        elif choices is not None and value not in choices:
            near = nearest(value, choices)
            faults.append((at, f"`{value}` is not one of {', '.join(choices)}" + (f"; `{near}`?" if near else "")))
        elif pattern is not None and not pattern.search(value):
            faults.append((at, f"`{value}` does not look like {pattern.pattern}"))
        elif not value.strip() and not at.endswith((".name", ".match")):
            faults.append((at, "empty"))
        return value

    return read_string


def _read_words(value: Any, at: str, faults: Faults) -> Any:
    if not isinstance(value, Mapping) or not all(isinstance(x, str) for pair in value.items() for x in pair):
        faults.append((at, "must map strings to strings"))
        return {}
    return dict(value)


def _read_int(value: Any, at: str, faults: Faults) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        faults.append((at, f"must be a whole number, is {_kind(value)}"))
    return value


def _read_number(value: Any, at: str, faults: Faults) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        faults.append((at, f"must be a number, is {_kind(value)}"))
    return value


def _read_bool(value: Any, at: str, faults: Faults) -> Any:
    if not isinstance(value, bool):
        faults.append((at, f"must be true or false, is {_kind(value)}"))
    return value


def _kind(value: Any) -> str:
    names = {str: "a string", dict: "a mapping", list: "a list", bool: "true/false", type(None): "null"}
    return names.get(type(value), type(value).__name__)
