"""How long one optimizer step takes: a roofline by part, with what overlaps and what does not.

One micro-step: matrices and attention on the tensor cores, element-wise work on the memory bandwidth, kernel launches
as a floor; tensor-parallel traffic on top, sharding traffic hidden behind the compute as far as it goes. Then the
pipeline's idle time, the gradient exchange at the end of the step and the optimizer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from outlive.plan.activations import fused_kernels
from outlive.plan.flops import attention_per_token, head_per_token, matrices_per_token, model_flops_per_token
from outlive.plan.gpus import Gpu
from outlive.plan.layouts import Layout
from outlive.plan.memory import constants
from outlive.plan.request import Request
from outlive.plan.states import Widths, adapter_params, widths

PCIE_GB_S = {3: 12.0, 4: 25.0, 5: 50.0, 6: 100.0}
"""One direction of a x16 link in practice."""
HOST_ADAM_BYTES_PER_S = 20e9
"""Optimizer states a host updates: a vectorised Adam on one socket's memory bandwidth."""
SELECTIVE_AGAIN = 0.35
"""Forward work done again under per-operator recompute: some of the products and all that is element-wise."""
UNPACKING = 0.75
"""Speed of products whose weights are unpacked from 4 or 8 bits first."""


class Speed(NamedTuple):
    """Seconds of one optimizer step by part, and what follows from them."""

    matrices_s: float
    attention_s: float
    elementwise_s: float
    launch_s: float
    tensor_s: float
    sharding_s: float
    bubble_s: float
    optimizer_s: float
    step_s: float
    tokens_per_step: float
    tokens_per_second_per_gpu: float
    low: float
    high: float
    mfu: float


def peak_tflops(gpu: Gpu, precision: str) -> float:
    """Return the dense peak of the training precision; fp32 runs on TF32 tensor cores where there are any."""
    if precision == "fp32":
        return gpu.tf32_tflops or gpu.fp32_tflops or 10.0
    if precision == "fp16-mixed":
        return gpu.fp16_tflops or gpu.fp32_tflops or 10.0
    return gpu.bf16_tflops or gpu.fp16_tflops or gpu.fp32_tflops or 10.0


def matmul_share(gpu: Gpu, c: dict[str, float]) -> float:
    """Return the share of the 16-bit peak that large matrix products reach on this chip."""
    if gpu.tdp_w == 500 and gpu.compute_capability == "9.0":
        return c["matmul_h100_500w"]
    if gpu.compute_capability == "8.0":
        return c["matmul_a100"] * (0.88 if gpu.form == "PCIe" else 1.0)
    if gpu.compute_capability == "9.0":
        return c["matmul_h100"] * (0.9 if gpu.form == "PCIe" else 1.0)
    return c["matmul_other"]


def small_matrix(rows: float, columns: float, c: dict[str, float]) -> float:
    """Return how much a small product loses: tiles of 128 x 128 on all processors want rows x columns to be large."""
    return 1.0 / (1.0 + c["small_rows"] / max(1.0, rows) + c["small_columns"] / max(1.0, columns))


def links(request: Request, layout: Layout) -> tuple[float, float]:
    """Return bytes per second, one way: between neighbours in the node, and of a node to the network."""
    gpu = request.gpu
    if gpu.nvlink_gb_s and not (gpu.bridge and request.gpus_per_node > 2):
        inside = gpu.nvlink_gb_s / 2
    else:
        inside = PCIE_GB_S.get(gpu.pcie_gen, 12.0) / 2  # through the host: every byte goes up and down
    network = request.network_gb_s or gpu.network_gb_s
    return inside * 1e9, network * 1e9


def collective_s(volume: float, ranks: int, inside_ranks: int, inside: float, network: float, hop_s: float) -> float:
    """Return seconds of one all-gather or reduce-scatter of ``volume`` bytes over a ring.

    (n - 1)/n of the volume passes each link; where the ring leaves the node, the node's network carries it once.
    """
    if ranks <= 1:
        return 0.0
    share = (ranks - 1) / ranks
    nodes = math.ceil(ranks / max(1, inside_ranks))
    slowest = volume * share / inside
    if nodes > 1:
        slowest = max(slowest, volume * (nodes - 1) / nodes / network)
    return slowest + hop_s * (ranks - 1)


def speed(request: Request, layout: Layout, c: dict[str, float] | None = None) -> Speed:
    """Return the time of a step and what follows from it."""
    c = c or constants()
    m, gpu, t = request.model, request.gpu, layout.tp
    w = widths(request, layout.strategy, layout.zero_stage)
    tokens = layout.micro_batch * request.seq_len / layout.cp
    layers = m.layers / layout.pp
    inside, network = links(request, layout)
    inside *= c["link_share"]
    network *= c["network_share"]
    megatron = layout.strategy == "3d"
    even = t if layout.sequence_parallel else 1

    # Forward, backward and recompute in units of one forward pass.
    backward = 2.0 if request.method == "full" else 1.0
    again = 0.0
    if layout.recompute == "full":
        again = 1.0
    elif layout.recompute == "selective" and not megatron and layout.strategy != "zero1_tp":
        again = SELECTIVE_AGAIN
    passes = 1.0 + backward + again

    share = matmul_share(gpu, c)
    peak16 = peak_tflops(gpu, request.precision) * 1e12
    head_rate = rate = peak16 * share * small_matrix(tokens, min(m.hidden, m.mlp_width / t), c)
    if request.precision == "fp8-mixed" and gpu.fp8_tflops:
        rate *= min(2.0, 1.0 + c["fp8_gain"] * m.hidden / (m.hidden + 8192.0))
    if request.base_quantization:
        rate *= UNPACKING
    block = matrices_per_token(m) / layout.pp / t * tokens
    head = head_per_token(m) / t * tokens / layout.pp
    matrices = passes * block / rate + (1.0 + backward) * head / head_rate
    attention = attention_s(request, layout, peak16 * share, tokens, c)

    # Element-wise work: bytes read and written per token and layer, forward and backward.
    fused = fused_kernels(request, layout)
    moved = w.compute * ((6.0 if fused else 14.0) * m.hidden / even + (4.0 if fused else 7.0) * m.mlp_width / t)
    if request.attention == "eager":
        moved += (6.0 if fused else 14.0) * (m.heads / t) * request.seq_len / layout.cp
    loss = 0.0 if request.loss == "fused" else 20.0 * m.vocab / t / layout.pp
    bandwidth = gpu.bandwidth_gb_s * 1e9 * c["bandwidth_share"]
    elementwise = tokens * (layers * moved * (2.0 + again) + loss) / bandwidth
    compute = matrices + attention + elementwise
    launch = max(0.0, layers * passes * (12 if fused else 25) * c["launch_us"] * 1e-6 - compute)

    # Tensor parallelism: four all-reduces of the block's input per layer (six with full recompute), partly hidden.
    tensor = 0.0
    if t > 1:
        times = 4.0 + (2.0 if layout.recompute == "full" else 0.0)
        volume = tokens * m.hidden * w.compute
        link = inside if t <= request.gpus_per_node else min(inside, network)
        tensor = layers * times * 2 * (t - 1) / t * volume / link * c["tensor_exposed"]
    busy = compute + launch + tensor

    per_micro, per_step = sharding(request, layout, w, inside, network, c)
    exposed_micro = max(0.0, per_micro - c["overlap"] * busy) + c["not_hidden"] * per_micro
    part = c["step_exposed"] if not megatron else c["step_exposed"] * 0.3
    hidden = c["overlap"] * busy * (1.0 if megatron else 0.6)  # Megatron also gathers during the first forward pass
    exposed_step = max(0.0, per_step - hidden, part * per_step)

    micro, bubble = busy + exposed_micro, 0.0
    near = max(1, request.gpus_per_node // t)
    if layout.pp > 1:
        micro += tokens * m.hidden * w.compute / t / (network / near) * layout.virtual_pp
        bubble = (layout.pp - 1) / layout.virtual_pp * micro
    rank_params = m.params / (t * layout.pp)
    trained = rank_params if request.method == "full" else adapter_params(request) / (t * layout.pp)
    group = layout.shard_group if layout.zero_stage else 1
    optimizer = trained / group * 2 * (w.weight + w.gradient + w.moments + w.master) / bandwidth
    host = PCIE_GB_S.get(gpu.pcie_gen, 12.0) * 1e9
    if "optimizer" in layout.offload or "params" in layout.offload:
        optimizer = trained / group * (16 / HOST_ADAM_BYTES_PER_S + (w.gradient + w.weight) / host)
        if "params" in layout.offload:
            micro += 2 * rank_params * w.weight / group / host
    if request.activation_offload:
        micro += max(0.0, 2 * tokens * layers * m.hidden * w.compute / host - busy)
    steps = layout.accumulation
    step = (steps * micro + bubble + exposed_step + optimizer) / (
        c["other"] - c["scale_loss"] * math.log2(max(1.0, layout.world / request.gpus_per_node))
    )
    total_tokens = float(steps * layout.micro_batch * request.seq_len * layout.dp)
    step /= request.speed_scale
    per_gpu = total_tokens / step / layout.world
    peak = gpu.fp8_tflops * 1e12 if request.precision == "fp8-mixed" and gpu.fp8_tflops else peak16
    waiting = (steps * (tensor + exposed_micro) + exposed_step + bubble) / step
    factor = spread(request, layout, waiting, c)
    return Speed(
        matrices_s=steps * matrices,
        attention_s=steps * attention,
        elementwise_s=steps * elementwise,
        launch_s=steps * launch,
        tensor_s=steps * tensor,
        sharding_s=steps * exposed_micro + exposed_step,
        bubble_s=bubble,
        optimizer_s=optimizer,
        step_s=step,
        tokens_per_step=total_tokens,
        tokens_per_second_per_gpu=per_gpu,
        low=per_gpu / factor,
        high=per_gpu * factor,
        mfu=per_gpu * model_flops_per_token(m, request.seq_len) / peak,
    )


def attention_s(request: Request, layout: Layout, rate: float, tokens: float, c: dict[str, float]) -> float:
    """Return seconds of the attention core of one micro-step; ``rate`` is that of large matrices.

    Flash does 2.5 forward passes in its backward pass (it computes the scores again; Dao 2023, arXiv 2307.08691), eager
    2, but also the half that causality masks. A ring over c ranks loses balance and kernel size: 2 - 2/c.
    """
    core = attention_per_token(request.model, request.seq_len) / layout.pp / layout.tp * tokens
    eager = request.attention == "eager"
    passes = 1.0 + (2.0 if eager else 2.5)
    if layout.recompute == "full" or (layout.recompute == "selective" and eager):
        passes += 1.0
    if eager and request.model.arch != "encoder":
        passes *= 2
    if layout.cp > 1:
        passes *= 2.0 - 2.0 / layout.cp
    return passes * core / (rate * c[f"attention_{request.attention}"])


def sharding(
    request: Request, layout: Layout, w: Widths, inside: float, network: float, c: dict[str, float]
) -> tuple[float, float]:
    """Return seconds of sharding and gradient traffic per micro-step and per optimizer step, before any overlap.

    Elements sent (ring): FULL_SHARD 3 P per micro-step (gather twice, reduce once), ZeRO-2 P per micro-step and P per
    step, ZeRO-1 2 P per step, copies 2 P of what each holds per step (arXiv 1910.02054, section 7).
    """
    m, t = request.model, layout.tp
    rank_params = m.params / (t * layout.pp)
    trained = rank_params if request.method == "full" else adapter_params(request) / (t * layout.pp)
    near = max(1, request.gpus_per_node // t)
    hop = c["hop_us"] * 1e-6
    lane = network / t
    group = layout.shard_group if layout.zero_stage else 1
    replicas = max(1, layout.dp * layout.cp // group)
    messages = max(1.0, trained * 2 / 5e8)
    per_micro = per_step = 0.0
    if layout.zero_stage == 3 and group > 1:
        hops = hop * 0.1 * m.layers / layout.pp  # gathers are large and issued ahead
        gather = collective_s(2.0 * rank_params, group, near, inside, lane, hops)
        reduce = collective_s(2.0 * trained, group, near, inside, lane, hops)
        if layout.pp > 1:
            per_step = gather + reduce
        else:
            per_micro = 2 * gather + reduce
    elif group > 1:
        each = collective_s(2.0 * trained, group, near, inside, lane, hop * messages)
        per_step = 2 * each
        if layout.zero_stage == 2:
            per_micro, per_step = each, each
    if replicas > 1:
        # Each shard has its own ring over the copies; those of one node share its network.
        width = w.gradient if layout.zero_stage == 0 else 2.0
        across = max(1, near // min(group, near))
        sharing = min(group, near)
        hops = hop * messages / group
        per_step += 2 * collective_s(width * trained / group, replicas, across, inside, lane / sharing, hops)
    return per_micro, per_step


def spread(request: Request, layout: Layout, waiting: float, c: dict[str, float]) -> float:
    """Return the factor between the middle and either end of the range.

    It grows with the share of the step that waits for links and pipelines, with the number of nodes, and where the case
    is unlike those measured: another chip, a narrow model, a micro-batch that nobody stated, a ring of attention.
    """
    doublings = math.log2(max(1.0, layout.world / request.gpus_per_node))
    wide = c["range_waiting"] * waiting + c["range_doubling"] * doublings
    unlike = (not known(request)) + (request.model.hidden < 1600) + (layout.cp > 1)
    unlike += request.micro_batch is None and request.layout is not None
    return c["range_factor"] * math.exp(wide + c["range_unlike"] * unlike)


def known(request: Request) -> bool:
    """Return whether measurements of this kind of chip went into the constants."""
    return request.gpu.compute_capability in ("8.0", "9.0") and request.gpu.form.startswith("SXM")
