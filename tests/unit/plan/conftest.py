"""Requests that the planner's tests build on."""

import copy

import pytest

from outlive.plan.request import Request, from_mapping

LLAMA = {
    "name": "Llama-3-8B",
    "params": 8030261248,
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "mlp": "gated",
    "vocab": 128256,
    "tied_embeddings": False,
}
BASE = {
    "model": LLAMA,
    "hardware": {"gpu": "a100-80gb-sxm", "gpus_per_node": 8, "nodes": 1},
    "training": {"seq_len": 4096, "precision": "bf16-mixed"},
}


def ask(strict: bool = True, **parts: dict) -> Request:
    """Return the base request with parts changed; a part that is None is left out."""
    data = copy.deepcopy(BASE)
    for name, part in parts.items():
        if part is None:
            data.pop(name, None)
        else:
            data[name] = {**data.get(name, {}), **part}
    return from_mapping(data, strict=strict)


@pytest.fixture(name="ask")
def ask_fixture():
    return ask
