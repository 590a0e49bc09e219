"""``plan --explain``: every term of memory and speed with its formula, its numbers and its source."""

from __future__ import annotations

from typing import Any

from outlive.plan.activations import block_bytes, kept_bytes
from outlive.plan.answer import Choice
from outlive.plan.flops import attention_per_token, head_per_token, matrices_per_token
from outlive.plan.memory import constants, in_flight
from outlive.plan.request import Request
from outlive.plan.speed import links, matmul_share, peak_tflops
from outlive.plan.states import widths

GB = 1e9


def data(request: Request, choice: Choice) -> list[dict[str, Any]]:
    """Return the terms as objects: name, value with unit, formula with the numbers put in, source."""
    return [
        {"term": name, "value": value, "unit": unit, "formula": formula, "source": source}
        for name, value, unit, formula, source in terms(request, choice)
    ]


def lines(request: Request, choice: Choice) -> list[str]:
    """Return the terms as lines."""
    found = ["every term, with its numbers:"]
    for name, value, unit, formula, source in terms(request, choice):
        found.append(f"  {name:<16}{value:>12.4g} {unit:<8} = {formula}")
        found.append(f"  {'':<16}{'':>12} {'':<8}   {source}")
    return found


def terms(request: Request, choice: Choice) -> list[tuple[str, float, str, str, str]]:
    """Return name, value, unit, formula with numbers, and source of every term."""
    layout, memory, model = choice.layout, choice.memory, request.model
    c = constants()
    w = widths(request, layout.strategy, layout.zero_stage)
    split = layout.tp * layout.pp
    n = layout.shard_group if layout.zero_stage else 1
    by = [n if layout.zero_stage >= stage else 1 for stage in (3, 2, 1)]
    tokens = layout.micro_batch * request.seq_len / layout.cp
    one, whole = block_bytes(request, layout, w, c)
    kept = kept_bytes(request, layout, w, one, whole, c)
    stage = f"{model.params:.4g} parameters / (tp {layout.tp} x pp {layout.pp})"
    zero = "Rajbhandari et al. 2020, arXiv 1910.02054, section 3"
    recompute = "Korthikanti et al. 2022, arXiv 2205.05198, section 4, recounted tensor by tensor"
    flight = in_flight(layout, memory.stage != "last")
    layers = model.layers / layout.pp
    peak = peak_tflops(request.gpu, request.precision)
    inside, network = links(request, layout)
    logits = "tokens x vocabulary x bytes (standard loss: 2 + 4 + 4 + 4) / tp"
    found = [
        ("weights", memory.weights / GB, "GB", f"{w.weight:g} B x {stage} / {by[0]} shards", zero),
        ("gradients", memory.gradients / GB, "GB", f"{w.gradient:g} B x {stage} / {by[1]} shards", zero),
        (
            "optimizer",
            memory.optimizer / GB,
            "GB",
            f"({w.moments:g} + {w.master:g}) B x {stage} / {by[2]} shards",
            zero,
        ),
        (
            "gathered",
            memory.gathered / GB,
            "GB",
            "whole blocks for the moment, see plan/memory.py",
            "PyTorch FSDP notes",
        ),
        ("buffers", memory.buffers / GB, "GB", "buckets and temporaries", "PyTorch DDP and DeepSpeed defaults"),
        (
            "activations",
            memory.activations / GB,
            "GB",
            f"{tokens:.0f} tokens x {layers:g} layers x {kept:.0f} B x {flight:g} micro-batches, "
            f"recompute {layout.recompute}",
            recompute,
        ),
        (
            "working",
            memory.working / GB,
            "GB",
            f"one block: {tokens:.0f} tokens x {one + whole:.0f} B less what is kept",
            recompute,
        ),
        (
            "logits_loss",
            memory.logits_loss / GB,
            "GB",
            f"{logits}: {tokens:.0f} x {model.vocab} / {layout.tp}",
            "own count",
        ),
        (
            "fragmentation",
            memory.fragmentation / GB,
            "GB",
            f"{c['fragmentation']:g} x allocated + fixed",
            "fitted, data/constants.yaml",
        ),
        ("context", memory.context / GB, "GB", f"{c['context_gb']:g} GB", "data/constants.yaml"),
        (
            "model states",
            (memory.weights + memory.gradients + memory.optimizer) / GB,
            "GB",
            f"split {split} ways, ZeRO stage {layout.zero_stage}",
            zero,
        ),
        (
            "FLOPs per token",
            (matrices_per_token(model) + head_per_token(model) + attention_per_token(model, request.seq_len)) * 3 / 1e9,
            "GFLOP",
            f"3 x (2 x {model.active_block_params * model.layers:.4g} + 2 x {model.vocab} x {model.hidden} + "
            "attention)",
            "Narayanan et al. 2021, arXiv 2104.04473, appendix; attention counted causally",
        ),
        ("peak", peak, "TFLOP/s", f"{request.gpu.name}, {request.precision}", "data/gpus.yaml"),
        (
            "matrix share",
            matmul_share(request.gpu, c),
            "of peak",
            "what large products reach",
            "fitted, data/constants.yaml",
        ),
        ("link in node", inside / 1e9, "GB/s", "one direction, per GPU", "data/gpus.yaml"),
        ("network", network / 1e9, "GB/s", "one direction, per node", "data/gpus.yaml or --network-gb-s"),
    ]
    return found
