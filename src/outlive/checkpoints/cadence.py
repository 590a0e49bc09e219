"""How often to save. Pure: costs, interruptions and times enter as values.

The first-order optimum is Young's (Comm. ACM 17(9), 1974), the higher-order one Daly's (FGCS 22(3), 2006): with a save
that costs C and a mean time M between interruptions, about sqrt(2 C M) between saves.
"""

import math
from typing import TYPE_CHECKING, Any, List, Mapping, NamedTuple, Optional, Sequence

if TYPE_CHECKING:
    from outlive.checkpoints.retention import Keep  # its module brings the index and the commit; a plan needs neither

MTBF_ENV = "OUTLIVE_MTBF_S"

ASSUMED_MTBF_S = 4 * 3600.0
"""Where nobody knows how often the platform interrupts: pessimistic for a reserved box, usual for a spot one."""

LEAST_INTERVAL_S = 10.0
"""Below that a measured cost is mostly noise."""

MOST_INTERVAL_S = 1800.0
"""A cheap save on a calm platform: half an hour is what people still accept to lose."""

FIRST_S = 60.0
"""Before a save was measured: one is made early, so that there is something to go back to and a cost to reckon with."""

SMOOTH = 0.3


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """Return Young's interval between the end of one save and the start of the next."""
    _positive(save_s, mtbf_s)
    return math.sqrt(2.0 * save_s * mtbf_s)


def daly_interval_s(save_s: float, mtbf_s: float) -> float:
    """Return Daly's interval: Young's with its next two terms; ``mtbf_s`` where a save costs half of it or more."""
    _positive(save_s, mtbf_s)
    if save_s >= 2.0 * mtbf_s:
        return mtbf_s
    share = save_s / (2.0 * mtbf_s)
    return max(math.sqrt(2.0 * save_s * mtbf_s) * (1.0 + math.sqrt(share) / 3.0 + share / 9.0) - save_s, 0.0)


def expected_waste(interval_s: float, save_s: float, mtbf_s: float, restart_s: float = 0.0) -> float:
    """Return the share of the time that is lost: saving, redoing what was not saved, starting again. At most 1.

    Interruptions come at random (exponential), also during saves and restarts.
    """
    _positive(save_s, mtbf_s)
    if interval_s <= 0:
        return 1.0
    cycle = interval_s + save_s
    if cycle / mtbf_s > 700 or restart_s / mtbf_s > 700:
        return 1.0
    wall_s = mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(cycle / mtbf_s)
    return min(1.0, max(0.0, 1.0 - interval_s / wall_s))


def auto_interval_s(save_s: float, mtbf_s: float, workers: int = 1) -> float:
    """Return the interval for ``workers`` machines of which any one's interruption stops all (MTBF / workers)."""
    whole_s = mtbf_s / max(1, workers)
    return min(max(daly_interval_s(max(save_s, 1e-3), whole_s), LEAST_INTERVAL_S), MOST_INTERVAL_S)


def _positive(save_s: float, mtbf_s: float) -> None:
    if not (save_s > 0 and mtbf_s > 0):
        raise ValueError("costs and times must be above zero: %r, %r" % (save_s, mtbf_s))


class Budget(NamedTuple):
    """What a directory needs at its fullest moment: everything kept, and the one being written."""

    checkpoints: int
    bytes: int
    inodes: int


def budget(checkpoint_bytes: int, files: int, keep: "Keep", steps: int = 0, milestones: int = 0) -> Budget:
    """Return the space that a retention rule takes over ``steps``; ``files`` without the record."""
    periodic = steps // keep.every_steps if keep.every_steps else 0
    count = keep.latest + max(1, keep.best) + periodic + (milestones if keep.milestones else 0) + 1
    return Budget(count, count * checkpoint_bytes, count * (files + 2) + 4)


class Interval(NamedTuple):
    """What ``auto`` chose, and the figures it chose from."""

    every_s: float
    every_steps: Optional[int]
    """Rounded down to whole steps; None before a step was timed."""
    save_s: float
    mtbf_s: float
    workers: int
    waste: float
    assumed: bool
    """The mean time between interruptions is not known and was assumed."""


class Cadence:
    """Decides at each step whether to save. It reads no clock; ``now_s`` is any clock that only goes forward.

    ``every_steps``, ``every_s`` and ``milestones`` (steps) may be combined. With neither of the first two the interval
    is ``auto``: from the measured cost of a save and ``mtbf_s``.
    """

    def __init__(
        self,
        every_steps: Optional[int] = None,
        every_s: Optional[float] = None,
        milestones: Sequence[int] = (),
        mtbf_s: Optional[float] = None,
        workers: int = 1,
    ) -> None:
        if (every_steps is not None and every_steps < 1) or (every_s is not None and every_s <= 0):
            raise ValueError("every_steps and every_s must be above zero")
        if mtbf_s is not None and mtbf_s <= 0:
            raise ValueError("mtbf_s must be above zero")
        self.every_steps = every_steps
        self.every_s = every_s
        self.milestones = frozenset(int(step) for step in milestones)
        self.mtbf_s = mtbf_s if mtbf_s is not None else ASSUMED_MTBF_S
        self.assumed = mtbf_s is None
        self.workers = max(1, workers)
        self.save_s: Optional[float] = None
        self.step_s: Optional[float] = None
        self._last_step: Optional[int] = None
        self._last_step_now_s = 0.0
        self._saved_step: Optional[int] = None
        self._saved_now_s: Optional[float] = None

    @property
    def auto(self) -> bool:
        return self.every_steps is None and self.every_s is None

    def start(self, step: int, now_s: float) -> None:
        """Say where the training begins or resumes: that state is on disk, or is zero."""
        self._saved_step, self._saved_now_s = step, now_s
        self._last_step, self._last_step_now_s = step, now_s

    def step_done(self, step: int, now_s: float) -> None:
        """Note the time of a step; steps may be skipped between two calls."""
        if self._last_step is not None and step > self._last_step:
            each = (now_s - self._last_step_now_s) / (step - self._last_step)
            if each >= 0:
                self.step_s = each if self.step_s is None else (1 - SMOOTH) * self.step_s + SMOOTH * each
        elif self._last_step is None:
            self.start(step, now_s)
        self._last_step, self._last_step_now_s = step, now_s

    def saved(self, step: int, now_s: float, cost_s: Optional[float] = None) -> None:
        """Note a save that was made at ``step``; ``cost_s`` is what the training thread lost to it."""
        self._saved_step, self._saved_now_s = step, now_s
        self._last_step, self._last_step_now_s = step, now_s  # the save's own time is not a step's
        if cost_s is not None and cost_s >= 0:
            self.save_s = cost_s if self.save_s is None else (1 - SMOOTH) * self.save_s + SMOOTH * cost_s

    def interval(self) -> Interval:
        """Return what ``auto`` would choose now."""
        if self.save_s is None:
            return Interval(FIRST_S, self._steps_in(FIRST_S), 0.0, self.mtbf_s, self.workers, 0.0, self.assumed)
        save_s = max(self.save_s, 1e-3)
        every_s = auto_interval_s(save_s, self.mtbf_s, self.workers)
        waste = expected_waste(every_s, save_s, self.mtbf_s / self.workers)
        return Interval(every_s, self._steps_in(every_s), save_s, self.mtbf_s, self.workers, waste, self.assumed)

    def _steps_in(self, seconds: float) -> Optional[int]:
        return None if not self.step_s else max(1, int(seconds / self.step_s))

    def due(self, step: int, now_s: float) -> str:
        """Return why to save now (milestone, steps, time, auto), or "". A step that was saved is not due again."""
        if self._saved_now_s is None or self._saved_step is None:
            self.start(step, now_s)
            return "milestone" if step in self.milestones else ""
        if step <= self._saved_step:
            return ""
        if any(self._saved_step < one <= step for one in self.milestones):
            return "milestone"
        if self.every_steps is not None and step // self.every_steps > self._saved_step // self.every_steps:
            return "steps"
        waited_s = now_s - self._saved_now_s
        if self.every_s is not None:
            return "time" if waited_s + self._half_step_s() >= self.every_s else ""
        if self.auto and waited_s + (self.step_s or 0.0) > self.interval().every_s:
            return "auto"  # the next step would end after the interval: rounded down to a step
        return ""

    def _half_step_s(self) -> float:
        return (self.step_s or 0.0) / 2.0


def cadence_from_env(
    environ: Mapping[str, str],
    every_steps: Optional[int] = None,
    every_s: Optional[float] = None,
    milestones: Sequence[int] = (),
    mtbf_s: Optional[float] = None,
    workers: int = 1,
) -> Cadence:
    """Return a cadence whose interruptions come from the job's environment, unless given.

    Under a supervisor it also saves when `outlive checkpoint` asks for it.
    """
    if mtbf_s is None:
        mtbf_s = positive_number(environ.get(MTBF_ENV))
    control = environ.get("OUTLIVE_CONTROL_DIR")
    if control:
        from outlive.checkpoints.asked import AskedCadence

        return AskedCadence(control, every_steps, every_s, milestones, mtbf_s, workers)
    return Cadence(every_steps, every_s, milestones, mtbf_s, workers)


def positive_number(text: Any) -> Optional[float]:
    """Return a finite number above zero, or None."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < math.inf else None


__all__: List[str] = [
    "Budget",
    "Cadence",
    "Interval",
    "auto_interval_s",
    "budget",
    "cadence_from_env",
    "daly_interval_s",
    "expected_waste",
    "young_interval_s",
]
