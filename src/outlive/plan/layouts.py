"""How the work is laid over the GPUs: degrees of parallelism, what is sharded, and which layouts are possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from outlive.plan.model import Model

STRATEGIES: dict[str, str] = {
    "single": "one GPU",
    "ddp": "a whole copy per GPU, gradients summed",
    "zero1": "optimizer states sharded (DeepSpeed, Megatron)",
    "zero2": "optimizer states and gradients sharded (DeepSpeed)",
    "zero3": "everything sharded (DeepSpeed)",
    "fsdp_grad_op": "FSDP, weights gathered for the whole step (SHARD_GRAD_OP)",
    "fsdp_full": "FSDP, everything sharded (FULL_SHARD)",
    "hsdp": "FSDP inside a node, copies across nodes",
    "tp": "matrices split inside the node",
    "fsdp_tp": "FSDP and matrices split inside the node",
    "zero1_tp": "optimizer states sharded, matrices split inside the node",
    "zero3_tp": "everything sharded (DeepSpeed), matrices split inside the node",
    "3d": "data, tensor and pipeline parallel",
}
ZERO_STAGE = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp_grad_op": 2, "fsdp_full": 3, "hsdp": 3, "fsdp_tp": 3}
ZERO_STAGE |= {"zero1_tp": 1, "zero3_tp": 3}
FSDP = frozenset({"fsdp_full", "fsdp_grad_op", "hsdp", "fsdp_tp"})


class Layout(NamedTuple):
    """One way to run. ``docs/design/plan.md`` says what each field means."""

    strategy: str = "single"
    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero_stage: int = 0
    shard_group: int = 1
    micro_batch: int = 1
    accumulation: int = 1
    recompute: str = "none"
    offload: str = "none"
    virtual_pp: int = 1
    sequence_parallel: bool = False

    @property
    def world(self) -> int:
        """GPUs of the layout."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def global_batch(self) -> int:
        """Sequences of one optimizer step."""
        return self.dp * self.micro_batch * self.accumulation


def faults(layout: Layout, model: Model, world: int, seq_len: int) -> list[str]:
    """Return why the layout cannot run, each as one sentence; empty where it can."""
    found = []
    if layout.world != world:
        found.append(
            f"dp {layout.dp} x tp {layout.tp} x pp {layout.pp} x cp {layout.cp} = {layout.world}, "
            f"but there are {world} GPUs"
        )
    if model.heads % layout.tp:
        found.append(f"tp {layout.tp} does not divide {model.heads} attention heads{_near(layout.tp, model.heads)}")
    elif layout.tp > model.kv_heads and layout.tp % model.kv_heads:
        found.append(f"tp {layout.tp} and {model.kv_heads} key/value heads do not divide each other")
    elif layout.tp <= model.kv_heads and model.kv_heads % layout.tp:
        found.append(
            f"tp {layout.tp} does not divide {model.kv_heads} key/value heads{_near(layout.tp, model.kv_heads)}"
        )
    if layout.pp * layout.virtual_pp > model.layers:
        found.append(
            f"{layout.pp} stages x {layout.virtual_pp} chunks need as many layers, the model has {model.layers}"
        )
    if seq_len % (2 * layout.cp) and layout.cp > 1:
        found.append(f"cp {layout.cp} needs sequences of a multiple of {2 * layout.cp} tokens, not {seq_len}")
    if layout.ep > 1:
        if not model.experts:
            found.append(f"ep {layout.ep}: the model has no experts")
        elif model.experts % layout.ep or (layout.dp * layout.cp) % layout.ep:
            found.append(f"ep {layout.ep} has to divide {model.experts} experts and dp x cp {layout.dp * layout.cp}")
    return found


def divisors(number: int) -> list[int]:
    """Return the divisors of ``number``, ascending."""
    return [n for n in range(1, number + 1) if number % n == 0]


def _near(wanted: int, number: int) -> str:
    fits = [str(n) for n in divisors(number) if n <= 2 * wanted]
    return f"; possible: {', '.join(fits[-4:])}"


def possible(
    model: Model,
    *,
    world: int,
    gpus_per_node: int,
    seq_len: int,
    global_batch: int | None,
    micro_batch: int | None,
    recomputes: tuple[str, ...],
    offload: str = "none",
    fast_links: bool = True,
) -> Iterator[Layout]:
    """Yield every layout that can run on this hardware, from plain to complicated.

    Tensor ranks stay inside a node; degrees divide heads, layers and the world; a pipeline is only built where tensor
    parallelism is as well (more than one node) and has at least as many micro-batches as stages.
    """
    tps = [t for t in divisors(gpus_per_node) if t <= 16 and model.heads % t == 0]
    for tp in tps:
        if tp > model.kv_heads and tp % model.kv_heads or tp <= model.kv_heads and model.kv_heads % tp:
            continue
        for pp in divisors(world // tp):
            if pp > 1 and (model.layers % pp or pp > 64 or world <= gpus_per_node or tp == 1):
                continue
            for cp in divisors(world // (tp * pp)):
                if cp > 1 and (seq_len % (2 * cp) or seq_len // cp < 8192 or cp > 32):
                    continue
                dp = world // (tp * pp * cp)
                yield from _batches(
                    model, tp, pp, cp, dp, gpus_per_node, global_batch, micro_batch, recomputes, offload, fast_links
                )


def _batches(
    model: Model,
    tp: int,
    pp: int,
    cp: int,
    dp: int,
    gpus_per_node: int,
    global_batch: int | None,
    micro_batch: int | None,
    recomputes: tuple[str, ...],
    offload: str,
    fast_links: bool,
) -> Iterator[Layout]:
    if global_batch is not None and (global_batch % dp or global_batch < dp):
        return
    per_rank = global_batch // dp if global_batch is not None else None
    if micro_batch is not None:
        sizes = [micro_batch]
    elif per_rank is not None:
        sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if per_rank % n == 0] or [1]
    else:
        sizes = [1, 2, 4, 8, 16, 32]
    shard = dp * cp
    for strategy, stage, group in _strategies(tp, pp, shard, gpus_per_node):
        for size in sizes:
            if per_rank is not None and per_rank % size:
                continue
            steps = per_rank // size if per_rank is not None else max(1, 4 * pp if pp > 1 else 1)
            if pp > 1 and steps < pp:
                continue
            for recompute in recomputes:
                yield Layout(
                    strategy=strategy,
                    dp=dp,
                    tp=tp,
                    pp=pp,
                    cp=cp,
                    ep=_ep(model, shard, gpus_per_node, tp),
                    zero_stage=stage,
                    shard_group=group,
                    micro_batch=size,
                    accumulation=steps,
                    recompute=recompute,
                    offload=offload,
                    sequence_parallel=tp > 1,
                )


def _strategies(tp: int, pp: int, shard: int, gpus_per_node: int) -> list[tuple[str, int, int]]:
    if pp > 1:
        return [("3d", 1, shard)]
    if tp > 1:
        if shard == 1:
            return [("tp", 0, 1)]
        return [("zero1_tp", 1, shard), ("fsdp_tp", 3, shard)]
    if shard == 1:
        return [("single", 0, 1)]
    found = [("ddp", 0, 1), ("zero1", 1, shard), ("zero2", 2, shard), ("fsdp_grad_op", 2, shard)]
    found.append(("fsdp_full", 3, shard))
    if shard > gpus_per_node:
        found.append(("hsdp", 3, gpus_per_node))
    return found


def _ep(model: Model, shard: int, gpus_per_node: int, tp: int) -> int:
    """Experts are spread over the ranks of a node where they divide."""
    if not model.experts:
        return 1
    best = 1
    for n in divisors(min(shard, max(1, gpus_per_node // tp))):
        if model.experts % n == 0 and shard % n == 0:
            best = n
    return best
