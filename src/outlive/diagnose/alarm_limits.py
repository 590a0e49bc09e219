"""What alarms are: their kinds, their bounds, the facts that they look at, and an alarm as a value."""

from dataclasses import dataclass, field
from typing import Any, Dict, Tuple

from ..wire.values import Value

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


News = Tuple[str, bool, str, str, Dict[str, Any], str]
"""What a watch says at each look: kind, raised, severity, sentence, evidence, subject."""


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
