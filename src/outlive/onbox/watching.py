"""Turns signs of life into the run's state and alarms: running, quiet, stalled, hung."""

from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional

from outlive.diagnose.alarms import AlarmLimits
from outlive.onbox.context import Context
from outlive.wire.clock import boot_s

PROGRESS_EVERY_S = 30.0


class Watching:
    """Feeds the alarm machine and moves the state between starting, running, stalled and hung."""

    def __init__(self, context: Context, alarms: Any, notify: Callable[[str, str, Dict[str, Any]], None]) -> None:
        self.context = context
        self.notify = notify
        self._make = alarms
        self.alarms = self._fresh()
        self.last_progress_b = 0.0
        self.last_step: Optional[int] = None
        self.gpus_expected = 0
        """Most GPUs seen in this run: fewer later is an alarm."""

    def _fresh(self) -> Any:
        limits = AlarmLimits(hung_idle_s=float(self.context.limits["hung_s"]))
        stall_s = self.context.limits["stall_s"]
        if stall_s:
            limits = replace(limits, stall_floor_s=float(stall_s), first_metric_s=float(stall_s))
        return self._make(limits, [(r["alarm"], r.get("subject", "")) for r in self.context.view.alarms.values()])

    def new_attempt(self) -> None:
        self.alarms.new_attempt(boot_s())
        self.last_step = None
        for name in list(self.context.view.alarms):
            self.context.record("alarm", alarm=name, cleared=True, sentence="a new attempt began")

    def tick(
        self,
        points: List[Dict[str, Any]],
        sample: Optional[Dict[str, Any]],
        running: bool,
        tail: Any,
        keep: Any,
        sampler: Any,
        life: Any,
    ) -> None:
        if not running:
            return
        now = boot_s()
        for point in points:
            self.alarms.on_metric(point, now)
        self.last_step = life.seen.last_step
        for kind, at in (
            ("log", tail.last_growth_b),
            ("artifact", keep.advanced_b),
            ("cpu", sampler.cpu_advanced_b),
        ):
            if at is not None:
                self.alarms.on_activity(kind, at)
        current = self.context.view.attempt
        first = current is not None and current.first_step is None
        if self.last_step is not None and (first or now - self.last_progress_b >= PROGRESS_EVERY_S):
            self.last_progress_b = now
            self.context.record("progress", sync=False, step=self.last_step, total=life.seen.total_steps)
        for alarm in self.alarms.tick(now, self._facts(sample or sampler.last, life)):
            if alarm.kind == "nan" and alarm.state == "raised":
                life.seen.nan = True
            self.context.record(
                "alarm",
                alarm=alarm.kind,
                subject=alarm.subject,
                cleared=alarm.state == "cleared",
                severity=alarm.severity,
                sentence=alarm.sentence,
                evidence=alarm.evidence,
            )
            if alarm.state == "raised":
                self.notify("alarm", alarm.sentence, {"alarm": alarm.kind, "severity": alarm.severity})
        self._state(points, tail, sampler, keep)

    def _state(self, points: List[Dict[str, Any]], tail: Any, sampler: Any, keep: Any) -> None:
        view = self.context.view
        began_b = view.attempt.started_b if view.attempt is not None else 0.0
        signs = [
            b for b in (tail.last_growth_b, sampler.cpu_advanced_b, keep.advanced_b) if b is not None and b > began_b
        ]
        raised = view.alarms
        if "hung" in raised:
            self.context.state("hung", raised["hung"]["sentence"])
        elif "stall" in raised:
            self.context.state("stalled", raised["stall"]["sentence"])
        elif view.state in ("starting", "stalled", "hung", "unknown") and (points or signs or view.state != "starting"):
            self.context.state("running", "the work is alive and something advances")

    def _facts(self, sample: Dict[str, Any], life: Any) -> Dict[str, Any]:
        """Return what the alarms may know, in their words; what we could not read is left out."""
        view = self.context.view
        steps = [c["step"] for c in view.checkpoints.values() if c.get("step") is not None]
        facts: Dict[str, Any] = {
            "alive": True,
            "attempt": len(view.attempts),
            "phase": "setup" if view.attempt is not None and view.attempt.stage == "setup" else "",
            "last_step": life.seen.last_step,
            "total_steps": life.seen.total_steps,
            "checkpoint_step": max(steps) if steps else None,
            "memory_used_bytes": sample.get("memory_used_bytes"),
            "memory_limit_bytes": sample.get("memory_limit_bytes"),
            "cpu_periods": sample.get("cpu_periods"),
            "cpu_throttled_periods": sample.get("cpu_throttled_periods"),
        }
        if sample:
            facts["disks"] = [
                {
                    "path": sample["disk_path"],
                    "bytes_total": sample["disk_total_bytes"],
                    "bytes_free": sample["disk_free_bytes"],
                    "inodes_total": sample["disk_total_inodes"],
                    "inodes_free": sample["disk_free_inodes"],
                }
            ]
        gpu = sample.get("gpu") or {}
        if gpu.get("state") == "ok":
            facts["gpus_seen"] = len(gpu.get("devices") or [])
            self.gpus_expected = max(self.gpus_expected, facts["gpus_seen"])
        elif gpu.get("state") in ("none", "sick") and self.gpus_expected:
            facts["gpus_seen"] = 0
            facts["gpu_error"] = gpu.get("why", "")
        if self.gpus_expected:
            facts["gpus_expected"] = self.gpus_expected
        return facts
