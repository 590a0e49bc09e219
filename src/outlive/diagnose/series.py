"""Loss and gradient norm as a series: numbers that are no numbers, and a loss that jumped and stayed up."""

import math
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .spans import as_float, median

JUMP = 1.4
"""A loss this many times above what it was, for the rest of the log, is a jump."""
MIN_BEFORE, MIN_AFTER = 2, 2
EXPLODED = 10.0
"""Growth of the gradient norm that confirms a smaller jump."""


SEEN = 400
"""How many of the last losses are looked at for a jump."""


class Trouble(NamedTuple):
    """What the numbers say."""

    rule: str
    times: int
    numbers: Tuple[Tuple[str, Any], ...]


def trouble(points: List[Dict[str, Any]]) -> Optional[Trouble]:
    """Return what is wrong with the series at its end, or None."""
    losses = [(p.get("step"), v, p) for p in points for v in [as_float(p.get("loss"))] if v is not None]
    norms = [v for p in points for v in [as_float(p.get("grad_norm"))] if v is not None]
    return _not_finite(losses, norms) or _jumped(losses, norms)


def quiet(points: List[Dict[str, Any]], normed: bool) -> bool:
    """Whether the last points of a log rule out that ``trouble`` finds any, whatever came before them.

    ``normed``: there may be gradient norms before these points.
    """
    losses = [v for p in points for v in [as_float(p.get("loss"))] if v is not None]
    norms = [v for p in points for v in [as_float(p.get("grad_norm"))] if v is not None]
    if len(losses) < 2 * SEEN or not all(map(math.isfinite, losses[-SEEN:])) or losses[-1] == 0.0:
        return False
    if not any(map(math.isfinite, norms[-3:])) and (norms or normed):
        return False
    return next(_cuts(losses[-SEEN:]), None) is None


def _not_finite(losses: List[Any], norms: List[float]) -> Optional[Trouble]:
    bad = [i for i, (_, v, _) in enumerate(losses) if not math.isfinite(v)]
    if bad and not math.isfinite(losses[-1][1]):
        first = bad[0]
        while first > 0 and not math.isfinite(losses[first - 1][1]):
            first -= 1
        return Trouble("nan-loss", len(bad), (("first_step", losses[first][0]), ("last_loss", str(losses[-1][1]))))
    zeros = 0
    for _, value, _ in reversed(losses):
        if value != 0.0:
            break
        zeros += 1
    bad_norm = bool(norms) and not math.isfinite(norms[-1])
    if zeros >= 2 and (bad_norm or zeros < len(losses)):
        return Trouble("nan-loss", zeros, (("last_loss", 0.0), ("grad_norm", str(norms[-1]) if norms else None)))
    if len(norms) >= 3 and all(not math.isfinite(v) for v in norms[-3:]):
        return Trouble("nan-loss", 3, (("grad_norm", str(norms[-1])),))
    return None


def _jumped(losses: List[Any], norms: List[float]) -> Optional[Trouble]:
    values = [v for _, v, _ in losses if math.isfinite(v)]
    if len(values) < MIN_BEFORE + MIN_AFTER or len(values) != len(losses):
        return None
    tail = values[-SEEN:]
    for cut, base in _cuts(tail):
        after = tail[cut:]
        grown = len(norms) >= 4 and max(norms[-len(after) :] or [0]) > EXPLODED * max(
            median(norms[: max(2, cut)]), 1e-9
        )
        if len(after) >= 3 or grown:
            return Trouble(
                "loss-diverged",
                len(after),
                (("step", losses[len(values) - len(tail) + cut][0]), ("before", base), ("after", after[-1])),
            )
    return None


def _cuts(tail: List[float]) -> Iterator[Tuple[int, float]]:
    """Yield the places, the last first, from which a series stays well above what it was, and what it was."""
    lowest = math.inf
    for cut in range(len(tail) - 1, MIN_BEFORE - 1, -1):
        lowest = min(lowest, tail[cut])
        if cut > len(tail) - MIN_AFTER or lowest < JUMP * max(tail[max(0, cut - 10) : cut]):
            continue
        base = median(tail[max(0, cut - 50) : cut])
        if base > 0 and lowest - base >= 0.5:
            yield cut, base
