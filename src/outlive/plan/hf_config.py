"""From a ``config.json`` in the manner of Hugging Face to a Model. What is missing is an error, never a default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from outlive.errors import BadConfig, nearest
from outlive.plan.model import Model, attention_matrices, latent_attention

_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
}
_PLAIN_MLP = frozenset(
    "gpt2 gpt_neox gpt_neo gptj opt bloom falcon mpt phi bert roberta distilbert deberta deberta-v2 vit electra "
    "xlm-roberta codegen gpt_bigcode starcoder2 t5 nomic_bert".split()
)
_ENCODERS = frozenset("bert roberta distilbert deberta deberta-v2 vit electra xlm-roberta albert nomic_bert".split())
_TIED = frozenset("gpt2 opt bloom falcon gemma gemma2 gemma3 gemma3_text bert roberta t5 mpt gpt_bigcode".split())
_LAYER_NORM = _PLAIN_MLP - {"t5"}


def read(path: Path, *, params: int | None = None) -> Model:
    """Return the model described by the file. ``params`` wins over the count from the dimensions."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"cannot be read: {error}", file=str(path)) from error
    except json.JSONDecodeError as error:
        raise BadConfig(f"not valid JSON: {error.msg}", file=str(path), line=error.lineno) from error
    if not isinstance(data, dict):
        raise BadConfig("a model's config.json is one object", file=str(path))
    return from_config(data, file=str(path), params=params)


def from_config(config: dict[str, Any], *, file: str = "config.json", params: int | None = None) -> Model:
    """Return the model of a config. Raises BadConfig naming the key that is missing or impossible."""
    if isinstance(config.get("text_config"), dict):
        config = {**config, **config["text_config"]}
    kind = str(config.get("model_type", ""))
    get = _Keys(config, file)
    hidden, layers, heads = get.need("hidden"), get.need("layers"), get.need("heads")
    vocab = get.need("vocab") if kind != "vit" else 0
    kv_heads = get.maybe("num_key_value_heads", "num_kv_heads", "n_head_kv") or heads
    if config.get("multi_query") and kind in ("falcon", "gpt_bigcode") and not config.get("new_decoder_architecture"):
        kv_heads = 1
    head_dim = get.maybe("head_dim", "d_kv")
    if head_dim is None:
        if hidden % heads:
            get.fail("num_attention_heads", f"{heads} heads do not divide hidden size {hidden}")
        head_dim = hidden // heads
    if heads % kv_heads:
        get.fail("num_key_value_heads", f"{kv_heads} key/value heads do not divide {heads} heads")
    act = str(config.get("hidden_act") or config.get("activation_function") or config.get("feed_forward_proj") or "")
    gated = kind not in _PLAIN_MLP or "gated" in act
    inferred: list[str] = []
    ffn = get.maybe("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "hidden_dim")
    if ffn is None:
        if gated:
            get.fail("intermediate_size", "missing: the width of the MLP")
        ffn = 4 * hidden
        inferred.append("ffn = 4 x hidden")
    experts = get.maybe("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts") or 0
    per_token = expert_ffn = shared = dense = 0
    if experts:
        per_token = get.maybe("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk") or 0
        if not per_token:
            get.fail("num_experts_per_tok", f"missing: {experts} experts, but not how many a token uses")
        if per_token > experts:
            get.fail("num_experts_per_tok", f"a token cannot use {per_token} of {experts} experts")
        own = get.maybe("moe_intermediate_size", "expert_intermediate_size")
        if own is None and "num_local_experts" not in config:
            get.fail("moe_intermediate_size", "missing: the width of one expert")
        expert_ffn = own or ffn
        shared = get.maybe("shared_expert_intermediate_size") or (get.maybe("n_shared_experts") or 0) * expert_ffn
        dense = get.maybe("first_k_dense_replace") or 0
    mla = config.get("kv_lora_rank")
    if mla:
        nope, rope, value = get.whole("qk_nope_head_dim"), get.whole("qk_rope_head_dim"), get.whole("v_head_dim")
        attention = latent_attention(hidden, heads, get.maybe("q_lora_rank") or 0, int(mla), nope, rope, value)
        head_dim = nope + rope
    else:
        attention = attention_matrices(hidden, heads, kv_heads, head_dim)
    tied = bool(config.get("tie_word_embeddings", kind in _TIED))
    positions = get.maybe("max_position_embeddings", "n_positions") or 0
    positions = positions if kind in ("gpt2", "opt", *_ENCODERS) else 0
    norm = "layer" if kind in _LAYER_NORM else "rms"
    bias = "all" if kind in ("gpt2", "opt", "bloom", "gpt_neox", *_ENCODERS) else "qkv" if "qwen2" in kind else "none"
    model = Model(
        name=str(config.get("_name_or_path") or kind or "model"),
        arch="encoder" if kind in _ENCODERS else "decoder",
        params=0,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        mlp="gated" if gated else "plain",
        vocab=vocab,
        tied=tied,
        norm=norm,
        positions=positions,
        dropout=float(config.get("hidden_dropout_prob") or config.get("resid_pdrop") or 0.0),
        experts=experts,
        experts_per_token=per_token,
        expert_ffn=expert_ffn,
        shared_ffn=shared,
        dense_layers=dense,
        attention_params=attention,
        inferred=tuple(inferred),
    )
    return model._replace(params=params or model.implied_params(bias=bias))


class _Keys:
    def __init__(self, config: dict[str, Any], file: str) -> None:
        self.config, self.file = config, file

    def fail(self, key: str, what: str) -> NoReturn:
        raise BadConfig(what, file=self.file, key=key, safe="Nothing was done.")

    def need(self, what: str) -> int:
        found = self.maybe(*_NAMES[what])
        if found is None:
            near = nearest(_NAMES[what][0], self.config)
            raise BadConfig(
                f"missing; any of {', '.join(_NAMES[what])}",
                file=self.file,
                key=_NAMES[what][0],
                suggestion=near,
                safe="Nothing was done.",
            )
        return found

    def whole(self, key: str) -> int:
        found = self.maybe(key)
        if found is None:
            self.fail(key, "missing")
        return found

    def maybe(self, *names: str) -> int | None:
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
                value = max(value)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                self.fail(name, f"`{value}` is not a whole number from 0")
            if value == 0 and name in (*sum(_NAMES.values(), ()), "head_dim", "intermediate_size"):
                self.fail(name, "is 0")
            return int(value)
        return None
