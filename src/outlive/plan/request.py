"""What is asked: a model, hardware, training settings and perhaps a layout. One path for YAML and flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from outlive.errors import UsageError, nearest
from outlive.plan import gpus
from outlive.plan.gpus import Gpu
from outlive.plan.layouts import STRATEGIES, ZERO_STAGE, Layout, faults
from outlive.plan.model import Model

CHOICES: dict[str, tuple[str, ...]] = {
    "method": ("full", "lora", "qlora"),
    "precision": ("fp32", "fp16-mixed", "bf16-mixed", "bf16-pure", "fp8-mixed"),
    "activation_checkpointing": ("none", "selective", "full"),
    "attention": ("flash", "sdpa", "eager"),
    "loss": ("standard", "chunked", "fused"),
    "offload": ("none", "params", "optimizer", "params+optimizer", "params+activations", "activations"),
    "base_quantization": ("nf4", "bnb.nf4", "bnb.nf4-dq", "gptq-int4", "int8"),
    "strategy": tuple(STRATEGIES),
}
USUAL_TOKENS = 8192
"""Tokens of one pass where nobody says: enough for large products."""
OPTIMIZERS: dict[str, tuple[float, float, bool]] = {
    # bytes of moments per parameter with fp32 states, with 16-bit states, and whether they live outside the device
    "adamw": (8, 4, False),
    "adam": (8, 4, False),
    "fused_adamw": (8, 4, False),
    "adamw8bit": (2.03, 2.03, False),
    "adamw4bit": (1.06, 1.06, False),
    "paged_adamw": (8, 4, True),
    "paged_adamw8bit": (2.03, 2.03, True),
    "lion": (4, 2, False),
    "lion8bit": (1.02, 1.02, False),
    "adafactor": (0.0, 0.0, False),
    "sgd": (0, 0, False),
    "sgd_momentum": (4, 2, False),
    "muon": (4, 2, False),
}


class Request(NamedTuple):
    """A checked request. ``layout`` is None where the planner chooses; ``micro_batch`` likewise."""

    model: Model
    gpu: Gpu
    gpus_per_node: int
    nodes: int
    usable_bytes: float
    method: str = "full"
    lora_rank: int = 8
    lora_targets: str = ""
    trainable_params: int | None = None
    base_quantization: str | None = None
    seq_len: int = 2048
    micro_batch: int | None = None
    global_batch: int | None = None
    packed: bool = True
    precision: str = "bf16-mixed"
    optimizer: str = "adamw"
    recompute: str | None = None
    attention: str = "flash"
    loss: str = "standard"
    compile: bool = False
    offload: str = "none"
    optimizer_in_backward: bool = False
    activation_offload: bool = False
    grad_dtype: str | None = None
    layout: Layout | None = None
    network_gb_s: float | None = None
    activation_scale: float = 1.0
    """Measured over predicted on this machine, where it was measured; likewise for speed."""
    speed_scale: float = 1.0
    id: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        """GPUs altogether."""
        return self.gpus_per_node * self.nodes


def from_mapping(data: Mapping[str, Any], *, strict: bool = False) -> Request:
    """Return the request in ``data``. Raises UsageError (exit 2) for what is unknown, missing or contradictory.

    A batch that does not come out even is an error with ``strict``, else a warning: published settings often do not.
    """
    for key in ("model", "hardware"):
        if not isinstance(data.get(key), Mapping):
            _fail(f"the request has no `{key}`", next_=[["outlive", "plan", "--help"]])
    hardware = _Part("hardware", data["hardware"])
    training = _Part("training", data.get("training") or {})
    warnings: list[str] = []
    model = read_model(data["model"], warnings)
    gpu = gpus.by_name(hardware.text("gpu"))
    per_node, nodes = hardware.whole("gpus_per_node", 1), hardware.whole("nodes", 1)
    usable = hardware.number("memory_usable_gib", gpu.usable_gib)
    method = training.choice("method", "full")
    adapter = _Part("training.lora", training.get("lora") or {})
    quantised = training.choice("base_quantization", None)
    if method == "full" and quantised:
        _fail(f"base_quantization {quantised} needs method qlora: quantised weights cannot be trained")
    if method == "qlora" and quantised is None:
        quantised = "nf4"
    precision = training.choice("precision", None) or default_precision(gpu)
    if precision in ("bf16-mixed", "bf16-pure") and not gpu.bf16:
        warnings.append(f"{gpu.name} has no bf16 tensor cores: use fp16-mixed with a loss scaler")
    if precision == "fp8-mixed" and gpu.fp8_tflops is None:
        _fail(f"{gpu.name} has no fp8 units", next_=[["outlive", "plan", "--precision", default_precision(gpu)]])
    attention = training.choice("attention", None) or ("flash" if gpu.flash_attention_2 else "sdpa")
    if attention == "flash" and not gpu.flash_attention_2:
        warnings.append(f"{gpu.name} cannot run FlashAttention-2: sdpa or an older flash kernel is what runs")
    optimizer = str(training.get("optimizer") or "adamw")
    if optimizer not in OPTIMIZERS:
        _unknown("optimizer", optimizer, OPTIMIZERS)
    seq_len = training.whole("seq_len", 2048)
    micro = training.whole("micro_batch", None)
    total = training.whole("global_batch", None)
    offload = training.choice("offload", "none") or "none"
    recompute = training.choice("activation_checkpointing", None)
    layout = read_layout(
        data.get("parallelism"),
        model,
        per_node,
        nodes,
        seq_len,
        micro,
        total,
        recompute,
        offload,
        attention,
        strict,
        warnings,
    )
    return Request(
        model=model,
        gpu=gpu,
        gpus_per_node=per_node,
        nodes=nodes,
        usable_bytes=usable * 2**30,
        method=method or "full",
        lora_rank=adapter.whole("rank", 8),
        lora_targets=str(adapter.get("targets") or ""),
        trainable_params=adapter.whole("trainable_params", None),
        base_quantization=quantised,
        seq_len=seq_len,
        micro_batch=micro,
        global_batch=total,
        packed=training.get("packed") is not False,
        precision=precision,
        optimizer=optimizer,
        recompute=recompute,
        attention=attention,
        loss=training.choice("loss", "standard") or "standard",
        compile=bool(training.get("compile")),
        offload=offload,
        optimizer_in_backward=bool(training.get("optimizer_in_backward")),
        activation_offload=bool(training.get("activation_offload")) or offload.endswith("activations"),
        grad_dtype=training.get("grad_accumulation_dtype"),
        layout=layout,
        network_gb_s=hardware.number("network_gb_s", None),
        id=str(data.get("id") or ""),
        warnings=tuple(warnings),
    )


def default_precision(gpu: Gpu) -> str:
    """Return bf16 where the hardware has it, else fp16 with a loss scaler."""
    return "bf16-mixed" if gpu.bf16 else "fp16-mixed"


def read_model(data: Mapping[str, Any], warnings: list[str]) -> Model:
    """Return the model of a request: dimensions, else ``config``, else the name, else parameters alone."""
    part = _Part("model", data)
    params = part.whole("params", None)
    if data.get("config"):
        from pathlib import Path

        from outlive.plan import hf_config

        model = hf_config.read(Path(str(data["config"])), params=params)
        return _checked(model, warnings)
    if data.get("layers") is None and data.get("hidden") is None:
        if data.get("name"):
            from outlive.plan import catalog

            try:
                found = catalog.by_name(str(data["name"]))
                return found._replace(params=params) if params else found
            except UsageError:
                if not params:
                    raise
        if not params:
            _fail("the model needs a name, a config.json, or a number of parameters")
        from outlive.plan import infer

        guessed = infer.from_params(float(params or 0), vocab=part.whole("vocab", 32000))
        warnings.append(f"dimensions were inferred from the parameters alone: {guessed.inferred[0]}")
        return guessed
    return _checked(_dimensions(part, params, warnings), warnings)


def _dimensions(part: _Part, params: int | None, warnings: list[str]) -> Model:
    from outlive.plan.model import attention_matrices

    hidden, layers, heads = part.whole("hidden"), part.whole("layers"), part.whole("heads")
    kv_heads = part.whole("kv_heads", heads)
    if heads % kv_heads:
        _fail(f"{kv_heads} key/value heads do not divide {heads} heads")
    head_dim = part.whole("head_dim", None)
    if head_dim is None:
        if hidden % heads:
            _fail(f"{heads} heads do not divide hidden size {hidden}; say head_dim")
        head_dim = hidden // heads
    mlp = str(part.get("mlp") or "gated")
    if mlp not in ("gated", "plain"):
        _unknown("mlp", mlp, ("gated", "plain"))
    arch = str(part.get("arch") or "decoder")
    ffn = part.whole("ffn", 4 * hidden)
    vocab, tied = part.whole("vocab", 32000), bool(part.get("tied_embeddings"))
    norm = str(part.get("norm") or ("rms" if mlp == "gated" else "layer"))
    experts = part.whole("experts", 0, least=0)
    per_token = part.whole("experts_per_token", 0, least=0)
    expert_ffn = part.whole("expert_ffn", 0, least=0)
    if experts and not (per_token and expert_ffn):
        missing = "experts_per_token" if not per_token else "expert_ffn"
        _fail(f"model.{missing} is missing: {experts} experts, but not {_MISSING[missing]}")
    sizes: dict[str, Any] = dict(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn, mlp=mlp, vocab=vocab
    )
    shared, dense = part.whole("shared_ffn", 0, least=0), part.whole("dense_layers", 0, least=0)
    moe: dict[str, Any] = dict(experts=experts, expert_ffn=expert_ffn, shared_ffn=shared, dense_layers=dense)
    name = str(part.get("name") or "model")
    model = Model(
        name=name,
        arch=arch,
        params=0,
        tied=tied,
        norm=norm,
        dropout=0.1 if arch == "encoder" else 0.0,
        experts_per_token=per_token,
        attention_params=attention_matrices(hidden, heads, kv_heads, head_dim),
        **sizes,
        **moe,
    )
    counted = model.implied_params()
    if params and not experts and params > 1.6 * counted:
        known = _known_experts(name)
        if known is not None:
            return known
        warnings.append(
            f"{params / 1e9:.3g}B parameters do not follow from the dimensions ({counted / 1e9:.3g}B): "
            "if it has experts, say experts, experts_per_token and expert_ffn"
        )
    return model._replace(params=params or counted)


_MISSING = {"experts_per_token": "how many a token uses", "expert_ffn": "the width of one"}


def _known_experts(name: str) -> Model | None:
    from outlive.plan import catalog

    try:
        found = catalog.by_name(name)
    except UsageError:
        return None
    return found if found.experts else None


def _checked(model: Model, warnings: list[str]) -> Model:
    tables = model.embedding_params + model.head_params
    if model.params < tables:
        _fail(f"{model.params} parameters are fewer than the tables of the model hold ({tables})")
    warnings.extend(f"not in the config, inferred: {text}" for text in model.inferred)
    return model


def read_layout(
    data: Any,
    model: Model,
    per_node: int,
    nodes: int,
    seq_len: int,
    micro: int | None,
    total: int | None,
    recompute: str | None,
    offload: str,
    attention: str,
    strict: bool,
    warnings: list[str],
) -> Layout | None:
    """Return the layout that was given, complete and checked; None where none was."""
    if not data:
        return None
    part = _Part("parallelism", data)
    strategy = part.choice("strategy", None)
    tp, pp, cp, ep = (part.whole(key, 1) for key in ("tp", "pp", "cp", "ep"))
    world = per_node * nodes
    if model.heads % tp:
        _fail(faults(Layout(tp=tp), model, tp, seq_len)[0])
    if tp * pp * cp > world or world % (tp * pp * cp):
        _fail(f"tp {tp} x pp {pp} x cp {cp} = {tp * pp * cp} does not divide {world} GPUs")
    dp = part.whole("dp", world // (tp * pp * cp))
    if strategy is None:
        strategy = (
            "3d" if pp > 1 else ("fsdp_tp" if dp > 1 else "tp") if tp > 1 else "fsdp_full" if world > 1 else "single"
        )
    if strategy == "single" and world > 1:
        _fail(
            f"strategy single uses one GPU, the hardware has {world}", next_=[["outlive", "plan", "--strategy", "ddp"]]
        )
    if strategy in ("ddp", "zero1", "zero2", "zero3", "fsdp_full", "fsdp_grad_op", "hsdp", "single") and tp * pp > 1:
        _fail(f"strategy {strategy} has no tensor or pipeline parallelism, but tp {tp}, pp {pp} were given")
    stage = part.whole("zero_stage", ZERO_STAGE.get(strategy, 1 if strategy == "3d" else 0), least=0)
    if stage > 3:
        _fail(f"zero_stage {stage}: there are 0, 1, 2 and 3")
    group = part.whole("optimizer_shard_group", None)
    if group is None:
        group = per_node if strategy == "hsdp" else dp * cp
    sp = part.get("sequence_parallel")
    size, steps = _batch(micro, total, dp, pp, stage, seq_len, strict, warnings)
    layout = Layout(
        strategy=strategy,
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        zero_stage=stage,
        shard_group=max(1, min(group, dp * cp)) if stage else 1,
        micro_batch=size,
        accumulation=steps,
        recompute=recompute or "none",
        offload=offload,
        virtual_pp=part.whole("virtual_pp", 1),
        sequence_parallel=bool(sp) if sp is not None else tp > 1 and attention != "eager",
    )
    wrong = faults(layout, model, world, seq_len)
    if wrong:
        _fail(wrong[0], why=wrong[1:])
    if tp > per_node:
        warnings.append(f"tp {tp} reaches over nodes of {per_node} GPUs: each layer waits for the network")
    return layout


def _batch(
    micro: int | None, total: int | None, dp: int, pp: int, stage: int, seq_len: int, strict: bool, warnings: list[str]
) -> tuple[int, int]:
    """Return micro-batch and micro-steps of a given layout.

    Without a micro-batch: up to 8192 tokens, in a pipeline one sequence; in a pipeline of fully sharded stages as many
    micro-batches as stages.
    """
    if total is None:
        return micro or 1, 4 * pp if pp > 1 else 1
    per_rank = max(1, total // dp)
    if micro is None:
        micro = max(1, per_rank // pp) if pp > 1 and stage == 3 else 1
        while pp == 1 and 2 * micro * seq_len <= USUAL_TOKENS and per_rank % (2 * micro) == 0:
            micro *= 2
    if total % dp or per_rank % micro:
        said = f"global batch {total} is not a multiple of micro-batch {micro} x {dp} data-parallel ranks"
        if strict:
            near = max(1, round(total / (micro * dp))) * micro * dp
            _fail(said, next_=[["outlive", "plan", "--global-batch", str(near)]])
        warnings.append(said + "; the micro-batch was taken")
    return micro, max(1, per_rank // micro)


class _Part:
    """One mapping of the request, read key by key with the key's name in every error."""

    def __init__(self, name: str, data: Any) -> None:
        if not isinstance(data, Mapping):
            _fail(f"`{name}` holds `{data}`, not keys with values")
        self.name, self.data = name, data

    def get(self, key: str) -> Any:
        return self.data.get(key)

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if not value:
            _fail(f"{self.name}.{key} is missing")
        return str(value)

    def whole(self, key: str, default: Any = ..., *, least: int = 1) -> Any:
        value = self.data.get(key)
        if value is None:
            if default is ...:
                _fail(f"{self.name}.{key} is missing")
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            _fail(f"{self.name}.{key}: `{value}` is not a whole number from {least}")
        return value

    def number(self, key: str, default: Any) -> Any:
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or value == float("inf"):
            _fail(f"{self.name}.{key}: `{value}` is not a number above 0")
        return float(value)

    def choice(self, key: str, default: str | None) -> str | None:
        value = self.data.get(key)
        if value is None or (value == "none" and "none" not in CHOICES[key]):
            return default
        if value not in CHOICES[key]:
            _unknown(f"{self.name}.{key}", str(value), CHOICES[key])
        return str(value)


def _unknown(what: str, value: str, known: Iterable[str]) -> NoReturn:
    near = nearest(value, known)
    hint = f"; did you mean `{near}`?" if near else ""
    _fail(f"{what}: `{value}` is not known{hint}", why=["known: " + ", ".join(known)])


def _fail(what: str, *, why: Iterable[str] = (), next_: Iterable[list[str]] = ()) -> NoReturn:
    raise UsageError(what, why=why, safe="Nothing was done.", next=next_)
