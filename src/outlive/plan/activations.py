"""Activations, logits and loss: bytes that the forward pass leaves for the backward pass, per device.

After Korthikanti et al. 2022 (arXiv 2205.05198, section 4), counted again tensor by tensor for what PyTorch keeps:
each function says which. ``c`` is the width computed in (2 or 4 bytes), h hidden, f MLP width, a heads, s tokens.
"""

from __future__ import annotations

from outlive.plan.layouts import Layout
from outlive.plan.model import Model
from outlive.plan.request import Request
from outlive.plan.states import Widths, target_parts


def fused_kernels(request: Request, layout: Layout) -> bool:
    """Return whether norms and activations run as one kernel each: a compiler, or Megatron-style stacks."""
    return request.compile or layout.strategy in ("3d", "zero1_tp")


def fused_norms(request: Request, layout: Layout) -> bool:
    """Return whether norms keep only input and output: as above, and where all is trained with flash."""
    return fused_kernels(request, layout) or (request.attention == "flash" and request.method == "full")


def norm_bytes(model: Model, w: Widths, fused: bool, trained: bool) -> float:
    """Return bytes per token of one norm: its input, and its output where the matrices behind it are trained.

    Fused: c h + c h. RMSNorm written out in fp32: the fp32 input 4 h, the normalised value and the output c h each.
    LayerNorm under autocast: fp32 input 4 h and output c h. Frozen: the input alone.
    """
    h, c = model.hidden, w.compute
    wide = not fused and c == 2 and (model.norm == "rms" or w.stack == "autocast")
    source = 4.0 * h if wide else float(c * h)
    if not trained:
        return source
    return source + c * h * (2 if wide and model.norm == "rms" else 1)


def attention_bytes(request: Request, layout: Layout, w: Widths, tokens_of_sequence: float) -> float:
    """Return bytes per token of one attention: q, k, v and output, c (2 a d + 2 k d); flash adds 4 a of row sums.

    sdpa and eager see keys and values repeated to the width of the queries; eager keeps the scores as well.
    """
    m, c = request.model, w.compute
    kv = m.q_width if request.attention != "flash" else m.kv_width
    return c * (2 * m.q_width + 2 * kv) + 4.0 * m.heads + score_bytes(request, layout, w, tokens_of_sequence)


def score_bytes(request: Request, layout: Layout, w: Widths, tokens_of_sequence: float) -> float:
    """Return bytes per token of attention scores that eager attention keeps; nothing for fused kernels.

    Softmax in fp32 and its cast, 4 a s + c a s (only 4 a s in fp32), and with dropout the mask and the dropped copy,
    (1 + c) a s. Megatron's own kernel: softmax 2, mask 1, dropped scores 2 (arXiv 2205.05198, equation 1).
    """
    m, c = request.model, w.compute
    if request.attention != "eager":
        return 0.0
    each = 5 if layout.strategy == "3d" else 4 + (c if c == 2 else 0) + ((1 + c) if m.dropout else 0)
    return float(each * m.heads) * tokens_of_sequence


def mlp_bytes(request: Request, w: Widths, fused: bool) -> float:
    """Return bytes per token of one MLP: gated keeps gate, up, activated gate and product (4 c f; fused 3), plain the
    input and output of its activation (2 c f). A frozen down projection does not keep its input, one c f less. Experts
    add the permuted inputs of each token's experts."""
    m, c = request.model, w.compute
    kept = (3 if fused else 4) if m.mlp == "gated" else 2
    if request.method != "full":
        kept = min(kept, 4) - 1
    total = c * m.mlp_width * kept
    if m.experts:
        total += 2.0 * c * m.experts_per_token * m.hidden
    return total


def adapter_bytes(request: Request, w: Widths, copies: float) -> float:
    """Return bytes per token and layer that adapters add: each adapted matrix keeps its dropped-out input and the mask,
    (c + 1) x inputs (PEFT drops out per matrix). ``copies`` of c (a d + 2 k d) stand for what stacks with one fused
    projection keep beside that (fitted)."""
    if request.method == "full":
        return 0.0
    m, parts = request.model, target_parts(request.lora_targets)
    inputs = m.hidden * len(parts & {"q", "k", "v"}) + (m.q_width if "o" in parts else 0)
    if "mlp" in parts:
        inputs += (m.matrices - 1) * m.hidden + m.ffn
    return (w.compute + 1.0) * inputs + copies * w.compute * (m.q_width + 2 * m.kv_width)


def block_bytes(request: Request, layout: Layout, w: Widths, constants: dict[str, float]) -> tuple[float, float]:
    """Return bytes per token of one block without recompute: what tensor parallelism splits, and what it does not.

    A quantised matrix multiplies through its own autograd function, which keeps its input even where it is frozen
    (bitsandbytes), c (2 h + f) that would not be kept otherwise. The inputs of the two column-split matrices are kept
    gathered, c h each (Megatron's own kernels gather them again instead). Without sequence parallelism norms (and
    dropout masks, 1 byte each, two per block) are whole on every rank.
    """
    m = request.model
    fused = fused_kernels(request, layout)
    split = attention_bytes(request, layout, w, request.seq_len / layout.cp) + mlp_bytes(request, w, fused)
    split += adapter_bytes(request, w, constants["adapter_copies"])
    whole = 2 * norm_bytes(m, w, fused_norms(request, layout), request.method == "full") + (
        2.0 * m.hidden if m.dropout else 0.0
    )
    if layout.tp > 1 and layout.strategy != "3d":
        whole += (
            2.0
            * w.compute
            * m.hidden
            * (layout.tp - 1)
            / layout.tp
            * (1 if not layout.sequence_parallel else layout.tp)
        )
    if request.base_quantization:
        split += constants["quantised_kept"] * w.compute * (2.0 * m.hidden + m.mlp_width)
    return split, whole


def kept_bytes(
    request: Request, layout: Layout, w: Widths, split: float, whole: float, constants: dict[str, float]
) -> float:
    """Return bytes per token of one block that stay until its backward pass, for this recompute setting.

    none: all. full: the block's input, c h. selective: on Megatron-style stacks the scores of attention go (flash has
    none anyway); elsewhere some of the matrix products and the attention output stay, c (h + a d + a fitted share of
    all outputs).
    """
    m, c, t = request.model, w.compute, layout.tp
    even = t if layout.sequence_parallel else 1
    if layout.recompute == "none":
        return split / t + whole / even
    if request.activation_offload:
        return 0.0
    if layout.recompute == "full":
        return c * m.hidden / even
    if layout.strategy in ("3d", "zero1_tp"):
        split -= score_bytes(request, layout, w, request.seq_len / layout.cp) * request.activation_scale
        return split / t + whole / even
    products = m.q_width + 2 * m.kv_width + 2 * m.hidden + (m.matrices - 1) * m.mlp_width
    return c * ((m.q_width + products * constants["selective_kept"]) / t + m.hidden / even)


def logits_bytes(request: Request, layout: Layout, w: Widths, tokens: float, constants: dict[str, float]) -> float:
    """Return bytes of logits and loss at their peak: tokens x vocabulary x bytes, split over tensor ranks.

    standard: 16-bit logits 2, fp32 copy 4, log-softmax 4, gradient 4 (fp32: 12). chunked: 16-bit logits 2, the log-
    softmax of each chunk 4, gradient 2; the fp32 copy one chunk at a time. fused: a slice of the tokens at a time, the
    gradient of the input stays.
    """
    m = request.model
    if m.arch == "encoder" and m.vocab <= 2000:
        return 4.0 * tokens * m.hidden
    cells = tokens * m.vocab / layout.tp
    if request.loss == "fused":
        return 12.0 * cells / max(8.0, m.vocab / m.hidden) / 4 + w.compute * tokens * m.hidden
    if request.loss == "chunked":
        return constants["logits_chunked_bytes"] * (w.compute / 2) * cells
    return (constants["logits_standard_bytes"] if w.compute == 2 else 12.0) * cells
