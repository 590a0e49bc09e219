"""Two tiny training steps on this machine: what the planner predicts against what happens.

The one module of the planner that imports torch. A few blocks of the model, with its own widths, train on random
tokens. On a GPU the peak that the allocator counted is compared; on a CPU the bytes that autograd keeps for the
backward pass are counted one storage at a time. Model states are compared in both cases.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from outlive.plan import hf_config, infer
from outlive.plan.layouts import Layout
from outlive.plan.memory import memory
from outlive.plan.model import Model
from outlive.plan.request import Request
from outlive.plan.speed import speed


class Measured(NamedTuple):
    """Predicted and measured, in bytes and tokens per second; ``None`` where this machine cannot say."""

    device: str
    layers: int
    micro_batch: int
    seq_len: int
    states_predicted: float
    states_measured: float
    activations_predicted: float
    activations_measured: float
    peak_predicted: float | None
    peak_measured: float | None
    tokens_per_second_predicted: float | None
    tokens_per_second: float

    @property
    def activation_scale(self) -> float:
        """Measured over predicted activations: the correction for this machine's stack."""
        return self.activations_measured / self.activations_predicted

    @property
    def speed_scale(self) -> float | None:
        """Measured over predicted speed, where there is a prediction."""
        if not self.tokens_per_second_predicted:
            return None
        return self.tokens_per_second / self.tokens_per_second_predicted


class _Block(nn.Module):  # type: ignore[misc]
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        h, q, kv = model.hidden, model.q_width, model.kv_width
        norm = nn.RMSNorm if model.norm == "rms" else nn.LayerNorm
        self.norm1, self.norm2 = norm(h), norm(h)
        self.q, self.k, self.v = (nn.Linear(h, width, bias=False) for width in (q, kv, kv))
        self.o = nn.Linear(q, h, bias=False)
        self.up, self.down = nn.Linear(h, model.ffn, bias=False), nn.Linear(model.ffn, h, bias=False)
        self.gate = nn.Linear(h, model.ffn, bias=False) if model.mlp == "gated" else None

    def forward(self, x: Any) -> Any:
        batch, tokens, _ = x.shape
        m = self.model
        y = self.norm1(x)
        q = self.q(y).view(batch, tokens, m.heads, m.head_dim).transpose(1, 2)
        k, v = (p(y).view(batch, tokens, m.kv_heads, m.head_dim).transpose(1, 2) for p in (self.k, self.v))
        if m.kv_heads != m.heads:
            k, v = (t.repeat_interleave(m.heads // m.kv_heads, dim=1) for t in (k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=m.arch != "encoder")
        x = x + self.o(a.transpose(1, 2).reshape(batch, tokens, m.q_width))
        y = self.norm2(x)
        z = F.silu(self.gate(y)) * self.up(y) if self.gate is not None else F.gelu(self.up(y))
        return x + self.down(z)


class _Net(nn.Module):  # type: ignore[misc]
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.table = nn.Embedding(model.vocab, model.hidden)
        self.blocks = nn.ModuleList(_Block(model) for _ in range(model.layers))
        self.norm = (nn.RMSNorm if model.norm == "rms" else nn.LayerNorm)(model.hidden)
        self.head = nn.Linear(model.hidden, model.vocab, bias=False)
        if model.tied:
            self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def measure(request: Request, *, layers: int = 2, micro_batch: int = 1, seq_len: int = 256, steps: int = 2) -> Measured:
    """Train ``layers`` blocks for ``steps`` steps here and return what was predicted and what was measured.

    On a CPU everything is fp32; on a GPU the request's precision, pure 16 bit or autocast. Raises UsageError for
    mixtures of experts, which this small model does not have.
    """
    if request.model.experts:
        from outlive.errors import UsageError

        raise UsageError("--measure knows dense models only", safe="Nothing was done.")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    model = _cut(request.model, layers)
    precision = request.precision if cuda and request.precision in ("fp32", "bf16-mixed", "bf16-pure") else "fp32"
    asked = request._replace(
        model=model,
        precision=precision,
        seq_len=seq_len,
        micro_batch=micro_batch,
        global_batch=None,
        gpus_per_node=1,
        nodes=1,
        method="full",
        base_quantization=None,
        attention="sdpa",
        loss="standard",
        optimizer="adamw",
        compile=False,
        offload="none",
        layout=None,
    )
    layout = Layout(micro_batch=micro_batch)
    torch.manual_seed(0)
    net = _Net(model).to(device=device, dtype=torch.bfloat16 if precision == "bf16-pure" else torch.float32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    ids = torch.randint(0, model.vocab, (micro_batch, seq_len + 1), device=device)
    own = {p.untyped_storage().data_ptr() for p in net.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.numel() > 1:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def step(counting: bool) -> None:
        mixed = precision == "bf16-mixed"
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
            if counting:
                with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                    loss = _loss(net, ids)
            else:
                loss = _loss(net, ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step(counting=True)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    for _ in range(steps):
        step(counting=False)
    if cuda:
        torch.cuda.synchronize()
    wall_s = time.perf_counter() - started
    states = sum(p.numel() * p.element_size() * 2 for p in net.parameters())
    for state in optimizer.state.values():
        states += sum(t.numel() * t.element_size() for t in state.values() if torch.is_tensor(t) and t.numel() > 1)
    held, fast = memory(asked, layout), speed(asked, layout)
    return Measured(
        device=torch.cuda.get_device_name() if cuda else "cpu",
        layers=layers,
        micro_batch=micro_batch,
        seq_len=seq_len,
        states_predicted=held.weights + held.gradients + held.optimizer,
        states_measured=float(states),
        activations_predicted=held.activations + KEPT_OF_LOSS * micro_batch * seq_len * model.vocab,
        activations_measured=float(sum(kept.values())),
        peak_predicted=held.allocated if cuda else None,
        peak_measured=float(torch.cuda.max_memory_allocated()) if cuda else None,
        tokens_per_second_predicted=fast.tokens_per_second_per_gpu if cuda else None,
        tokens_per_second=steps * micro_batch * seq_len / wall_s,
    )


KEPT_OF_LOSS = 4
"""Of the loss only the log-softmax is kept for the backward pass; the rest of its peak is temporary."""


def from_module(module: Any, name: str = "") -> Model:
    """Return the model of a live torch module, also one on the meta device.

    A module with a Hugging Face ``config`` is read from that, with its parameters counted; any other by its parameters,
    its largest embedding and its longest list of blocks, and ``inferred`` says so.
    """
    params = sum(p.numel() for p in module.parameters())
    config = getattr(module, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        return hf_config.from_config(config.to_dict(), file=type(module).__name__, params=params)
    tables = [m for m in module.modules() if isinstance(m, nn.Embedding)]
    lists = [len(m) for m in module.modules() if isinstance(m, nn.ModuleList)]
    table = max(tables, key=lambda m: m.num_embeddings, default=None)
    guess = infer.from_params(float(params), vocab=table.num_embeddings if table is not None else 1)
    layers, hidden = max(lists, default=guess.layers), table.embedding_dim if table is not None else guess.hidden
    head_dim = 128 if hidden % 128 == 0 and hidden >= 2048 else 64 if hidden % 64 == 0 else hidden
    return guess._replace(
        name=name or type(module).__name__,
        layers=layers,
        hidden=hidden,
        heads=hidden // head_dim,
        kv_heads=hidden // head_dim,
        head_dim=head_dim,
        ffn=4 * hidden,
        mlp="plain",
        inferred=(
            f"a module without a config: layers {layers}, hidden {hidden}, heads of {head_dim}, MLP {4 * hidden}",
        ),
    )


def _cut(model: Model, layers: int) -> Model:
    from outlive.plan.model import attention_matrices

    per_norm = model.hidden * (2 if model.norm == "layer" else 1)
    block = attention_matrices(model.hidden, model.heads, model.kv_heads, model.head_dim)
    block += model.matrices * model.hidden * model.ffn + 2 * per_norm
    params = model.vocab * model.hidden * (1 if model.tied else 2) + layers * block + per_norm
    return model._replace(layers=layers, params=params, positions=0, dropout=0.0)


def _loss(net: nn.Module, ids: Any) -> Any:
    logits = net(ids[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
