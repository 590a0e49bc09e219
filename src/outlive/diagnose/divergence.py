"""When a loss has left for good: judged against its own best level and its own noise."""

import math
from collections import deque
from typing import Any, Deque, Dict, Optional, Tuple

from .alarm_limits import AlarmLimits

News = Tuple[bool, str, Dict[str, Any]]
"""Raised (True) or over (False), in words, with figures."""


class _Series:
    """One stream of losses; a bar's running mean and a logged loss are two."""

    def __init__(self, limits: AlarmLimits) -> None:
        self.limits = limits
        self.up = False
        self.lr: Optional[float] = None
        self.begin()

    def begin(self) -> None:
        """Forget levels: after a resume, a phase or a jump of the learning rate, warm up again."""
        self.count = 0
        self.recent: Deque[float] = deque(maxlen=5)
        self.level = math.nan
        self.best = math.inf
        self.last = math.nan
        self.over = 0
        self.under = 0
        self.jumps: Deque[float] = deque(maxlen=200)

    def feed(self, loss: float) -> Optional[Tuple[bool, float]]:
        """Return (raised, threshold) at a change."""
        lim = self.limits
        self.count += 1
        if self.count > 1:
            self.jumps.append(abs(loss - self.last))
        self.last = loss
        self.recent.append(loss)
        self.level = sorted(self.recent)[len(self.recent) // 2]  # a median: one spike does not move it
        if self.count <= lim.divergence_warmup_points:
            if self.count > lim.divergence_warmup_points // 2:
                self.best = min(self.best, self.level)
            return None
        # The median jump between neighbours follows the noise and not the trend nor a few spikes.
        jumps = sorted(self.jumps)
        noise = 1.4826 * jumps[len(jumps) // 2] / math.sqrt(2.0)
        rise = max(lim.divergence_sigmas * noise, lim.divergence_share * abs(self.best), 1e-6)
        bound = self.best + rise
        if self.level > bound:
            self.over, self.under = self.over + 1, 0
        elif self.level < self.best + rise / 2.0:
            self.over, self.under = 0, self.under + 1
        else:
            self.over = self.under = 0
        self.best = min(self.best, self.level)
        if not self.up and self.over >= lim.divergence_patience:
            self.up = True
            return True, bound
        if self.up and self.under >= lim.divergence_patience:
            self.up = False
            return False, bound
        return None


class Divergence:
    """Robust watch over finite losses. ``up``: an earlier life has raised it already."""

    def __init__(self, limits: AlarmLimits, up: bool = False) -> None:
        self._limits = limits
        self._up = up
        self._series: Dict[str, _Series] = {}

    def reset(self) -> None:
        """A boundary that may move the loss (new attempt, phase): warm up again, keep what is raised."""
        for series in self._series.values():
            series.begin()

    def feed(self, point: Dict[str, Any], loss: float) -> Optional[News]:
        """Take one point with its finite loss; return a change, if it brought one."""
        name = str(point.get("source", ""))
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= 8:
                return None
            series = self._series[name] = _Series(self._limits)
            series.up, self._up = self._up, False
        lr = point.get("lr")
        if isinstance(lr, (int, float)) and not isinstance(lr, bool):
            if series.lr is not None and lr > 1.5 * series.lr and series.count > self._limits.divergence_warmup_points:
                series.begin()  # a restart of the schedule moves the loss on purpose
            series.lr = float(lr)
        change = series.feed(loss)
        if change is None:
            return None
        up, bound = change
        step = point.get("step")
        at = " at step %s" % step if step is not None else ""
        evidence = {
            "step": step,
            "smoothed": round(series.level, 6),
            "best": round(series.best, 6),
            "bound": round(bound, 6),
        }
        if up:
            text = "the loss has left its level%s: smoothed %.4g, best %.4g, bound %.4g" % (
                at,
                series.level,
                series.best,
                bound,
            )
        elif any(s.up for s in self._series.values()):
            return None
        else:
            text = "the loss is back near its best%s: smoothed %.4g, best %.4g" % (at, series.level, series.best)
        return up, text, evidence
