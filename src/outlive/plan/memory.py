"""Memory on the worst device of a layout: terms in bytes that sum to the total, with an interval."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from outlive.plan.activations import block_bytes, kept_bytes, logits_bytes
from outlive.plan.layouts import Layout
from outlive.plan.request import Request
from outlive.plan.states import Widths, adapter_params, states, widths

COMPILED = Path(__file__).with_name("compiled")
TERMS: dict[str, str] = {
    "weights": "stored weights",
    "gradients": "gradients",
    "optimizer": "optimizer states and fp32 master copy",
    "gathered": "weights and gradients whole for the moment",
    "buffers": "communication buckets and temporaries",
    "activations": "kept for the backward pass",
    "working": "one block at work in the backward pass",
    "logits_loss": "logits and loss",
    "fragmentation": "held by the allocator, not used",
    "context": "CUDA and NCCL themselves",
}
"""Every term in the order it is shown."""


@cache
def constants() -> dict[str, float]:
    """Return the constants of the planner by name."""
    found: dict[str, float] = json.loads((COMPILED / "constants.json").read_bytes())
    return found


class Memory(NamedTuple):
    """Bytes on one device by term, worst device of the plan; ``stage`` says which pipeline stage that is."""

    weights: float
    gradients: float
    optimizer: float
    gathered: float
    buffers: float
    activations: float
    working: float
    logits_loss: float
    fragmentation: float
    context: float
    low: float
    high: float
    stage: str = ""

    @property
    def allocated(self) -> float:
        """What the framework's own counter would show as its peak."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.gathered
            + self.buffers
            + self.activations
            + self.working
            + self.logits_loss
        )

    @property
    def reserved(self) -> float:
        """What the allocator holds."""
        return self.allocated + self.fragmentation

    @property
    def total(self) -> float:
        """What has to fit: reserved and the context, as nvidia-smi shows it."""
        return self.reserved + self.context


def memory(request: Request, layout: Layout, c: dict[str, float] | None = None) -> Memory:
    """Return the memory of the worst device: of the first and last pipeline stage the fuller one."""
    c = c or constants()
    w = widths(request, layout.strategy, layout.zero_stage)
    if layout.pp == 1:
        return _stage(request, layout, w, c, first=True, last=True)
    first = _stage(request, layout, w, c, first=True, last=False)
    last = _stage(request, layout, w, c, first=False, last=True)
    return first if first.total >= last.total else last


def in_flight(layout: Layout, first: bool) -> float:
    """Return micro-batches whose activations the stage holds at once.

    1F1B: the first stage holds as many as there are stages, the last one; interleaving v chunks raises the first by
    1 + (p - 1) / (p v) (Narayanan et al. 2021, arXiv 2104.04473, section 2.2; 2205.05198, section 4.2.3).
    """
    if layout.pp == 1:
        return 1.0
    p, v = layout.pp, layout.virtual_pp
    held = float(min(p, layout.accumulation)) if first else 1.0
    return held * (1 + (p - 1) / (p * v)) if v > 1 and first else held


def gathered_bytes(
    request: Request, layout: Layout, w: Widths, stage_params: float, block: float, tables: float, trained_share: float
) -> float:
    """Return bytes of weights and gradients that exist whole for a moment.

    FULL_SHARD and ZeRO-3: the block at work and the next one, prefetched (2 c block), the gradient of one block, and
    the root unit with tables, gathered for the whole pass, with its gradient (PyTorch FSDP notes). Inside a pipeline
    the stage stays gathered over its micro-batches and its gradients are summed whole, in fp32, until the last one.
    SHARD_GRAD_OP: all weights, c P. Autocast: 16-bit casts of fp32 weights that the backward pass needs, 2 P (PyTorch
    AMP notes). DeepSpeed ZeRO-3: at most 1e9 live parameters (its default).
    """
    c = w.compute
    if layout.offload != "none" and "params" in layout.offload and layout.shard_group == 1:
        return c * (2 * block + tables) + c * max(block, tables) * trained_share
    if layout.zero_stage == 3 and layout.shard_group > 1:
        if request.base_quantization:
            c = 1
        gradients = c * max(block, tables / 2) * trained_share
        if layout.strategy in ("zero3", "zero3_tp"):
            return c * min(stage_params, max(2 * block, 1e9 / layout.tp)) + gradients
        if layout.pp > 1:
            return (c + 4.0 * trained_share) * stage_params
        return c * (2 * block + tables) + gradients + c * tables * trained_share
    if layout.strategy == "fsdp_grad_op" and layout.shard_group > 1:
        return c * stage_params + c * max(block, tables) * trained_share
    if w.stack == "autocast" and not request.base_quantization:
        return 2.0 * stage_params
    return 0.0


def buffer_bytes(request: Request, layout: Layout, w: Widths, trained: float) -> float:
    """Return bytes of buckets and of the optimizer's temporaries.

    DDP copies gradients into buckets of their full size (``gradient_as_bucket_view`` off, its default). ZeRO-1 to 3 of
    DeepSpeed: two buckets of 5e8 elements (its default), never more than there is. A quantised or adapted model
    dequantises one matrix at a time.
    """
    total = 0.0
    if layout.strategy == "ddp":
        total += w.gradient * trained
    elif layout.strategy in ("zero1", "zero2", "zero3", "zero3_tp") and layout.shard_group > 1:
        total += 2 * w.compute * min(5e8, trained)
    if request.base_quantization:
        total += 2.0 * request.model.hidden * request.model.ffn
    return total


def _stage(request: Request, layout: Layout, w: Widths, c: dict[str, float], *, first: bool, last: bool) -> Memory:
    m, t = request.model, layout.tp
    layers = m.layers / layout.pp
    if m.layers % layout.pp and not (first and last):
        layers = -(-m.layers // layout.pp)
    dense = m.block_params - m.expert_block_params
    block = dense / t + m.expert_block_params / (t * layout.ep)
    embedding = m.embedding_params if first or (last and m.tied) else 0
    head = m.head_params if last else 0
    tables = (embedding + head) / t
    stage_params = block * layers + tables
    trained = stage_params if request.method == "full" else adapter_params(request) / (t * layout.pp)
    share = trained / stage_params if stage_params else 0.0
    largest = max(m.vocab * m.hidden / t, m.hidden * m.ffn / t) * share
    experts = m.expert_block_params / (t * layout.ep) * layers
    held = states(request, layout, w, stage_params, block * layers, largest, trained, experts)
    gathered = gathered_bytes(request, layout, w, stage_params, block, tables, share)
    buffers = buffer_bytes(request, layout, w, trained)

    tokens = layout.micro_batch * request.seq_len / layout.cp
    split, whole = (part * request.activation_scale for part in block_bytes(request, layout, w, c))
    kept = kept_bytes(request, layout, w, split, whole, c)
    flight = in_flight(layout, first)
    activations = tokens * layers * kept * flight
    activations += tokens * m.hidden * w.compute * (1 + m.dropout * 10) / t  # the embedding's output
    logits = logits_bytes(request, layout, w, tokens, c) if last else 0.0
    if last and t > 1:
        logits += 2.0 * w.compute * tokens * m.hidden  # the head's input whole on every tensor rank, and its gradient
    # While one block runs backward the logits are gone: its own tensors, where they were dropped, and their gradients.
    one = tokens * (split / t + whole / (t if layout.sequence_parallel else 1))
    gradients = w.compute * tokens * (2 * m.hidden + 2 * m.mlp_width / t)
    working = gradients + (one - tokens * kept if layout.recompute != "none" else 0.0)
    working = max(0.0, working - logits)

    allocated = held.weights + held.gradients + held.optimizer + gathered + buffers + activations + logits + working
    # The optimizer's step comes when the activations are gone; its temporaries are as large as the weights (torch's
    # foreach form). Sharded stacks run a fused step, or shard by shard.
    step = held.weights + held.gradients + held.optimizer
    if not request.optimizer_in_backward and held.optimizer and layout.offload == "none":
        temporary = w.weight * trained if layout.zero_stage == 0 else 0.0
        buffers += max(0.0, step + temporary + buffers - allocated)
        allocated = held.weights + held.gradients + held.optimizer + gathered + buffers + activations + logits + working
    slack = c["fragmentation"] if request.packed else c["fragmentation_ragged"]
    moving = allocated - held.weights - held.gradients - held.optimizer
    fragmentation = slack * allocated + min(c["fragmentation_fixed_gb"] * 1e9, 0.1 * allocated)
    context = c["context_gb"] * 1e9
    total = allocated + fragmentation + context
    low = total - (1 - c["memory_low"]) * moving - fragmentation * 0.5
    high = total + (c["memory_high"] - 1) * moving + fragmentation * 0.5 + 0.4e9
    return Memory(
        weights=held.weights,
        gradients=held.gradients,
        optimizer=held.optimizer,
        gathered=gathered,
        buffers=buffers,
        activations=activations,
        working=working,
        logits_loss=logits,
        fragmentation=fragmentation,
        context=context,
        low=low,
        high=high,
        stage="" if first and last else ("first" if first else "last"),
    )
