"""Alarms on a run that is alive: missing progress, sick numbers, resources about to run out.

A pure state machine on the box's boot clock; it opens nothing and sleeps never. An alarm looks at what is
*missing* or *near a limit*; the gates look at artifacts and exit records, so the two never share a predicate.
Every alarm is raised once and cleared once per episode, with a wider bound for clearing than for raising.
A fact that is None or absent is unknown: it neither raises nor clears anything.
"""

import math
from collections import deque
from typing import Any, Deque, Dict, Iterable, List, Optional, Tuple

from .alarm_limits import ACTIVITIES, FACTS, KINDS, Alarm, AlarmLimits
from .divergence import Divergence
from .resources import Resources
from .spans import as_float, median, span, word

__all__ = ["ACTIVITIES", "FACTS", "KINDS", "Alarm", "AlarmLimits", "Alarms"]


class Alarms:
    """Feed it what happens and call ``tick`` regularly; times are boot-clock seconds of this box.

    ``raised`` are the (kind, subject) pairs that an earlier life had already raised, so that a restarted
    supervisor does not repeat them. One object per run: call ``new_attempt`` when another attempt starts.
    """

    def __init__(self, limits: Optional[AlarmLimits] = None, raised: Iterable[Tuple[str, str]] = ()) -> None:
        self.limits = limits or AlarmLimits()
        self._raised: Dict[Tuple[str, str], str] = {(str(k), str(s)): "" for k, s in raised}
        self._queue: List[Alarm] = []
        self._last_tick_s: Optional[float] = None
        self._phase = ""
        self._resources = Resources(self.limits)
        self._divergence = Divergence(self.limits, ("divergence", "") in self._raised)
        self._forget_attempt()

    def _forget_attempt(self) -> None:
        self._seen_s: Dict[str, float] = {}
        self._start_s: Optional[float] = None
        self._gaps_s: Deque[float] = deque(maxlen=64)
        self._learned_s = 0.0
        self._nan = 0
        self._nan_val = 0
        self._nan_grad = 0
        self._floor_skips = 0
        self._finite = 0
        self._last_place: Tuple[Any, Any] = (None, None)
        self._regress: Optional[Tuple[int, Optional[int]]] = None
        self._steps: Dict[str, int] = {}

    def raised(self) -> List[Tuple[str, str]]:
        """The (kind, subject) pairs that stand raised now, sorted."""
        return sorted(self._raised)

    def new_attempt(self, now_s: float) -> None:
        """Another attempt of the run starts: silence counts from now, steps may be lower than before.

        What stands raised is forgotten without a word, so the caller closes it; what still holds is raised anew.
        """
        self._raised.clear()
        steps = dict(self._steps)
        self._forget_attempt()
        self._steps = steps
        self._start_s = now_s
        self._divergence = Divergence(self.limits)

    def on_activity(self, kind: str, now_s: float) -> None:
        """Something of ``ACTIVITIES`` moved. For cpu and gpu call it only when the counter really advanced."""
        if kind not in ACTIVITIES:
            raise ValueError("unknown activity: %s" % kind)
        self._begin(now_s)
        before = max([self._seen_s[k] for k in ("metric", "artifact") if k in self._seen_s], default=None)
        if kind == "metric":
            last = self._seen_s.get("metric")
            # A burst read at one time is one arrival; a pause that was alarmed is learned below, not averaged.
            if last is not None and now_s > last and ("stall", "") not in self._raised:
                self._gaps_s.append(now_s - last)
        self._seen_s[kind] = max(now_s, self._seen_s.get(kind, now_s))  # times may be told again, late
        if kind in ("metric", "artifact") and ("stall", "") in self._raised:
            if before is not None:  # it came back by itself: this job has such pauses
                self._learned_s = min(max(self._learned_s, 1.5 * (now_s - before)), self.limits.learned_max_s)

    def on_metric(self, point: Dict[str, Any], now_s: float) -> None:
        """A point of ``parsers.MetricParser``. Its alarms come out of the next ``tick``."""
        self.on_activity("metric", now_s)
        self._numbers(point)
        self._step(point)
        loss = as_float(point.get("loss"))
        if self.limits.divergence and loss is not None and math.isfinite(loss):
            news = self._divergence.feed(point, loss)
            if news is not None:
                self._set("divergence", news[0], "warning", news[1], news[2])

    def tick(self, now_s: float, facts: Dict[str, Any]) -> List[Alarm]:
        """Return what was raised or cleared since the last tick. ``facts`` are those of ``FACTS``."""
        self._begin(now_s)
        if self._last_tick_s is not None and now_s - self._last_tick_s > self.limits.blind_s:
            self._forgive(now_s - self._last_tick_s, now_s)
        self._last_tick_s = now_s
        phase = str(facts.get("phase") or "")
        if phase != self._phase:
            self._phase = phase
            self._divergence.reset()
        hung = self._hung(now_s, facts)
        self._stall(now_s, facts, hung)
        for news in self._resources.look(now_s, facts):
            self._set(*news)
        self._regressed(facts)
        out, self._queue = self._queue, []
        return out

    # -- progress

    def _begin(self, now_s: float) -> None:
        if self._start_s is None:
            self._start_s = now_s

    def _forgive(self, gap_s: float, now_s: float) -> None:
        for kind, at in self._seen_s.items():
            self._seen_s[kind] = min(now_s, at + gap_s)
        if self._start_s is not None:
            self._start_s = min(now_s, self._start_s + gap_s)

    def stall_limit_s(self) -> float:
        """Seconds without progress after which the run counts as stalled now."""
        lim = self.limits
        if "metric" not in self._seen_s:
            limit = max(lim.stall_floor_s, lim.first_metric_s)
        else:
            limit = lim.stall_floor_s
            if self._gaps_s:
                limit = max(limit, lim.stall_intervals * median(self._gaps_s))
        limit = max(limit, self._learned_s)
        if self._phase in lim.quiet_phases:
            limit = max(limit, lim.quiet_phase_s)
        return limit

    def _stall(self, now_s: float, facts: Dict[str, Any], hung: bool) -> None:
        alive = facts.get("alive")
        if alive is False or hung:
            self._set("stall", False, "error", "the work is no longer waiting for progress", {})
            return
        if alive is None:
            return
        start = self._start_s if self._start_s is not None else now_s
        strong = max([start] + [self._seen_s[k] for k in ("metric", "artifact") if k in self._seen_s])
        weak = max([strong] + list(self._seen_s.values()))
        limit = self.stall_limit_s()
        silent_s, idle_s = now_s - strong, now_s - weak
        evidence = {
            "silent_s": round(silent_s, 1),
            "idle_s": round(idle_s, 1),
            "limit_s": round(limit, 1),
            "median_interval_s": round(median(self._gaps_s), 1) if self._gaps_s else None,
            "phase": self._phase,
            "ages_s": {k: round(now_s - t, 1) for k, t in sorted(self._seen_s.items())},
        }
        expects = "metric" in self._seen_s
        if idle_s > limit:
            text = "no log line, metric, artifact, CPU or GPU time for %s; the limit is %s" % (
                span(idle_s),
                span(limit),
            )
            self._set("stall", True, "error", text, evidence)
        elif expects and silent_s > limit * self.limits.busy_factor:
            text = "busy, but no metric and no artifact for %s; buffered output would have come by now" % span(silent_s)
            self._set("stall", True, "warning", text, evidence)
        elif ("stall", "") in self._raised and (silent_s <= limit or (not expects and idle_s <= limit / 2)):
            self._set("stall", False, "error", "something advanced again", evidence)

    def _hung(self, now_s: float, facts: Dict[str, Any]) -> bool:
        ok, last, total = facts.get("artifacts_ok"), facts.get("last_step"), facts.get("total_steps")
        steps_done = last >= total if last is not None and total else None
        complete = (ok is True and steps_done is not False) or (steps_done is True and ok is not False)
        if facts.get("alive") is not True or not complete:
            if facts.get("alive") is not None and (ok is not None or steps_done is not None):
                self._set("hung", False, "warning", "the work ended or goes on", {})
            return False
        moved = max([now_s if self._start_s is None else self._start_s] + list(self._seen_s.values()))
        idle_s = now_s - moved
        if idle_s > self.limits.hung_idle_s:
            text = "the work is complete, but its process has not ended; nothing moved for %s" % span(idle_s)
            evidence = {"idle_s": round(idle_s, 1), "artifacts_ok": ok, "last_step": last, "total_steps": total}
            self._set("hung", True, "warning", text, evidence)
        else:
            self._set("hung", False, "warning", "the process moves again", {"idle_s": round(idle_s, 1)})
        return ("hung", "") in self._raised

    # -- numbers

    def _numbers(self, point: Dict[str, Any]) -> None:
        if point.get("skipped"):  # a scaler finding its level; only its floor is an alarm
            scale = as_float(point.get("loss_scale"))
            at_floor = scale is not None and scale <= self.limits.scale_floor
            self._floor_skips = self._floor_skips + 1 if at_floor else 0
            if self._floor_skips >= self.limits.scale_skips:
                text = "every step is skipped: the loss scale is at its floor (%g)" % (scale or 0.0)
                self._set("nan", True, "error", text, {"loss_scale": scale, "skips": self._floor_skips})
            return
        loss, val, grad = as_float(point.get("loss")), as_float(point.get("val_loss")), as_float(point.get("grad_norm"))
        if loss is None and val is None and grad is None:
            return
        place = (point.get("step"), point.get("epoch"))
        again = place == self._last_place and place[0] is not None
        self._last_place = place
        if again:  # the same step printed by another rank or redrawn by a bar
            return
        bad_grad = grad is not None and not math.isfinite(grad)
        bad_loss = loss is not None and (not math.isfinite(loss) or (loss == 0.0 and bad_grad))
        bad_val = val is not None and not math.isfinite(val)
        if loss is not None:
            self._nan = self._nan + 1 if bad_loss else 0
        if val is not None:
            self._nan_val = self._nan_val + 1 if bad_val else 0
        if grad is not None:
            self._nan_grad = self._nan_grad + 1 if bad_grad else 0
        self._finite = 0 if (bad_loss or bad_val or bad_grad) else self._finite + 1
        lim = self.limits
        evidence = {
            "step": place[0],
            "epoch": place[1],
            "loss": word(loss),
            "val_loss": word(val),
            "grad_norm": word(grad),
        }
        at = " at step %s" % place[0] if place[0] is not None else ""
        if self._nan >= lim.nan_points:
            what = "exactly 0 with a gradient that is not finite" if loss == 0.0 else "not finite (%s)" % word(loss)
            self._set("nan", True, "error", "the loss is %s%s, %d points in a row" % (what, at, self._nan), evidence)
        elif self._nan_val >= lim.nan_points:
            text = "the validation loss is not finite (%s)%s, %d points in a row" % (word(val), at, self._nan_val)
            self._set("nan", True, "error", text, evidence)
        elif self._nan_grad >= lim.nan_grad_points:
            text = "the gradient norm is not finite%s, %d points in a row" % (at, self._nan_grad)
            self._set("nan", True, "warning", text, evidence)
        elif self._finite >= lim.nan_clear_points:
            self._set("nan", False, "error", "loss and gradients are finite again%s" % at, evidence)

    def _step(self, point: Dict[str, Any]) -> None:
        step = point.get("step")
        if not isinstance(step, int) or point.get("local"):
            return
        source = str(point.get("source", ""))
        before = self._steps.get(source)
        if before is not None and before - step >= max(2, before // 10):
            self._regress = (step, before)
        elif before is None and len(self._steps) == 0:
            self._regress = (step, None)
        elif self._regress is not None and step > self._regress[0]:
            self._regress = (step, self._regress[1])
        if before is not None or len(self._steps) < 8:
            self._steps[source] = step

    def _regressed(self, facts: Dict[str, Any]) -> None:
        kept = facts.get("checkpoint_step")
        if self._regress is None or kept is None:
            return
        step, before = self._regress
        first = before is None
        if step >= kept:
            self._regress = None
            self._set("step_regressed", False, "error", "the step has passed the checkpoint's again", {"step": step})
        elif not first or ((facts.get("attempt") or 1) > 1 and step <= kept // 2):
            text = "the work runs at step %d although a checkpoint of step %d exists" % (step, kept)
            evidence = {"step": step, "before": before, "checkpoint_step": kept, "attempt": facts.get("attempt")}
            self._set("step_regressed", True, "error", text, evidence)

    # -- raising and clearing

    def _set(
        self, kind: str, on: bool, severity: str, sentence: str, evidence: Dict[str, Any], subject: str = ""
    ) -> None:
        key = (kind, subject)
        if on and key not in self._raised:
            self._raised[key] = severity
            self._queue.append(Alarm(kind, severity, sentence, evidence, "raised", subject))
        elif not on and key in self._raised:
            was = self._raised.pop(key) or severity
            self._queue.append(Alarm(kind, was, sentence, evidence, "cleared", subject))
