"""How memory and speed move with one setting: the curves of the report page."""

from __future__ import annotations

from typing import NamedTuple

from outlive.plan.layouts import Layout
from outlive.plan.memory import memory
from outlive.plan.request import Request
from outlive.plan.speed import speed


class Point(NamedTuple):
    """One setting: its value, bytes per GPU, tokens per second and GPU."""

    value: int
    total_bytes: float
    tokens_per_second: float


def sweeps(request: Request, layout: Layout) -> dict[str, list[Point]]:
    """Return curves over the micro-batch and the sequence length around the layout."""
    layout = layout._replace(strategy=layout.strategy.removesuffix("_offload").replace("zero3_", "zero3"))
    batches = [_point(request, layout._replace(micro_batch=n), n) for n in (1, 2, 4, 8, 16, 32)]
    lengths = []
    for n in (1024, 2048, 4096, 8192, 16384, 32768):
        lengths.append(_point(request._replace(seq_len=n), layout, n))
    return {"micro-batch": batches, "tokens per sequence": lengths}


def _point(request: Request, layout: Layout, value: int) -> Point:
    return Point(value, memory(request, layout).total, speed(request, layout).tokens_per_second_per_gpu)
