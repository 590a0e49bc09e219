"""What to save, how often, what it takes: the arithmetic of intervals and budgets is that of ``checkpoints``."""

from __future__ import annotations

from typing import NamedTuple

from outlive.checkpoints import cadence
from outlive.checkpoints.retention import Keep
from outlive.plan.answer import Choice
from outlive.plan.request import Request
from outlive.plan.states import adapter_params, widths

DISK_BYTES_PER_S = 1e9
"""Assumed where nobody measured: one local NVMe, or a good network file system, per node."""


class CheckpointPlan(NamedTuple):
    """Figures of the checkpoints of a plan."""

    format: str
    bytes: float
    weights_bytes: float
    files: int
    save_s: float
    interval_s: float
    interval_steps: int
    mtbf_s: float
    mtbf_assumed: bool
    waste: float
    keep_latest: int
    keep_best: int
    disk_bytes: float
    inodes: int
    resume: tuple[str, ...]


def checkpoint_plan(
    request: Request,
    choice: Choice,
    *,
    mtbf_s: float | None = None,
    disk_bytes_per_s: float | None = None,
    keep: Keep | None = None,
) -> CheckpointPlan:
    """Return size, cadence, retention and budget. ``mtbf_s`` is the mean time between interruptions of one node."""
    keep = keep or Keep()
    layout = choice.layout
    w = widths(request, layout.strategy, layout.zero_stage)
    if request.method == "full":
        trained = float(request.model.params)
        weights = (4.0 if w.master else w.weight) * trained
    else:
        trained = adapter_params(request)
        weights = 4.0 * trained
    whole = weights + w.moments * trained
    sharded = layout.zero_stage > 0 or layout.tp > 1 or layout.pp > 1
    writers = choice.world if sharded else 1
    nodes = choice.nodes if sharded else 1
    files = writers + 2 if sharded else 3
    save = max(0.5, whole / ((disk_bytes_per_s or DISK_BYTES_PER_S) * nodes))
    one = mtbf_s or cadence.ASSUMED_MTBF_S
    workers = choice.nodes
    interval = cadence.auto_interval_s(save, one, workers)
    waste = cadence.expected_waste(interval, save, one / max(1, workers), restart_s=120.0 + save)
    budget = cadence.budget(round(whole), files, keep)
    return CheckpointPlan(
        format="sharded (one file per rank, distributed checkpoint)" if sharded else "single (safetensors and state)",
        bytes=whole,
        weights_bytes=weights,
        files=files,
        save_s=save,
        interval_s=interval,
        interval_steps=max(1, int(interval / choice.speed.step_s)),
        mtbf_s=one,
        mtbf_assumed=mtbf_s is None,
        waste=waste,
        keep_latest=keep.latest,
        keep_best=keep.best,
        disk_bytes=budget.bytes,
        inodes=budget.inodes,
        resume=_resume(sharded),
    )


def _resume(sharded: bool) -> tuple[str, ...]:
    steps = [
        "start the same command: it loads the newest good checkpoint, the first start finds none",
        "model, optimizer, scheduler, data position and random states come from it; compare the first loss",
    ]
    if sharded:
        steps.append("another number of GPUs may load it; for serving, consolidate it to safetensors first")
    return tuple(steps)
