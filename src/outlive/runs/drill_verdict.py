"""What a drill found, from the numbers that the job printed. Pure: a rehearsal enters as values.

A job that resumes prints, after a kill, the numbers that it would have printed without it. So the undisturbed reference
is the measure, and how far two undisturbed stretches differ (before the first kill) is the noise that is forgiven.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

RESUMES, FROM_ZERO, NEVER, SKIPS, NOTHING_SAVED = "resumes", "from_zero", "never", "skips", "nothing_saved"
FLOOR = 1e-4
"""Relative difference that is always forgiven: the last digit that is printed, another order of a sum."""
NOISE_TIMES = 5.0
SHARE = 0.3
"""A value goes another way when more than this share of its compared points do."""


@dataclass(frozen=True)
class Point:
    """What the job printed about one step. ``values``: loss, lr and the like."""

    step: int
    wall_s: float
    values: dict[str, float]


@dataclass(frozen=True)
class Kill:
    """One kill and what came after it. ``when``: after_save, in_save or later."""

    when: str
    wall_s: float
    last_step: int
    """The newest step that was printed before."""
    checkpoint_step: int | None
    """Of the newest whole checkpoint at that moment; None when none is known."""
    saved: bool
    """Whether a whole checkpoint was there."""
    after: tuple[Point, ...]
    """Printed by the next attempt, in order, until the next kill."""
    why: str = ""
    """Why nothing came after, when nothing did."""


@dataclass(frozen=True)
class Return:
    """How the job came back from one kill."""

    kill: Kill
    word: str
    first_step: int | None = None
    lost_steps: int | None = None
    """Steps that were done twice."""
    restart_s: float | None = None
    """From the kill to the first line about a step."""
    cost_s: float | None = None
    """From the kill until it was again where it had been."""


@dataclass(frozen=True)
class Forgotten:
    """Something that did not survive. ``what``: weights, schedule, state, or the name of a printed value."""

    what: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """What the drill found. ``broken`` is what makes it fail."""

    returns: tuple[Return, ...]
    forgotten: tuple[Forgotten, ...]
    compared: int
    """Points after a resume that the reference has as well."""
    equal: int
    """Of these, how many agree in everything that both printed."""
    noise: dict[str, float] = field(default_factory=dict)
    """Value -> largest relative difference before the first kill."""
    states: int = 0
    """Steps after a kill of which both runs saved a checkpoint."""
    same_state: tuple[int, ...] = ()
    """Those whose checkpoint has the same bytes as in the undisturbed run."""

    @property
    def broken(self) -> bool:
        """The job loses more than the steps since its last save."""
        return bool(self.forgotten) or any(r.word != RESUMES for r in self.returns)


def points_of(records: Iterable[dict[str, Any]]) -> list[Point]:
    """Return the points of a run's metric records that carry a step over the whole run."""
    found = []
    for record in records:
        if record.get("local") or not isinstance(record.get("step"), int):
            continue
        values = {}
        for name in ("loss", "lr", "grad_norm", "epoch", "acc"):
            try:
                values[name] = float(record[name])
            except (KeyError, TypeError, ValueError):
                continue
        found.append(Point(record["step"], float(record.get("w", 0.0)), values))
    return found


def judge(
    reference: Sequence[Point],
    before: Sequence[Point],
    kills: Sequence[Kill],
    same_state: Sequence[int] = (),
    states: int = 0,
) -> Verdict:
    """Return the verdict. ``before``: what the killed run printed up to the first kill."""
    returns = tuple(_came_back(kill, reference) for kill in kills)
    truth = {p.step: p for p in reference}
    noise = _noise(before, truth)
    resumed = [r for r in returns if r.word == RESUMES]
    pairs = [(p, truth[p.step]) for r in resumed for p in r.kill.after if p.step in truth]
    forgotten = tuple(_forgotten(pairs, noise, reference, resumed))
    equal = sum(1 for mine, theirs in pairs if not any(_off(mine, theirs, name, noise) for name in theirs.values))
    return Verdict(returns, forgotten, len(pairs), equal, noise, states, tuple(same_state))


def _came_back(kill: Kill, reference: Sequence[Point]) -> Return:
    if not kill.after:
        return Return(kill, NEVER)
    first = kill.after[0]
    gap = interval(reference)
    restart_s = first.wall_s - kill.wall_s
    again = next((p.wall_s for p in kill.after if p.step > kill.last_step), None)
    cost_s = again - kill.wall_s if again is not None else None
    lost = max(0, kill.last_step - first.step + gap)
    begin = reference[0].step if reference else 0
    word = RESUMES
    if first.step <= begin and kill.last_step > begin:
        if kill.checkpoint_step is None or kill.checkpoint_step >= begin:  # else its only checkpoint is the beginning's
            word = FROM_ZERO if kill.saved else NOTHING_SAVED
    elif first.step > kill.last_step + gap:
        word = SKIPS
    return Return(kill, word, first.step, lost, restart_s, cost_s)


def interval(points: Sequence[Point]) -> int:
    """Return how many steps lie between two lines about a step."""
    gaps = [b.step - a.step for a, b in zip(points, points[1:], strict=False) if b.step > a.step]
    return max(1, int(statistics.median(gaps))) if gaps else 1


def _difference(mine: float, theirs: float) -> float:
    if math.isnan(mine) or math.isnan(theirs):
        return 0.0 if math.isnan(mine) and math.isnan(theirs) else math.inf
    if mine == theirs:
        return 0.0
    return abs(mine - theirs) / max(abs(mine), abs(theirs), 1e-30)


def _noise(before: Sequence[Point], truth: dict[int, Point]) -> dict[str, float]:
    noise: dict[str, float] = {}
    for point in before:
        theirs = truth.get(point.step)
        for name in (point.values.keys() & theirs.values.keys()) if theirs is not None else ():
            assert theirs is not None
            noise[name] = max(noise.get(name, 0.0), _difference(point.values[name], theirs.values[name]))
    return noise


def _off(mine: Point, theirs: Point, name: str, noise: dict[str, float]) -> bool:
    if name not in mine.values or name not in theirs.values:
        return False
    allowed = max(FLOOR, NOISE_TIMES * noise.get(name, 0.0))
    return _difference(mine.values[name], theirs.values[name]) > allowed


def _forgotten(
    pairs: Sequence[tuple[Point, Point]], noise: dict[str, float], reference: Sequence[Point], resumed: Sequence[Return]
) -> Iterable[Forgotten]:
    off: dict[str, list[tuple[Point, Point]]] = {}
    for name in ("lr", "loss", "epoch"):
        both = [(m, t) for m, t in pairs if name in m.values and name in t.values]
        wrong = [(m, t) for m, t in both if _off(m, t, name, noise)]
        if wrong and len(wrong) > SHARE * len(both):
            off[name] = wrong
    if "lr" in off:
        mine, theirs = off["lr"][0]
        first = next((p.values["lr"] for p in reference if "lr" in p.values), None)
        anew = first is not None and _difference(mine.values["lr"], first) <= FLOOR
        yield Forgotten(
            "schedule",
            f"at step {mine.step} the learning rate is {mine.values['lr']:g}; undisturbed it is "
            f"{theirs.values['lr']:g}" + (": the schedule begins anew" if anew else ""),
        )
    if "epoch" in off:
        mine, theirs = off["epoch"][0]
        yield Forgotten(
            "place in the data",
            f"at step {mine.step} the epoch is {mine.values['epoch']:g}; undisturbed it is {theirs.values['epoch']:g}",
        )
    if "loss" in off:
        mine, theirs = off["loss"][0]
        if _like_the_beginning(mine, theirs, reference):
            yield Forgotten(
                "weights",
                f"at step {mine.step} the loss is {mine.values['loss']:g}, as at the beginning; "
                f"undisturbed it is {theirs.values['loss']:g}",
            )
        elif "lr" not in off:
            yield Forgotten(
                "state",
                f"from step {mine.step} on the loss goes another way ({mine.values['loss']:g}, undisturbed "
                f"{theirs.values['loss']:g}): optimizer state, random numbers or the order of the data",
            )


def _like_the_beginning(mine: Point, theirs: Point, reference: Sequence[Point]) -> bool:
    first = next((p.values["loss"] for p in reference if "loss" in p.values), None)
    if first is None:
        return False
    fallen = first - theirs.values["loss"]
    return fallen > 0.1 * abs(first) and first - mine.values["loss"] < 0.3 * fallen
