"""Predicted against measured on this machine's CPU, and models read from live modules. Needs torch."""

import pytest

pytestmark = pytest.mark.torch

GPT = {"mlp": "plain", "ffn": 256, "kv_heads": 4, "norm": "layer"}
TINY = {"params": None, "layers": 4, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 192, "vocab": 500}


@pytest.mark.parametrize("shape", [{}, GPT, {"tied_embeddings": True}], ids=["gated", "plain", "tied"])
def test_states_are_exact_and_activations_close(ask, shape):
    from outlive.plan.measure import measure

    found = measure(ask(model={**TINY, **shape}), layers=3, seq_len=128)
    assert found.states_measured == pytest.approx(found.states_predicted, rel=1e-6)
    assert found.activation_scale == pytest.approx(1.0, abs=0.15)
    assert found.tokens_per_second > 0


def test_a_module_on_the_meta_device(ask):
    import torch
    from torch import nn

    from outlive.plan.measure import from_module

    with torch.device("meta"):
        net = nn.Module()
        net.table = nn.Embedding(1000, 256)
        net.blocks = nn.ModuleList(nn.TransformerEncoderLayer(256, 4, 1024) for _ in range(6))
    model = from_module(net)
    assert (model.layers, model.hidden, model.vocab) == (6, 256, 1000)
    assert model.params == sum(p.numel() for p in net.parameters())
    assert model.inferred


def test_a_module_with_a_config():
    from torch import nn

    from outlive.plan.measure import from_module

    class Config:
        def to_dict(self):
            return {
                "model_type": "llama",
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 128,
                "vocab_size": 100,
            }

    net = nn.Linear(64, 200)
    net.config = Config()
    model = from_module(net)
    assert (model.layers, model.hidden, model.params) == (2, 64, 64 * 200 + 200)


def test_mixtures_are_refused(ask):
    from outlive.errors import UsageError
    from outlive.plan.measure import measure

    with pytest.raises(UsageError):
        measure(ask(model={"experts": 4, "experts_per_token": 2, "expert_ffn": 64}))
