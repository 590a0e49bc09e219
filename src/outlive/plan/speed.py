"""How long one optimizer step takes: a roofline by part, with what overlaps and what does not.

One micro-step: matrices and attention on the tensor cores, element-wise work on the memory bandwidth, kernel launches
as a floor; tensor-parallel traffic on top, sharding traffic hidden behind the compute as far as it goes. Then the
pipeline's idle time, the gradient exchange at the end of the step and the optimizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlive.plan.activations import fused_kernels
from outlive.plan.flops import attention_per_token, head_per_token, matrices_per_token, model_flops_per_token
from outlive.plan.gpus import Gpu
from outlive.plan.layouts import Layout
from outlive.plan.memory import constants
from outlive.plan.request import Request
from outlive.plan.states import widths

PCIE_GB_S = {3: 12.0, 4: 25.0, 5: 50.0, 6: 100.0}
"""One direction of a x16 link in practice."""


@dataclass(frozen=True, slots=True)
class Speed:
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

    # Forward, backward and recompute in units of one forward pass.
    backward = 2.0 if request.method == "full" else 1.0
    again = {"none": 0.0, "full": 1.0, "selective": 0.0 if layout.strategy in ("3d", "zero1_tp") else 0.35}[
        layout.recompute
    ]
    passes = 1.0 + backward + again

    peak16 = peak_tflops(gpu, request.precision) * 1e12
    rate = peak16 * matmul_share(gpu, c) * small_matrix(tokens, m.hidden / t, c)
    head_rate = rate
    if request.precision == "fp8-mixed":
        rate *= c["fp8_gain"] if gpu.fp8_tflops else 1.0
    if request.base_quantization:
        rate *= 0.75  # every product first unpacks its weights
    block = matrices_per_token(m) / layout.pp / t * tokens
    head = head_per_token(m) / t * tokens / (layout.pp if layout.pp > 1 else 1)
    matrices = passes * block / rate + (1.0 + backward) * head / head_rate
    core = attention_per_token(m, request.seq_len) / layout.pp / t * tokens
    attention_again = 1.0 if layout.recompute == "full" else 0.0
    if layout.recompute == "selective" and layout.strategy in ("3d", "zero1_tp") and request.attention == "eager":
        attention_again = 1.0
    attention_passes = 1.0 + attention_again + (2.5 if request.attention != "eager" else 2.0)
    if request.attention == "eager" and m.arch != "encoder":
        attention_passes *= 2  # the masked half is computed as well
    attention = attention_passes * core / (peak16 * c[f"attention_{request.attention}"])

    # Element-wise work: bytes read and written per token and layer, forward and backward.
    fused = fused_kernels(request, layout)
    moved = w.compute * ((6.0 if fused else 14.0) * m.hidden + (4.0 if fused else 7.0) * m.mlp_width / t)
    if request.attention == "eager":
        moved += (8.0 if fused else 14.0) * (m.heads / t) * request.seq_len / layout.cp
    elementwise = tokens * layers * moved * (2.0 + again) / (gpu.bandwidth_gb_s * 1e9 * c["bandwidth_share"])
    elementwise += (
        (0.0 if request.loss == "fused" else 20.0)
        * tokens
        * m.vocab
        / t
        / layout.pp
        / (gpu.bandwidth_gb_s * 1e9 * c["bandwidth_share"])
    )
    compute = matrices + attention + elementwise
    launches = layers * (1.0 + backward + again) * (12 if fused else 25) * c["launch_us"] * 1e-6
    launch = max(0.0, launches - compute)

    # Tensor parallelism: four all-reduces of the block's input per layer (six with full recompute), nothing hidden.
    tensor = 0.0
    if t > 1:
        times = 4.0 + (2.0 if layout.recompute == "full" else 0.0)
        volume = tokens * m.hidden * w.compute
        link = inside if t <= request.gpus_per_node else min(inside, network)
        tensor = layers * times * 2 * (t - 1) / t * volume / link * c["tensor_exposed"]
    if layout.cp > 1:
        ring = 2 * tokens * m.kv_width * w.compute * (layout.cp - 1) * 3 * layers / t
        link = inside if t * layout.cp <= request.gpus_per_node else network / max(1, request.gpus_per_node // t)
        tensor += max(0.0, ring / link - 0.5 * attention)

    # Sharding.
    rank_params = (m.active_params if not m.experts else m.params) / (t * layout.pp)
    trained = rank_params if request.method == "full" else 0.01 * rank_params
    near = max(1, request.gpus_per_node // t)
    hop = c["hop_us"] * 1e-6
    group = layout.shard_group
    replicas = max(1, layout.dp * layout.cp // max(1, group)) if layout.zero_stage else layout.dp * layout.cp
    per_micro = per_step = 0.0
    messages = max(1.0, rank_params * 2 / 5e8)
    net = network
    if layout.zero_stage == 3 and group > 1:
        gathers = 1.0 if layout.pp > 1 else 2.0
        per_micro = gathers * collective_s(2.0 * rank_params, group, near, inside, net / t, hop * layers)
        if request.method == "full":
            per_micro += collective_s(2.0 * rank_params, group, near, inside, net / t, hop * layers)
        if layout.pp > 1:
            per_step, per_micro = per_micro, 0.0
    elif group > 1:
        each = collective_s(2.0 * trained, group, near, inside, net / t, hop * messages)
        per_step = 2 * each
        if layout.zero_stage == 2:
            per_micro, per_step = each, each
    if replicas > 1:
        part = trained / max(1, group if layout.zero_stage else 1)
        volume = (w.gradient if layout.zero_stage == 0 else 2.0) * part
        across = max(1, near // min(group, near)) if layout.zero_stage else near
        sharing = min(group, near) if layout.zero_stage else 1
        per_step += 2 * collective_s(
            volume, replicas, across, inside, net / t / sharing, hop * messages / max(1, group)
        )
    busy = compute + launch + tensor
    exposed_micro = max(0.0, per_micro - c["overlap"] * busy) + c["not_hidden"] * per_micro
    backward_share = 0.6 * busy
    exposed_step = max(0.0, per_step - c["overlap"] * backward_share) + c["not_hidden"] * per_step
    if layout.zero_stage in (1,):
        exposed_step = max(exposed_step, 0.5 * per_step)  # the gather of new weights waits for the optimizer

    micro = busy + exposed_micro
    bubble = 0.0
    if layout.pp > 1:
        send = 2 * tokens * m.hidden * w.compute / t / (net / near)
        micro += send * layout.virtual_pp * 0.5
        bubble = (layout.pp - 1) / layout.virtual_pp * micro
    local = trained / (group if layout.zero_stage else 1)
    optimizer = local * 2 * (w.weight + w.gradient + w.moments + w.master) / (gpu.bandwidth_gb_s * 1e9 * 0.7)
    if "optimizer" in layout.offload or "params" in layout.offload:
        link = PCIE_GB_S.get(gpu.pcie_gen, 12.0) * 1e9
        optimizer = local * 16 / 20e9 + local * (w.gradient + w.weight) / link
        micro += (2 if "params" in layout.offload else 0) * rank_params * w.weight / (group or 1) / link
    if layout.offload.endswith("activations") or request.activation_offload:
        micro += max(0.0, 2 * tokens * layers * m.hidden * w.compute / (PCIE_GB_S.get(gpu.pcie_gen, 12.0) * 1e9) - busy)
    steps = layout.accumulation
    step = (steps * micro + bubble + exposed_step + optimizer) / c["other"]
    total_tokens = steps * layout.micro_batch * request.seq_len * layout.dp
    world = layout.world
    per_gpu = total_tokens / step / world
    peak = peak16
    if request.precision == "fp8-mixed" and gpu.fp8_tflops:
        peak = gpu.fp8_tflops * 1e12
    factor = c["range_factor"] * (1.0 if known(request) else 1.25)
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
        tokens_per_step=float(total_tokens),
        tokens_per_second_per_gpu=per_gpu,
        low=per_gpu / factor,
        high=per_gpu * factor,
        mfu=per_gpu * model_flops_per_token(m, request.seq_len) / peak,
    )


def known(request: Request) -> bool:
    """Return whether measurements of this kind of chip went into the constants."""
    return request.gpu.compute_capability in ("8.0", "9.0") and request.gpu.form.startswith("SXM")
