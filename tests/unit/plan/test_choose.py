"""The rules of choice, the ladder when nothing fits, and what is said about it."""

import pytest

from outlive.plan.choose import plan


def model(name):
    from outlive.plan import catalog

    m = catalog.by_name(name)
    return {
        "name": name,
        "params": m.params,
        "layers": m.layers,
        "hidden": m.hidden,
        "heads": m.heads,
        "kv_heads": m.kv_heads,
        "head_dim": m.head_dim,
        "ffn": m.ffn,
        "mlp": m.mlp,
        "vocab": m.vocab,
        "tied_embeddings": m.tied,
    }


@pytest.mark.parametrize(
    ("name", "gpu", "per_node", "nodes", "expected"),
    [
        ("GPT-2", "a100-40gb", 8, 1, {"ddp"}),  # fits with its optimizer
        ("GPT-2-XL", "a100-40gb", 1, 1, {"single"}),
        ("Llama-3-8B", "a100-80gb-sxm", 8, 1, {"zero2", "zero1", "fsdp_grad_op", "fsdp_full"}),  # states do not fit
        ("Llama-2-13B", "a100-40gb", 8, 4, {"fsdp_full", "hsdp", "zero2", "fsdp_grad_op"}),
        ("Llama-2-70B", "a100-40gb", 8, 8, {"fsdp_full", "hsdp"}),  # weights do not fit
        ("Llama-3.1-405B", "h100", 8, 64, {"fsdp_tp", "3d", "zero1_tp"}),  # beyond 70 B
    ],
)
def test_the_rules(ask, name, gpu, per_node, nodes, expected):
    request = ask(
        model=model(name),
        hardware={"gpu": gpu, "gpus_per_node": per_node, "nodes": nodes},
        training={"seq_len": 1024 if "GPT" in name else 4096, "global_batch": per_node * nodes * 4},
    )
    found = plan(request)
    assert found.choice.fits and found.chosen
    assert found.choice.layout.strategy in expected
    assert found.choice.reasons
    assert found.choice.layout.global_batch == per_node * nodes * 4


def test_runners_up_say_why_they_lost(ask):
    found = plan(ask(training={"global_batch": 64}))
    assert len(found.runners_up) >= 3
    assert all(other.why for other in found.runners_up)
    assert any("does not fit" in other.why for other in found.runners_up)


def test_a_given_layout_is_costed_as_it_is(ask):
    request = ask(training={"micro_batch": 1}, parallelism={"strategy": "fsdp_full"})
    found = plan(request)
    assert not found.chosen and found.choice.layout == request.layout


def test_the_ladder_keeps_the_global_batch_and_its_order(ask):
    request = ask(
        hardware={"gpu": "rtx-4090", "gpus_per_node": 1},
        training={"micro_batch": 8, "global_batch": 8, "activation_checkpointing": "none"},
        parallelism={"strategy": "single"},
    )
    found = plan(request)
    assert not found.choice.fits
    words = [change.flags[0] for change in found.changes]
    order = ["--micro-batch", "--activation-checkpointing", "--strategy", "--offload", "--method"]
    assert [order.index(word) for word in words] == sorted(order.index(word) for word in words)
    assert found.changes[-1].fits
    assert "same global batch" in found.changes[0].what


def test_nothing_fits_is_an_answer(ask):
    found = plan(ask(model=model("Llama-3.1-405B"), hardware={"gpu": "t4", "gpus_per_node": 1}))
    assert not found.choice.fits
    assert found.changes


def test_tensor_parallelism_over_pcie_is_warned_with_its_cost(ask):
    request = ask(
        hardware={"gpu": "rtx-4090", "gpus_per_node": 2},
        training={"micro_batch": 1},
        parallelism={"strategy": "tp", "tp": 2},
    )
    assert any("PCIe" in text and "%" in text for text in plan(request).warnings)


def test_gpus_that_no_layout_can_use_stay_idle(ask):
    # one sequence per step cannot be spread over 7 GPUs with 32 heads
    found = plan(ask(model=model("TinyLlama-1.1B"), hardware={"gpus_per_node": 7}, training={"global_batch": 1}))
    assert found.choice.fits and found.choice.world == 1
    assert any("idle" in text for text in found.warnings)


def test_any_gpu_within_a_budget():
    from outlive.plan.anywhere import everywhere

    found = everywhere(
        {"model": {"name": "TinyLlama-1.1B"}, "hardware": {"gpu": "any"}, "training": {"seq_len": 2048}},
        tokens=1e9,
        prices={"h100-80gb-sxm": 2.5, "rtx-4090": 0.4, "t4": 0.2},
        currency="USD",
        max_hours=24.0,
        max_cost=None,
    )
    assert found
    costs = [goal.cost for _, goal, _ in found]
    assert costs == sorted(costs)
    assert {choice.gpu.key for choice, _, _ in found} <= {"h100-80gb-sxm", "rtx-4090", "t4"}
    assert all(goal.hours <= 24 for _, goal, _ in found)


def test_what_fits_only_with_its_states_on_the_host_is_named(ask):
    found = plan(ask(hardware={"gpu": "rtx-4090", "gpus_per_node": 1}, training={"global_batch": 8}))
    assert not found.choice.fits
    assert found.choice.layout.strategy == "single_offload"
    assert "host memory" in found.choice.reasons[1]
    assert any("--offload" in change.flags for change in found.changes)
