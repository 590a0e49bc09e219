"""Which checkpoints may go. Pure."""

import math
from dataclasses import dataclass
from typing import Any, Collection, Dict, List, Optional, Set

from outlive.checkpoints.index import Entry


@dataclass(frozen=True)
class Keep:
    """The rule. Kept whatever it says: the newest, the newest good one, the best, what is pinned and what is leased."""

    latest: int = 2
    """So many of the newest."""
    best: int = 1
    """So many of the best by ``metric``."""
    metric: str = "val_loss"
    mode: str = "min"
    every_steps: Optional[int] = None
    """The first at or after each multiple stays for good."""
    milestones: bool = True
    """Those saved as milestones stay for good."""

    def __post_init__(self) -> None:
        if self.mode not in ("min", "max"):
            raise ValueError("mode is min or max, not %r" % self.mode)
        if self.latest < 1:
            raise ValueError("latest is at least 1: the newest is never removed")
        if self.best < 0 or (self.every_steps is not None and self.every_steps < 1):
            raise ValueError("best is at least 0, every_steps at least 1")

    def to_dict(self) -> Dict[str, Any]:
        return dict(self.__dict__)


def score(entry: Entry, keep: Keep) -> Optional[float]:
    """Return the metric as a number that is smaller for the better, or None where it was not measured."""
    value = entry.metrics.get(keep.metric)
    if value is None or not math.isfinite(value):
        return None
    return value if keep.mode == "min" else -value


def best_first(entries: Collection[Entry], keep: Keep) -> List[Entry]:
    """Return those that have the metric and are not known to be bad, the best first; of equals the newer."""
    scored = [(score(entry, keep), -entry.seq, entry) for entry in entries if not entry.bad]
    return [entry for value, _seq, entry in sorted((s for s in scored if s[0] is not None), key=lambda s: s[:2])]


def choose_removed(entries: Collection[Entry], keep: Keep, leased: Collection[str] = ()) -> List[str]:
    """Return the names that the rule lets go, oldest first. ``leased`` are names that somebody reads now."""
    order = sorted(entries, key=lambda entry: entry.seq)
    good = [entry for entry in order if not entry.bad]
    stay: Set[str] = {entry.name for entry in order[-1:]}
    stay.update(entry.name for entry in good[-keep.latest :])
    stay.update(entry.name for entry in [e for e in good if e.proved][-1:])
    stay.update(entry.name for entry in best_first(good, keep)[: max(1, keep.best)])
    stay.update(leased)
    reached = None
    for entry in order:
        if entry.pinned or (keep.milestones and entry.milestone):
            stay.add(entry.name)
        if keep.every_steps and not entry.bad and entry.step >= keep.every_steps:
            multiple = entry.step // keep.every_steps
            if reached is None or multiple > reached:
                stay.add(entry.name)
                reached = multiple
    return [entry.name for entry in order if entry.name not in stay]
