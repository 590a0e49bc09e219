"""The memory of a layout: terms, activations against hand counts, stages, intervals."""

import pytest

from outlive.plan.memory import TERMS, in_flight, memory

FSDP = {"parallelism": {"strategy": "fsdp_full"}}


def test_the_terms_sum_to_the_total(ask):
    request = ask(training={"micro_batch": 2}, **FSDP)
    held = memory(request, request.layout)
    assert sum(getattr(held, name) for name in TERMS) == pytest.approx(held.total, rel=1e-12)
    assert held.allocated < held.reserved < held.total
    assert held.low < held.total < held.high


def test_standard_gpt_block_in_sixteen_bits_is_34_sbh_without_scores(ask):
    gpt = {"mlp": "plain", "ffn": 16384, "kv_heads": 32, "params": 7_000_000_000, "vocab": 50257}
    request = ask(
        model=gpt,
        training={"precision": "fp16-mixed", "micro_batch": 1, "seq_len": 2048, "activation_checkpointing": "none"},
        parallelism={"strategy": "3d", "tp": 8, "dp": 1, "sequence_parallel": True},
    )
    held = memory(request, request.layout)
    per_layer = held.activations / 32 / 2048 / 4096 * 8
    # 34 of the paper, less two dropout masks, plus 4 a s b bytes of flash's row sums and the embedding's output
    assert per_layer == pytest.approx(32, abs=0.6)


def test_full_recompute_keeps_the_input_of_each_block(ask):
    request = ask(training={"micro_batch": 1, "activation_checkpointing": "full"}, **FSDP)
    held = memory(request, request.layout)
    assert held.activations == pytest.approx(4096 * 4096 * 2 * (32 + 1))


@pytest.mark.parametrize(("less", "more"), [("full", "selective"), ("selective", "none")])
def test_recompute_saves_memory(ask, less, more):
    def total(recompute):
        request = ask(training={"micro_batch": 2, "activation_checkpointing": recompute}, **FSDP)
        return memory(request, request.layout).total

    assert total(less) < total(more)


def test_eager_attention_grows_with_the_square_of_the_sequence(ask):
    def activations(attention, seq_len):
        request = ask(
            training={"attention": attention, "seq_len": seq_len, "micro_batch": 1, "activation_checkpointing": "none"},
            **FSDP,
        )
        return memory(request, request.layout).activations

    assert activations("flash", 8192) == pytest.approx(2 * activations("flash", 4096))
    assert activations("eager", 8192) > 3 * activations("eager", 4096)


def test_loss_standard_chunked_fused(ask):
    def loss(kind):
        request = ask(training={"loss": kind, "micro_batch": 1}, **FSDP)
        return memory(request, request.layout).logits_loss

    assert loss("standard") == 14 * 4096 * 128256
    assert loss("fused") < loss("chunked") < loss("standard")


def test_the_first_stage_of_a_pipeline_holds_a_micro_batch_per_stage(ask):
    request = ask(
        hardware={"nodes": 4},
        training={"micro_batch": 1, "global_batch": 64},
        parallelism={"strategy": "3d", "tp": 4, "pp": 4, "dp": 2},
    )
    layout = request.layout
    assert in_flight(layout, first=True) == 4
    assert in_flight(layout, first=False) == 1
    assert in_flight(layout._replace(virtual_pp=2), first=True) == pytest.approx(4 * (1 + 3 / 8))
    assert in_flight(layout._replace(accumulation=2), first=True) == 2


def test_fsdp_gathers_blocks_and_grad_op_all_weights(ask):
    def gathered(strategy):
        request = ask(training={"micro_batch": 1}, parallelism={"strategy": strategy})
        return memory(request, request.layout).gathered

    block = 2 * (8030261248 - 2 * 128256 * 4096) / 32
    assert gathered("fsdp_full") > 2 * block
    assert gathered("fsdp_grad_op") > 2 * 8030261248
    assert gathered("fsdp_full") < gathered("fsdp_grad_op")


def test_offload_takes_the_states_off_the_device(ask):
    request = ask(training={"micro_batch": 1, "offload": "params+optimizer"}, **FSDP)
    held = memory(request, request.layout)
    assert held.optimizer == 0 and held.weights == 0
    assert held.gathered > 0


def test_experts_are_spread_by_expert_parallelism(ask):
    moe = {"experts": 8, "experts_per_token": 2, "expert_ffn": 14336, "params": 46_702_792_704, "vocab": 32000}
    one = ask(model=moe, training={"micro_batch": 1}, parallelism={"strategy": "zero1", "ep": 1})
    eight = ask(model=moe, training={"micro_batch": 1}, parallelism={"strategy": "zero1", "ep": 8})
    assert memory(eight, eight.layout).weights < 0.3 * memory(one, one.layout).weights


def test_selective_recompute_takes_away_the_scores_and_no_more(ask):
    def activations(recompute, attention):
        request = ask(
            training={
                "attention": attention,
                "activation_checkpointing": recompute,
                "micro_batch": 1,
                "precision": "fp32",
            },
            parallelism={"strategy": "zero1_tp", "tp": 2, "zero_stage": 1},
        )
        return memory(request, request.layout).activations

    assert 0 < activations("selective", "eager") < activations("none", "eager") / 2
    assert activations("selective", "flash") == activations("none", "flash")
