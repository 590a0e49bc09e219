"""From a model's name to its dimensions: the table of common models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from outlive.errors import UnknownName
from outlive.plan.model import Model, attention_matrices, latent_attention

COMPILED = Path(__file__).with_name("compiled")


def table() -> dict[str, dict[str, Any]]:
    """Return the rows of the table by name."""
    found: dict[str, dict[str, Any]] = json.loads((COMPILED / "models.json").read_bytes())
    return found


def plain(name: str) -> str:
    """Return a name without owner, case and separators: ``meta-llama/Llama-2-7b-hf`` becomes ``llama27b``."""
    last = name.rsplit("/", 1)[-1].casefold()
    last = re.sub(r"^meta-", "", last)
    last = re.sub(r"[-_](hf|base|it|instruct|chat|uncased|cased|v0\.1|4k.*|128k.*|mini-4k)$", "", last)
    return re.sub(r"[^a-z0-9.]", "", last)


def by_name(name: str) -> Model:
    """Return the model called ``name``, also as its hub id. Raises UnknownName with the nearest one."""
    rows = table()
    wanted = plain(name)
    for known, row in rows.items():
        if plain(known) == wanted:
            return build(known, row)
    raise UnknownName.of("model", name, rows, next=[["outlive", "plan", "--params", "7e9", "--gpu", "H100:8"]])


def build(name: str, row: dict[str, Any]) -> Model:
    """Return the model of a row of the table."""
    layers, hidden, heads, kv_heads, ffn, vocab, millions = row["dims"]
    head_dim = row.get("head_dim") or hidden // heads
    experts = row.get("experts") or [0, 0, 0, 0, 0]
    mla = row.get("mla")
    attention = latent_attention(hidden, heads, *mla) if mla else attention_matrices(hidden, heads, kv_heads, head_dim)
    model = Model(
        name=name,
        arch="encoder" if row["arch"] == "encoder" else "decoder",
        params=0,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim if not mla else mla[2] + mla[3],
        ffn=ffn,
        mlp=row["mlp"],
        vocab=vocab,
        tied=row["tied"],
        norm=row["norm"],
        positions=row.get("positions", 0),
        dropout=row.get("dropout", 0.0),
        experts=experts[0],
        experts_per_token=experts[1],
        expert_ffn=experts[2],
        shared_ffn=experts[3],
        dense_layers=experts[4],
        attention_params=attention,
    )
    counted = model.implied_params(bias=row.get("bias", "none"), cross=row.get("cross", 0))
    return model._replace(params=counted if abs(counted / (millions * 1e6) - 1) < 0.03 else round(millions * 1e6))
