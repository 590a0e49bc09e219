"""The whole state of a training: taken as plain types and tensors, compared before anything is changed, put back.

``capture`` copies nothing; the tensors in its result are the live ones (``snapshot`` copies them). ``compare`` is pure.
"""

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from outlive.checkpoints.errors import Mismatch
from outlive.checkpoints.torch import rng
from outlive.checkpoints.torch.plain import plain, shaped_like

FORMAT = "outlive-torch/1"
PARTS = ("model", "optimizer", "scheduler", "scaler", "ema", "loader", "extra")


Row = Tuple[str, str, str]
"""Name, in the checkpoint, here; as ``Mismatch`` shows it. The name is what ``resume(allow_changed=[...])`` takes."""


def bare(model: Any) -> Any:
    """Return the module inside DDP, DataParallel and torch.compile, whose names are those of the plain model."""
    while True:
        if isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def each(part: Any, act: Callable[[Any, str], Any], where: str) -> Any:
    """Apply ``act`` to an object with ``state_dict``, or to every one in a list or dict of such objects."""
    if hasattr(part, "state_dict"):
        return act(part, where)
    if isinstance(part, (list, tuple)) and part and all(hasattr(p, "state_dict") for p in part):
        return [act(p, "%s[%d]" % (where, i)) for i, p in enumerate(part)]
    if isinstance(part, dict) and part and all(hasattr(p, "state_dict") for p in part.values()):
        return {str(k): act(p, "%s.%s" % (where, k)) for k, p in part.items()}
    return act(part, where)


def capture(parts: Dict[str, Any], with_rng: bool = True) -> Dict[str, Any]:
    """Return the state of ``parts`` (a dict with the names of ``PARTS``) as plain types and live tensors.

    Raises ``NotPlain`` for what could not be loaded again without running a pickle's code.
    """
    state: Dict[str, Any] = {"format": FORMAT, "torch": str(torch.__version__), "kinds": kinds(parts)}
    for name in PARTS:
        part = parts.get(name)
        if part is not None:
            drop = callable if name == "scheduler" else None  # its load_state_dict keeps what is absent

            def take(one: Any, where: str, drop: Optional[Callable[[Any], bool]] = drop) -> Any:
                one = bare(one)
                return plain(one.state_dict() if hasattr(one, "state_dict") else one, where, drop)

            state[name] = each(part, take, name)
    if with_rng:
        state["rng"] = rng.capture()
    return state


def kinds(parts: Dict[str, Any]) -> Dict[str, Any]:
    """Return the class name of each part, to be compared at resume."""
    named = ("optimizer", "scheduler", "scaler")
    return {n: each(parts[n], lambda p, _: type(p).__name__, n) for n in named if parts.get(n) is not None}


def compare(saved: Dict[str, Any], parts: Dict[str, Any], config: Optional[Dict[str, Any]] = None) -> List[Row]:
    """Return every difference between a saved state and the objects it should be loaded into. Changes nothing."""
    found: List[Row] = []
    if saved.get("format") != FORMAT:
        return [("format", str(saved.get("format")), FORMAT)]
    for name in PARTS:
        part = parts.get(name)
        if (part is None) != (name not in saved):
            found.append((name, _there(name in saved), _there(part is not None)))
    here = kinds(parts)
    for name, kind in saved.get("kinds", {}).items():
        if name in here and here[name] != kind:
            found.append((name, str(kind), str(here[name])))
    for name in ("model", "ema"):
        if parts.get(name) is not None and name in saved:
            now = each(parts[name], lambda p, w: plain(_tensors_of(bare(p)), w), name)
            found += _compare_tensors(saved[name], now, name)
    if parts.get("optimizer") is not None and "optimizer" in saved:
        now = each(parts["optimizer"], lambda p, w: p.state_dict(), "optimizer")
        for where, was, is_ in _pairs(saved["optimizer"], now, "optimizer"):
            found += _compare_groups(was, is_, where)
    return found


def allowed(name: str, allow: Iterable[str]) -> bool:
    """Whether ``allow`` has this name, or one that it lies in."""
    return any(name == a or name.startswith((a + ".", a + "[")) for a in allow)


def restore(
    saved: Dict[str, Any],
    parts: Dict[str, Any],
    allow: Sequence[str] = (),
    with_rng: bool = True,
    source: str = "",
) -> List[str]:
    """Put a saved state back into ``parts``; return sentences worth printing.

    Everything is compared before the first change: a state that does not fit raises ``Mismatch`` and alters nothing.
    """
    rows = compare(saved, parts)
    refused = [row for row in rows if not allowed(row[0], allow)]
    if refused:
        raise Mismatch(source or "the checkpoint", refused)
    said = ["allowed to differ: %s was %s, is %s" % row for row in rows]
    odd = {row[0] for row in rows}
    for name in PARTS:
        part = parts.get(name)
        if part is None or name not in saved or name in odd:
            continue
        for where, value, one in _objects(saved[name], part, name):
            _load(name, where, bare(one), value, odd)
    if with_rng and "rng" in saved:
        said += rng.restore(saved["rng"])
    return said


def _load(name: str, where: str, one: Any, value: Any, odd: Any) -> None:
    if name in ("model", "ema") and isinstance(value, dict):
        keep = {k: v for k, v in value.items() if "%s.%s" % (where, k) not in odd}
        if isinstance(one, torch.nn.Module):
            one.load_state_dict(keep, strict=len(keep) == len(value) and not _under(where, odd))
            return
        if isinstance(one, dict):
            _fill(one, keep)
            return
        value = keep
    if hasattr(one, "load_state_dict"):
        one.load_state_dict(shaped_like(one.state_dict(), value) if name == "scheduler" else value)
    elif isinstance(one, dict):
        _fill(one, value)
    elif isinstance(one, list):
        one[:] = value
    elif isinstance(one, torch.Tensor):
        with torch.no_grad():
            one.copy_(value)
    else:
        raise TypeError("%s is a %s: it has no load_state_dict and cannot be changed in place" % (where, type(one)))


def _under(where: str, odd: Any) -> bool:
    return any(n.startswith(where + ".") for n in odd)


def _fill(target: Dict[Any, Any], value: Dict[Any, Any]) -> None:
    """Make a caller's dict equal to the saved one, in place; tensors keep their identity, device and type."""
    for key in [k for k in target if k not in value and not isinstance(target[k], torch.Tensor)]:
        del target[key]
    for key, new in value.items():
        old = target.get(key)
        if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor) and old.shape == new.shape:
            with torch.no_grad():
                old.copy_(new)
        elif isinstance(old, dict) and isinstance(new, dict):
            _fill(old, new)
        else:
            target[key] = shaped_like(old, new)


def _objects(saved: Any, part: Any, name: str) -> List[Tuple[str, Any, Any]]:
    """Return (path, saved value, object) for each object of a part."""
    places = each(part, lambda p, w: (w, p), name)
    if isinstance(places, tuple):
        return [(name, saved, places[1])]
    if isinstance(places, list):
        return [(w, saved[i], p) for i, (w, p) in enumerate(places)]
    return [(w, saved[k], p) for k, (w, p) in places.items()]


def _pairs(saved: Any, now: Any, name: str) -> List[Tuple[str, Any, Any]]:
    if isinstance(now, list):
        was = saved if isinstance(saved, list) else []
        return [("%s[%d]" % (name, i), was[i] if i < len(was) else {}, n) for i, n in enumerate(now)]
    if isinstance(now, dict) and "param_groups" not in now:
        return [("%s.%s" % (name, k), saved.get(k, {}), n) for k, n in now.items()]
    return [(name, saved, now)]


def _tensors_of(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part


def _compare_tensors(saved: Any, now: Any, where: str) -> List[Row]:
    if isinstance(saved, dict) and isinstance(now, dict):
        found = []
        for key in list(saved) + [k for k in now if k not in saved]:
            name = "%s.%s" % (where, key)
            if key not in now or key not in saved:
                was = describe(saved[key]) if key in saved else "-"
                found.append((name, was, describe(now[key]) if key in now else "-"))
            else:
                found += _compare_tensors(saved[key], now[key], name)
        return found
    if isinstance(saved, list) and isinstance(now, list) and len(saved) == len(now):
        return [d for i, (a, b) in enumerate(zip(saved, now)) for d in _compare_tensors(a, b, "%s[%d]" % (where, i))]
    if isinstance(saved, torch.Tensor) or isinstance(now, torch.Tensor):
        if describe(saved) != describe(now):
            return [(where, describe(saved), describe(now))]
        return []
    return [] if type(saved) is type(now) else [(where, describe(saved), describe(now))]


def _compare_groups(saved: Dict[str, Any], now: Dict[str, Any], where: str) -> List[Row]:
    if not isinstance(saved, dict) or "param_groups" not in saved or "param_groups" not in now:
        return []
    was = [len(g["params"]) for g in saved["param_groups"]]
    is_ = [len(g["params"]) for g in now["param_groups"]]
    return [] if was == is_ else [(where + ".param_groups", "%s tensors" % was, "%s tensors" % is_)]


def _there(is_there: bool) -> str:
    return "there" if is_there else "not there"


def describe(value: Any) -> str:
    """Return type and shape of a tensor, or the type of another value."""
    if isinstance(value, torch.Tensor):
        return "%s %s" % (str(value.dtype).replace("torch.", ""), list(value.shape))
    return type(value).__name__
