"""Model states against the published tables: exact arithmetic, nothing fitted."""

import pytest

from outlive.plan.memory import memory

GPT = {
    "name": "GPT-7.5B",
    "params": 7_500_000_000,
    "layers": 36,
    "hidden": 4096,
    "heads": 32,
    "ffn": 16384,
    "mlp": "plain",
    "vocab": 50257,
    "tied_embeddings": True,
}


@pytest.mark.parametrize(
    ("strategy", "ranks", "gb"),
    [
        ("single", 1, 120.0),
        ("zero1", 4, 52.5),
        ("zero2", 4, 41.25),
        ("zero3", 4, 30.0),
        ("zero1", 64, 31.4),
        ("zero2", 64, 16.64),
        ("zero3", 64, 1.875),
    ],
)
def test_the_worked_table_of_the_zero_paper(ask, strategy, ranks, gb):
    request = ask(
        model={**GPT, "kv_heads": 32},
        hardware={"gpu": "v100-32gb", "gpus_per_node": min(16, ranks), "nodes": max(1, ranks // 16)},
        training={"precision": "fp16-mixed", "seq_len": 1024, "attention": "eager", "micro_batch": 1},
        parallelism={"strategy": strategy},
    )
    held = memory(request, request.layout)
    assert (held.weights + held.gradients + held.optimizer) / 1e9 == pytest.approx(gb, rel=2e-3)


@pytest.mark.parametrize(
    ("precision", "optimizer", "strategy", "bytes_per_parameter"),
    [
        ("fp32", "adamw", "single", 16),
        ("bf16-mixed", "adamw", "single", 16),
        ("bf16-pure", "adamw", "single", 8),
        ("bf16-pure", "adamw8bit", "single", 6.03),
        ("fp32", "sgd_momentum", "single", 12),
        ("fp32", "adafactor", "single", 8),
        ("bf16-pure", "paged_adamw8bit", "single", 4),
    ],
)
def test_bytes_per_parameter_by_precision_and_optimizer(ask, precision, optimizer, strategy, bytes_per_parameter):
    request = ask(
        hardware={"gpus_per_node": 1},
        training={"precision": precision, "optimizer": optimizer, "micro_batch": 1},
        parallelism={"strategy": strategy},
    )
    held = memory(request, request.layout)
    states = held.weights + held.gradients + held.optimizer
    assert states / request.model.params == pytest.approx(bytes_per_parameter, rel=1e-6)


def test_adapters_leave_the_frozen_weights_alone(ask):
    request = ask(
        hardware={"gpus_per_node": 1},
        training={"method": "lora", "precision": "bf16-pure", "micro_batch": 1, "lora": {"rank": 8, "targets": "q,v"}},
        parallelism={"strategy": "single"},
    )
    held = memory(request, request.layout)
    # q: 8 x (4096 + 4096), v: 8 x (4096 + 1024), 32 layers
    trained = 8 * (8192 + 5120) * 32
    assert held.gradients == 2 * trained
    assert held.optimizer == 4 * trained
    assert held.weights == pytest.approx(2 * request.model.params + 2 * trained)


def test_four_bit_weights_leave_tables_in_sixteen(ask):
    def weights(quantised):
        request = ask(
            hardware={"gpus_per_node": 1},
            training={"method": "qlora", "precision": "bf16-pure", "base_quantization": quantised, "micro_batch": 1},
            parallelism={"strategy": "single"},
        )
        return memory(request, request.layout).weights

    tables = 2 * 2 * 128256 * 4096
    assert weights("nf4") > tables + 0.5 * (8030261248 - tables / 2)
    assert weights("bnb.nf4-dq") < weights("nf4") < weights("int8")


def test_the_optimizer_inside_the_backward_pass_keeps_one_gradient(ask):
    training = {"precision": "bf16-pure", "optimizer": "paged_adamw8bit", "micro_batch": 1}
    one = {"hardware": {"gpus_per_node": 1}, "parallelism": {"strategy": "single"}}
    after = ask(training={**training, "optimizer_in_backward": True}, **one)
    assert memory(after, after.layout).gradients == 2 * 128256 * 4096


def test_spread_experts_are_sharded_over_fewer_ranks(ask):
    moe = {"experts": 8, "experts_per_token": 2, "expert_ffn": 14336, "params": 46_702_792_704, "vocab": 32000}

    def optimizer(ep):
        request = ask(model=moe, training={"micro_batch": 1}, parallelism={"strategy": "zero1", "ep": ep})
        return memory(request, request.layout).optimizer

    # every expert's states lie once among the eight GPUs, however the experts are spread
    assert optimizer(8) == pytest.approx(optimizer(1))
    assert optimizer(1) == pytest.approx(12 * 46_702_792_704 / 8)
