"""What the planner answers, as values."""

from __future__ import annotations

from typing import NamedTuple

from outlive.plan.gpus import Gpu
from outlive.plan.layouts import Layout
from outlive.plan.memory import Memory
from outlive.plan.model import Model
from outlive.plan.speed import Speed


class Choice(NamedTuple):
    """One plan with its verdict; the fields are described in ``docs/design/plan.md``."""

    layout: Layout
    model: Model
    gpu: Gpu
    nodes: int
    gpus_per_node: int
    precision: str
    optimizer: str
    method: str
    lora_rank: int | None
    base_quantization: str | None
    seq_len: int
    global_batch: int
    attention: str
    loss: str
    compile: bool
    fits: bool
    usable_bytes: float
    memory: Memory
    speed: Speed
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        """GPUs that the layout uses."""
        return self.layout.world


class RunnerUp(NamedTuple):
    """A layout that was not taken, and why."""

    choice: Choice
    why: str


class Change(NamedTuple):
    """One rung of the ladder when nothing fits: what to change, what it gives, what it costs."""

    what: str
    flags: tuple[str, ...]
    total_bytes: float
    fits: bool
    slower: float | None


class Target(NamedTuple):
    """Time and money for a number of tokens. ``cost`` is None without a price."""

    tokens: float
    hours: float
    hours_low: float
    hours_high: float
    cost: float | None
    cost_low: float | None
    cost_high: float | None
    currency: str
    waste: float | None


class Plan(NamedTuple):
    """The whole answer."""

    choice: Choice
    chosen: bool
    runners_up: tuple[RunnerUp, ...]
    changes: tuple[Change, ...]
    searched: int
    warnings: tuple[str, ...]
