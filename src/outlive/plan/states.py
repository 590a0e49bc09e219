"""Model states: weights, gradients, optimizer. Exact arithmetic; nothing here is fitted.

Bytes per trained parameter (Rajbhandari et al. 2020, arXiv 1910.02054, section 3; PyTorch AMP and FSDP documentation):

======================================================  =======  =====  =====================
stack                                                   weights  grads  optimizer (AdamW)
======================================================  =======  =====  =====================
fp32                                                    4        4      8
autocast (fp32 weights, 16-bit compute), FSDP mixed     4        4      8
16-bit weights with an fp32 master (DeepSpeed,          2        2/4    12 = master 4 + 8
Megatron); gradients 4 where they are summed in fp32
pure 16-bit                                             2        2      4
======================================================  =======  =====  =====================
"""

from __future__ import annotations

from typing import NamedTuple

from outlive.plan.layouts import FSDP, Layout
from outlive.plan.request import OPTIMIZERS, Request

QUANTISED_BYTES = {"nf4": 0.5625, "bnb.nf4": 0.5625, "bnb.nf4-dq": 0.5161, "gptq-int4": 0.53, "int8": 1.01}
"""Bytes per weight with block scales: nf4 has one fp32 per 64 (Dettmers et al. 2023, arXiv 2305.14314), -dq quantises
those again to 8 bits with one fp32 per 256; int8 has one scale per row."""


class Widths(NamedTuple):
    """Bytes per parameter: stored weight, gradient, optimizer, master copy, and the width computed in."""

    stack: str
    weight: float
    gradient: float
    moments: float
    master: float
    compute: int


def widths(request: Request, strategy: str, zero_stage: int) -> Widths:
    """Return the bytes per trained parameter for a precision on a stack (table above)."""
    wide, narrow, outside = OPTIMIZERS[request.optimizer]
    precision = request.precision
    if precision == "fp32":
        return Widths("fp32", 4, 4, 0.0 if outside else wide, 0, 4)
    if precision == "bf16-pure":
        return Widths("pure", 2, 2, 0.0 if outside else narrow, 0, 2)
    moments = 0.0 if outside else wide
    if strategy in FSDP or strategy in ("single", "ddp", "tp"):
        return Widths("fsdp" if strategy in FSDP else "autocast", 4, 4, moments, 0, 2)
    gradient = 2.0
    if request.grad_dtype == "fp32" or (request.grad_dtype is None and precision != "fp16-mixed" and strategy == "3d"):
        gradient = 4.0
    return Widths("master", 2, gradient, moments, 4, 2)


def adapter_params(request: Request) -> float:
    """Return the parameters of the adapters: rank x (inputs + outputs) of every targeted matrix, over the layers.

    Given ``trainable_params`` win. Targets are read from words as people write them (``q,v``, ``query,key``, ``mlp``,
    ``all``); none named means every matrix of a block.
    """
    if request.trainable_params is not None:
        return float(request.trainable_params)
    m, rank = request.model, request.lora_rank
    parts = target_parts(request.lora_targets)
    total = 0.0
    if "q" in parts:
        total += m.hidden + m.q_width
    for part in ("k", "v"):
        if part in parts:
            total += m.hidden + m.kv_width
    if "o" in parts:
        total += m.hidden + m.q_width
    if "mlp" in parts:
        total += m.matrices * (m.hidden + m.ffn) * max(1, m.experts)
    return rank * (total * m.layers + ((m.hidden + m.vocab) if "head" in parts else 0))


def target_parts(targets: str) -> frozenset[str]:
    """Return which of q, k, v, o, mlp, head the words name."""
    if not targets or targets.strip() in ("all", "all-linear"):
        return frozenset({"q", "k", "v", "o", "mlp"})
    found = set()
    for word in targets.replace(";", ",").split(","):
        plain = word.strip().casefold()
        if plain in ("q", "query", "q_proj", "wq"):
            found.add("q")
        elif plain in ("k", "key", "k_proj", "wk"):
            found.add("k")
        elif plain in ("v", "value", "v_proj", "wv"):
            found.add("v")
        elif plain in ("qkv", "c_attn", "query_key_value", "wqkv"):
            found |= {"q", "k", "v"}
        elif plain in ("o", "projection", "o_proj", "output", "proj", "dense", "wo"):
            found.add("o")
        elif plain in ("attn", "attention"):
            found |= {"q", "k", "v", "o"}
        elif plain in ("mlp", "ffn", "up", "down", "gate", "gate_proj", "up_proj", "down_proj", "fc1", "fc2"):
            found.add("mlp")
        elif plain in ("head", "lm_head"):
            found.add("head")
    return frozenset(found or {"q", "v"})


def frozen_weight_bytes(request: Request, params: float, block_params: float) -> float:
    """Return bytes of frozen weights: 4 (fp32 and autocast), 2 (16-bit), quantised for the matrices of the blocks.

    Tables, head and norms are not quantised.
    """
    wide = 2.0 if request.precision == "bf16-pure" or request.base_quantization else 4.0
    if request.base_quantization is None:
        return wide * params
    return QUANTISED_BYTES[request.base_quantization] * block_params + 2.0 * max(0.0, params - block_params)


class States(NamedTuple):
    """Bytes on one device."""

    weights: float
    gradients: float
    optimizer: float


def states(
    request: Request,
    layout: Layout,
    w: Widths,
    params: float,
    block_params: float,
    largest: float,
    trained: float,
    experts: float = 0.0,
) -> States:
    """Return weights, gradients and optimizer of ``params`` parameters of one pipeline stage and tensor rank.

    Each is divided by the shard group from the ZeRO stage on that shards it: optimizer 1, gradients 2, weights 3.
    With the optimizer inside the backward pass only the ``largest`` gradient exists at a time. ``trained`` is how many
    of the parameters are trained. Experts spread over ``ep`` ranks are held by as many fewer of the group, so of their
    ``experts`` parameters here each shard is ep / n, not 1 / n. Offload takes a part off the device: weights keep one
    gathered block (see memory.py).
    """
    n = float(layout.shard_group)
    if experts and n > 1:
        n *= params / (params + experts * (min(layout.ep, n) - 1))
    by = [n if layout.zero_stage >= stage else 1.0 for stage in (3, 2, 1)]
    if request.method == "full":
        weights = w.weight * params / by[0]
        if layout.strategy == "fsdp_grad_op":
            weights = w.weight * params / n
    else:
        frozen = frozen_weight_bytes(request, params, block_params)
        weights = (frozen + 4.0 * trained * (w.weight / 4)) / by[0]
    gradients = w.gradient * trained / by[1]
    if request.optimizer_in_backward:
        gradients = min(gradients, w.gradient * largest / by[1])
    optimizer = (w.moments + w.master) * trained / by[2]
    if "optimizer" in layout.offload:
        optimizer = 0.0
    if "params" in layout.offload:
        weights = gradients = 0.0
        if layout.strategy in ("fsdp_full", "fsdp_grad_op", "hsdp", "fsdp_tp"):
            optimizer = 0.0  # FSDP steps where the sharded weights are: on the host
    return States(weights, gradients, optimizer)
