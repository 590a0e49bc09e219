"""Resources of the box that run out or go missing: disk, memory, CPU quota, reports, GPUs."""

from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from .alarm_limits import AlarmLimits, News
from .spans import amount, span


class Resources:
    """Looks at the facts of one tick after another; holds only what windows and slopes need."""

    def __init__(self, limits: AlarmLimits) -> None:
        self._limits = limits
        self._news: List[News] = []
        self._disks: Dict[Tuple[str, str], Deque[Tuple[float, float]]] = {}
        self._throttle: Deque[Tuple[float, int, int]] = deque()
        self._memory_high_since_s: Optional[float] = None
        self._gpu_missing_ticks = 0

    def look(self, now_s: float, facts: Dict[str, Any]) -> List[News]:
        """Return what the facts raise or clear, also where that is no change."""
        self._news = []
        for disk in facts.get("disks") or ():
            self._disk(now_s, disk)
        self._memory(now_s, facts)
        self._throttled(now_s, facts)
        self._report(now_s, facts)
        self._gpus(facts)
        return self._news

    def _say(
        self, kind: str, on: bool, severity: str, sentence: str, evidence: Dict[str, Any], subject: str = ""
    ) -> None:
        self._news.append((kind, on, severity, sentence, evidence, subject))

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
            if used >= self._limits.disk_share:
                left = ", full in about %s at this pace" % span(eta_s) if eta_s is not None else ""
                text = "%s: %.1f%% of the %s used, %s left%s" % (path, used * 100, what, amount(free, what), left)
                severe = used >= 0.99 or (eta_s is not None and eta_s < 900)
                self._say("disk_" + what, True, "error" if severe else "warning", text, evidence, path)
            elif used < self._limits.disk_clear_share:
                text = "%s: %.1f%% of the %s used" % (path, used * 100, what)
                self._say("disk_" + what, False, "warning", text, evidence, path)

    def _memory(self, now_s: float, facts: Dict[str, Any]) -> None:
        used, limit = facts.get("memory_used_bytes"), facts.get("memory_limit_bytes")
        if used is None or not limit:
            return
        share = float(used) / float(limit)
        evidence = {"used_bytes": used, "limit_bytes": limit, "used_share": round(share, 4)}
        text = "memory: %.1f%% of the limit of %s used" % (share * 100, amount(limit, "bytes"))
        if share >= self._limits.memory_share:
            if self._memory_high_since_s is None:
                self._memory_high_since_s = now_s
            if now_s - self._memory_high_since_s >= self._limits.memory_hold_s:
                self._say("memory_near_limit", True, "warning", text, evidence)
        else:
            self._memory_high_since_s = None
            if share < self._limits.memory_clear_share:
                self._say("memory_near_limit", False, "warning", text, evidence)

    def _throttled(self, now_s: float, facts: Dict[str, Any]) -> None:
        periods, throttled = facts.get("cpu_periods"), facts.get("cpu_throttled_periods")
        if periods is None or throttled is None:
            return
        seen = self._throttle
        if seen and (periods < seen[-1][1] or throttled < seen[-1][2]):  # counters began anew
            seen.clear()
        seen.append((now_s, int(periods), int(throttled)))
        while len(seen) > 2 and now_s - seen[1][0] >= self._limits.throttled_window_s:
            seen.popleft()
        if now_s - seen[0][0] < self._limits.throttled_window_s or periods <= seen[0][1]:
            return
        share = (throttled - seen[0][2]) / float(periods - seen[0][1])
        text = "the CPU quota held the work back in %.0f%% of the last %s" % (share * 100, span(now_s - seen[0][0]))
        evidence = {"throttled_share": round(share, 3), "window_s": round(now_s - seen[0][0], 1)}
        if share >= self._limits.throttled_share:
            self._say("cpu_throttled", True, "warning", text, evidence)
        elif share < self._limits.throttled_clear_share:
            self._say("cpu_throttled", False, "warning", text, evidence)

    def _report(self, now_s: float, facts: Dict[str, Any]) -> None:
        due = facts.get("report_due_s")
        if due is None:
            return
        late_s = now_s - due
        if late_s > self._limits.report_grace_s:
            text = "the report is overdue by %s" % span(late_s)
            self._say("overdue_report", True, "warning", text, {"late_s": round(late_s, 1)})
        elif late_s <= 0:
            self._say("overdue_report", False, "warning", "reports are on time again", {})

    def _gpus(self, facts: Dict[str, Any]) -> None:
        expected, seen, fault = facts.get("gpus_expected"), facts.get("gpus_seen"), facts.get("gpu_error")
        evidence = {"gpus_expected": expected, "gpus_seen": seen, "gpu_error": fault}
        if fault:
            self._say("gpu_lost", True, "error", "a GPU reports a hard fault: %s" % str(fault)[:200], evidence)
        elif expected and seen is not None:
            self._gpu_missing_ticks = self._gpu_missing_ticks + 1 if seen < expected else 0
            if self._gpu_missing_ticks >= 2:  # one failed query is no lost card
                text = "%d of %d GPUs answer" % (seen, expected)
                self._say("gpu_lost", True, "error", text, evidence)
            elif seen >= expected and facts.get("gpu_error", "") == "":  # None: a fault may still stand
                self._say("gpu_lost", False, "error", "all %d GPUs answer" % expected, evidence)


def _eta_s(seen: "Deque[Tuple[float, float]]") -> Optional[float]:
    """Seconds until nothing is free at the pace of the window; None when it is not filling."""
    (t0, f0), (t1, f1) = seen[0], seen[-1]
    if t1 - t0 < 20 or f1 >= f0:
        return None
    return round(f1 * (t1 - t0) / (f0 - f1), 1)
