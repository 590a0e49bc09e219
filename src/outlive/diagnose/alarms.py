"""Alarms on a run that is alive: missing progress, sick numbers, resources about to run out.

A pure state machine on the box's boot clock; it opens nothing and sleeps never. An alarm looks at what is
*missing* or *near a limit*; the gates look at artifacts and exit records, so the two never share a predicate.
Every alarm is raised once and cleared once per episode, with a wider bound for clearing than for raising.
A fact that is None or absent is unknown: it neither raises nor clears anything.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, Iterable, List, Optional, Tuple

from ..wire.values import Value
from .divergence import Divergence

KINDS = (
    "stall", "nan", "divergence", "disk_bytes", "disk_inodes", "memory_near_limit", "cpu_throttled",
    "overdue_report", "hung", "gpu_lost", "step_regressed",
)  # fmt: skip

ACTIVITIES = ("log", "metric", "artifact", "cpu", "gpu")
"""Kinds of ``on_activity``. Metric and artifact are progress; the others only show that something moves."""

FACTS = {
    "alive": "the work's processes exist (bool)",
    "attempt": "number of the attempt (int, 1 is the first)",
    "phase": "declared phase of the work; those in ``AlarmLimits.quiet_phases`` may be silent for longer (str)",
    "disks": "list of {path, bytes_total, bytes_free, inodes_total, inodes_free}, one per mount that matters",
    "memory_used_bytes": "working set of the cgroup, without file cache that can be dropped (int)",
    "memory_limit_bytes": "limit of the cgroup (int)",
    "cpu_periods": "scheduler periods of the CPU quota so far, a counter (int)",
    "cpu_throttled_periods": "those of them that were throttled, a counter (int)",
    "report_due_s": "boot-clock time when the next report must be out (float)",
    "artifacts_ok": "every artifact of the stage is there and passes its check (bool)",
    "last_step": "newest step (int)",
    "total_steps": "planned steps (int)",
    "checkpoint_step": "step of the newest committed checkpoint (int)",
    "gpus_expected": "GPUs the job asked for (int)",
    "gpus_seen": "GPUs that answer now (int)",
    "gpu_error": "hard fault in words, empty when there is none (str)",
}
"""Keys that ``tick`` reads from its facts."""


@dataclass(frozen=True)
class AlarmLimits:
    """Bounds of all alarms. Shares are of 1, times in seconds."""

    stall_floor_s: float = 600.0
    stall_intervals: float = 5.0
    """Stall limit: this many median intervals between metrics, never under ``stall_floor_s``."""
    first_metric_s: float = 1800.0
    """Stall limit until the first metric: loading and compiling take long."""
    quiet_phase_s: float = 3600.0
    quiet_phases: Tuple[str, ...] = (
        "setup",
        "download",
        "compile",
        "evaluation",
        "eval",
        "validation",
        "checkpoint",
        "save",
    )
    busy_factor: float = 6.0
    """After this many stall limits without metric or artifact, activity alone no longer counts as progress."""
    learned_max_s: float = 4 * 3600.0
    blind_s: float = 120.0
    """A longer pause between two ticks was our own sleep and is not held against the work."""
    nan_points: int = 2
    nan_grad_points: int = 20
    nan_clear_points: int = 3
    scale_floor: float = 1.0
    scale_skips: int = 5
    divergence: bool = True
    divergence_warmup_points: int = 20
    divergence_sigmas: float = 8.0
    divergence_share: float = 0.25
    divergence_patience: int = 3
    disk_share: float = 0.95
    disk_clear_share: float = 0.93
    memory_share: float = 0.95
    memory_clear_share: float = 0.90
    memory_hold_s: float = 10.0
    throttled_share: float = 0.25
    throttled_clear_share: float = 0.10
    throttled_window_s: float = 300.0
    report_grace_s: float = 60.0
    hung_idle_s: float = 600.0


@dataclass(frozen=True)
class Alarm(Value):
    """One alarm raised or cleared."""

    kind: str
    severity: str
    """``error`` or ``warning``."""
    sentence: str
    evidence: Dict[str, Any] = field(default_factory=dict)
    state: str = "raised"
    subject: str = ""
    """What it is about where there can be several: a mount point."""


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
        self._disks: Dict[Tuple[str, str], Deque[Tuple[float, float]]] = {}
        self._throttle: Deque[Tuple[float, int, int]] = deque()
        self._memory_high_since_s: Optional[float] = None
        self._gpu_missing_ticks = 0
        self._phase = ""
        self._divergence = Divergence(self.limits)
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
        """Another attempt of the run starts: silence counts from now, steps may be lower than before."""
        steps = dict(self._steps)
        self._forget_attempt()
        self._steps = steps
        self._start_s = now_s
        self._divergence.reset()

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
        self._seen_s[kind] = now_s
        if kind in ("metric", "artifact") and ("stall", "") in self._raised:
            if before is not None:  # it came back by itself: this job has such pauses
                self._learned_s = min(max(self._learned_s, 1.5 * (now_s - before)), self.limits.learned_max_s)

    def on_metric(self, point: Dict[str, Any], now_s: float) -> None:
        """A point of ``parsers.MetricParser``. Its alarms come out of the next ``tick``."""
        self.on_activity("metric", now_s)
        self._numbers(point)
        self._step(point)
        loss = _float(point.get("loss"))
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
        for disk in facts.get("disks") or ():
            self._disk(now_s, disk)
        self._memory(now_s, facts)
        self._throttled(now_s, facts)
        self._report(now_s, facts)
        self._gpus(facts)
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
                limit = max(limit, lim.stall_intervals * _median(self._gaps_s))
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
            "median_interval_s": round(_median(self._gaps_s), 1) if self._gaps_s else None,
            "phase": self._phase,
            "ages_s": {k: round(now_s - t, 1) for k, t in sorted(self._seen_s.items())},
        }
        expects = "metric" in self._seen_s
        if idle_s > limit:
            text = "no log line, metric, artifact, CPU or GPU time for %s; the limit is %s" % (
                _span(idle_s),
                _span(limit),
            )
            self._set("stall", True, "error", text, evidence)
        elif expects and silent_s > limit * self.limits.busy_factor:
            text = "busy, but no metric and no artifact for %s; buffered output would have come by now" % _span(
                silent_s
            )
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
            text = "the work is complete, but its process has not ended; nothing moved for %s" % _span(idle_s)
            evidence = {"idle_s": round(idle_s, 1), "artifacts_ok": ok, "last_step": last, "total_steps": total}
            self._set("hung", True, "warning", text, evidence)
        else:
            self._set("hung", False, "warning", "the process moves again", {"idle_s": round(idle_s, 1)})
        return ("hung", "") in self._raised

    # -- numbers

    def _numbers(self, point: Dict[str, Any]) -> None:
        if point.get("skipped"):  # a scaler finding its level; only its floor is an alarm
            scale = _float(point.get("loss_scale"))
            at_floor = scale is not None and scale <= self.limits.scale_floor
            self._floor_skips = self._floor_skips + 1 if at_floor else 0
            if self._floor_skips >= self.limits.scale_skips:
                text = "every step is skipped: the loss scale is at its floor (%g)" % (scale or 0.0)
                self._set("nan", True, "error", text, {"loss_scale": scale, "skips": self._floor_skips})
            return
        loss, val, grad = _float(point.get("loss")), _float(point.get("val_loss")), _float(point.get("grad_norm"))
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
            "loss": _word(loss),
            "val_loss": _word(val),
            "grad_norm": _word(grad),
        }
        at = " at step %s" % place[0] if place[0] is not None else ""
        if self._nan >= lim.nan_points:
            what = "exactly 0 with a gradient that is not finite" if loss == 0.0 else "not finite (%s)" % _word(loss)
            self._set("nan", True, "error", "the loss is %s%s, %d points in a row" % (what, at, self._nan), evidence)
        elif self._nan_val >= lim.nan_points:
            text = "the validation loss is not finite (%s)%s, %d points in a row" % (_word(val), at, self._nan_val)
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

    # -- resources

    def _disk(self, now_s: float, disk: Dict[str, Any]) -> None:
        path = str(disk.get("path", ""))
        for what in ("bytes", "inodes"):
            total, free = disk.get(what + "_total"), disk.get(what + "_free")
            if not total or free is None:  # file systems without a fixed inode table report 0
                continue
            seen = self._disks.setdefault((what, path), deque(maxlen=120))
            seen.append((now_s, float(free)))
            while len(seen) > 2 and now_s - seen[0][0] > 900:
                seen.popleft()
            eta_s = _eta_s(seen)
            used = 1.0 - float(free) / float(total)
            evidence = {"path": path, "free": free, "total": total, "used_share": round(used, 4), "full_in_s": eta_s}
            if used >= self.limits.disk_share:
                left = ", full in about %s at this pace" % _span(eta_s) if eta_s is not None else ""
                text = "%s: %.1f%% of the %s used, %s left%s" % (path, used * 100, what, _amount(free, what), left)
                severe = used >= 0.99 or (eta_s is not None and eta_s < 900)
                self._set("disk_" + what, True, "error" if severe else "warning", text, evidence, path)
            elif used < self.limits.disk_clear_share:
                text = "%s: %.1f%% of the %s used" % (path, used * 100, what)
                self._set("disk_" + what, False, "warning", text, evidence, path)

    def _memory(self, now_s: float, facts: Dict[str, Any]) -> None:
        used, limit = facts.get("memory_used_bytes"), facts.get("memory_limit_bytes")
        if used is None or not limit:
            return
        share = float(used) / float(limit)
        evidence = {"used_bytes": used, "limit_bytes": limit, "used_share": round(share, 4)}
        text = "memory: %.1f%% of the limit of %s used" % (share * 100, _amount(limit, "bytes"))
        if share >= self.limits.memory_share:
            if self._memory_high_since_s is None:
                self._memory_high_since_s = now_s
            if now_s - self._memory_high_since_s >= self.limits.memory_hold_s:
                self._set("memory_near_limit", True, "warning", text, evidence)
        else:
            self._memory_high_since_s = None
            if share < self.limits.memory_clear_share:
                self._set("memory_near_limit", False, "warning", text, evidence)

    def _throttled(self, now_s: float, facts: Dict[str, Any]) -> None:
        periods, throttled = facts.get("cpu_periods"), facts.get("cpu_throttled_periods")
        if periods is None or throttled is None:
            return
        seen = self._throttle
        if seen and (periods < seen[-1][1] or throttled < seen[-1][2]):  # counters began anew
            seen.clear()
        seen.append((now_s, int(periods), int(throttled)))
        while len(seen) > 2 and now_s - seen[1][0] >= self.limits.throttled_window_s:
            seen.popleft()
        if now_s - seen[0][0] < self.limits.throttled_window_s or periods <= seen[0][1]:
            return
        share = (throttled - seen[0][2]) / float(periods - seen[0][1])
        text = "the CPU quota held the work back in %.0f%% of the last %s" % (share * 100, _span(now_s - seen[0][0]))
        evidence = {"throttled_share": round(share, 3), "window_s": round(now_s - seen[0][0], 1)}
        if share >= self.limits.throttled_share:
            self._set("cpu_throttled", True, "warning", text, evidence)
        elif share < self.limits.throttled_clear_share:
            self._set("cpu_throttled", False, "warning", text, evidence)

    def _report(self, now_s: float, facts: Dict[str, Any]) -> None:
        due = facts.get("report_due_s")
        if due is None:
            return
        late_s = now_s - due
        if late_s > self.limits.report_grace_s:
            text = "the report is overdue by %s" % _span(late_s)
            self._set("overdue_report", True, "warning", text, {"late_s": round(late_s, 1)})
        elif late_s <= 0:
            self._set("overdue_report", False, "warning", "reports are on time again", {})

    def _gpus(self, facts: Dict[str, Any]) -> None:
        expected, seen, fault = facts.get("gpus_expected"), facts.get("gpus_seen"), facts.get("gpu_error")
        evidence = {"gpus_expected": expected, "gpus_seen": seen, "gpu_error": fault}
        if fault:
            self._set("gpu_lost", True, "error", "a GPU reports a hard fault: %s" % str(fault)[:200], evidence)
        elif expected and seen is not None:
            self._gpu_missing_ticks = self._gpu_missing_ticks + 1 if seen < expected else 0
            if self._gpu_missing_ticks >= 2:  # one failed query is no lost card
                text = "%d of %d GPUs answer" % (seen, expected)
                self._set("gpu_lost", True, "error", text, evidence)
            elif seen >= expected and fault is not None:
                self._set("gpu_lost", False, "error", "all %d GPUs answer" % expected, evidence)
            elif seen >= expected and "gpu_error" not in facts:
                self._set("gpu_lost", False, "error", "all %d GPUs answer" % expected, evidence)

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


def _float(value: Any) -> Optional[float]:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)  # wire points carry "nan" and "inf" as text
    except (TypeError, ValueError, OverflowError):
        return None


def _word(value: Optional[float]) -> Any:
    if value is None or math.isfinite(value):
        return value
    return "nan" if value != value else ("inf" if value > 0 else "-inf")


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def _eta_s(seen: "Deque[Tuple[float, float]]") -> Optional[float]:
    """Seconds until nothing is free at the pace of the window; None when it is not filling."""
    (t0, f0), (t1, f1) = seen[0], seen[-1]
    if t1 - t0 < 20 or f1 >= f0:
        return None
    return round(f1 * (t1 - t0) / (f0 - f1), 1)


def _span(seconds: float) -> str:
    if seconds < 120:
        return "%d s" % seconds
    if seconds < 7200:
        return "%d min" % (seconds / 60)
    return "%.1f h" % (seconds / 3600)


def _amount(count: float, what: str) -> str:
    if what != "bytes":
        return "%d" % count
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return "%.3g %s" % (count, unit)
        count /= 1000.0
    return "%.4g TB" % count
