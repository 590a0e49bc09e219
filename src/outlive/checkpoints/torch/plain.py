"""Values as plain types and tensors, so that ``torch.load(weights_only=True)`` reads them and no pickle runs code."""

import collections
from typing import Any, Callable, Dict, Optional

import torch


class NotPlain(TypeError):
    """A value cannot be kept without a pickle that runs code. ``where`` is its path in the state."""

    def __init__(self, where: str, value: Any) -> None:
        kind = "%s.%s" % (type(value).__module__, type(value).__qualname__)
        super().__init__(
            "%s is a %s: checkpoints hold numbers, text, lists, dicts and tensors only. "
            "Nothing was saved. Give it a state_dict() of these, or leave it out." % (where, kind)
        )
        self.where = where


def plain(value: Any, where: str, drop: Optional[Callable[[Any], bool]] = None) -> Any:
    """Return ``value`` as plain types and detached tensors (not copied). Raises ``NotPlain`` with the path.

    Containers become dict, list or tuple; NumPy scalars become numbers and arrays tensors. With ``drop``, dict
    entries whose value it accepts are left out.
    """
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, torch.Size):
        return tuple(int(n) for n in value)
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    kind: Any
    for kind in (bool, int, float, str, bytes):  # an IntEnum, numpy.float64, a version that is a str
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, collections.abc.Mapping):
        return {
            _key(k, where): plain(v, "%s.%s" % (where, k), drop)
            for k, v in value.items()
            if drop is None or not drop(v)
        }
    if isinstance(value, tuple):
        return tuple(plain(v, "%s[%d]" % (where, i), drop) for i, v in enumerate(value))
    if isinstance(value, (list, collections.deque)):
        return [plain(v, "%s[%d]" % (where, i), drop) for i, v in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v, where, drop) for v in value), key=repr)
    if type(value).__module__ == "numpy":
        if getattr(value, "ndim", 0) == 0:
            return plain(value.item(), where, drop)
        if value.dtype.kind in "biufc":
            return torch.from_numpy(value.copy())
    raise NotPlain(where, value)


def _key(key: Any, where: str) -> Any:
    if key is None or type(key) in (bool, int, float, str):
        return key
    if isinstance(key, tuple):
        return tuple(_key(k, where) for k in key)
    for kind in (int, float, str):
        if isinstance(key, kind):
            return kind(key)
    raise NotPlain("a key of " + where, key)


def shaped_like(current: Any, saved: Any) -> Any:
    """Return ``saved`` with the container types that ``current`` has at the same places (Counter, deque, set ...)."""
    if isinstance(saved, dict):
        have = current if isinstance(current, collections.abc.Mapping) else {}
        out: Dict[Any, Any] = {k: shaped_like(have.get(k), v) for k, v in saved.items()}
        if isinstance(current, collections.defaultdict):
            return collections.defaultdict(current.default_factory, out)
        if isinstance(current, (collections.Counter, collections.OrderedDict)):
            return type(current)(out)
        return out
    if isinstance(saved, list):
        if isinstance(current, (set, frozenset)):
            return type(current)(saved)
        if isinstance(current, collections.deque):
            return collections.deque(saved, current.maxlen)
        have_list = current if isinstance(current, list) else []
        return [shaped_like(have_list[i] if i < len(have_list) else None, v) for i, v in enumerate(saved)]
    return saved
