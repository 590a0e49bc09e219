"""Speed: laws rather than figures, and FLOPs against the closed form."""

import pytest

from outlive.plan.flops import model_flops_per_token
from outlive.plan.speed import speed

FSDP = {"parallelism": {"strategy": "fsdp_full"}}


def test_flops_of_a_gpt_are_the_closed_form(ask):
    gpt = {"mlp": "plain", "ffn": 4 * 4096, "kv_heads": 32, "params": 32 * 12 * 4096**2 + 50257 * 4096}
    request = ask(model={**gpt, "vocab": 50257, "tied_embeddings": True})
    layers, h, s, vocab = 32, 4096, 2048, 50257
    # 72 B s L h^2 (1 + s/(6h) + V/(12 L h)) counts attention without its causal half
    closed = 72 * layers * h * h * (1 + s / (12 * h) + vocab / (12 * layers * h))
    assert model_flops_per_token(request.model, s) == pytest.approx(closed, rel=1e-3)


def test_parts_are_below_the_step_and_the_range_holds_the_middle(ask):
    request = ask(training={"micro_batch": 2}, **FSDP)
    found = speed(request, request.layout)
    parts = found.matrices_s + found.attention_s + found.elementwise_s + found.sharding_s + found.optimizer_s
    assert 0 < parts < found.step_s
    assert found.low < found.tokens_per_second_per_gpu < found.high
    assert 0.1 < found.mfu < 0.8


def test_full_recompute_costs_about_a_third(ask):
    request = ask(training={"micro_batch": 4}, **FSDP)
    none, full = (speed(request, request.layout._replace(recompute=kind)) for kind in ("none", "full"))
    assert 1.2 < full.step_s / none.step_s < 1.4


def test_the_bubble_shrinks_with_micro_batches_and_chunks(ask):
    parts = {"hardware": {"nodes": 4}, "parallelism": {"strategy": "3d", "tp": 4, "pp": 4, "dp": 2}}
    few, many = (ask(training={"micro_batch": 1, "global_batch": n}, **parts) for n in (8, 128))
    share = [speed(r, r.layout).bubble_s / speed(r, r.layout).step_s for r in (few, many)]
    assert share[0] > 4 * share[1]
    chunked = few.layout._replace(virtual_pp=2)
    assert speed(few, chunked).bubble_s < speed(few, few.layout).bubble_s


def test_pcie_makes_sharding_and_tensor_parallelism_slower(ask):
    def exposed(gpu, strategy, **degrees):
        request = ask(
            hardware={"gpu": gpu},
            training={"micro_batch": 1, "seq_len": 2048},
            parallelism={"strategy": strategy, **degrees},
        )
        found = speed(request, request.layout)
        return (found.tensor_s + found.sharding_s) / found.step_s

    assert exposed("rtx-4090", "fsdp_full") > exposed("h100", "fsdp_full")
    assert exposed("rtx-4090", "fsdp_tp", tp=2) > exposed("h100", "fsdp_tp", tp=2)


def test_adapters_are_faster_than_full_training(ask):
    one = {"hardware": {"gpus_per_node": 1}, "parallelism": {"strategy": "single"}}
    full = ask(training={"micro_batch": 1}, **one)
    lora = ask(training={"micro_batch": 1, "method": "lora"}, **one)
    assert speed(lora, lora.layout).step_s < 0.85 * speed(full, full.layout).step_s
