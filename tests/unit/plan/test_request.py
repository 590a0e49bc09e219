"""Bad input: each refused with exit 2, what is wrong named, nothing done."""

import pytest

from outlive.errors import UsageError


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"parallelism": {"strategy": "tp", "tp": 3}}, "tp 3 does not divide 32 attention heads"),
        ({"parallelism": {"strategy": "fsdp_tp", "tp": 16}}, "does not divide 8 GPUs"),
        ({"parallelism": {"strategy": "3d", "dp": 3, "tp": 2}}, "but there are 8 GPUs"),
        ({"parallelism": {"strategy": "ddp", "tp": 2}}, "ddp has no tensor"),
        ({"parallelism": {"strategy": "single"}}, "single uses one GPU"),
        ({"parallelism": {"strategy": "fsdp-full"}}, "did you mean `fsdp_full`"),
        ({"parallelism": {"strategy": "zero1", "zero_stage": 4}}, "zero_stage 4"),
        ({"parallelism": {"strategy": "fsdp_full", "cp": 8}, "training": {"seq_len": 1000}}, "multiple of 16 tokens"),
        ({"parallelism": {"strategy": "zero1", "ep": 2}}, "the model has no experts"),
        ({"hardware": {"gpu": "h101"}}, "no GPU is called `h101`"),
        ({"hardware": {"nodes": 0}}, "nodes: `0`"),
        ({"hardware": {"gpus_per_node": -8}}, "gpus_per_node: `-8`"),
        ({"hardware": {"memory_usable_gib": 0}}, "memory_usable_gib: `0`"),
        ({"training": {"seq_len": 0}}, "seq_len: `0`"),
        ({"training": {"micro_batch": 1.5}}, "micro_batch: `1.5`"),
        ({"training": {"precision": "bf16"}}, "precision: `bf16` is not known"),
        ({"training": {"precision": "fp8-mixed"}}, "has no fp8 units"),
        ({"training": {"optimizer": "adam-w"}}, "did you mean `adamw`"),
        ({"training": {"method": "full", "base_quantization": "nf4"}}, "quantised weights cannot be trained"),
        ({"training": {"global_batch": 12}, "parallelism": {"strategy": "ddp"}}, "not a multiple of"),
        ({"training": "fast"}, "`training` holds `fast`"),
        ({"model": {"kv_heads": 5}}, "5 key/value heads do not divide 32"),
        ({"model": {"layers": None, "hidden": 4096}}, "layers is missing"),
        ({"model": {"mlp": "gatted"}}, "did you mean `gated`"),
        ({"model": {"experts": 8}}, "experts_per_token is missing"),
        ({"model": {"experts": 8, "experts_per_token": 2}}, "expert_ffn is missing"),
        ({"model": {"params": 1000}}, "fewer than the tables"),
        ({"model": None}, "no `model`"),
        ({"hardware": None}, "no `hardware`"),
    ],
)
def test_it_is_refused(ask, parts, said):
    if parts.get("training") == "fast":
        from outlive.plan.request import from_mapping

        with pytest.raises(UsageError) as caught:
            from_mapping({"model": {"params": 7e9}, "hardware": {"gpu": "t4"}, "training": "fast"})
    else:
        with pytest.raises(UsageError) as caught:
            ask(**parts)
    assert said in caught.value.what
    assert caught.value.exit_code == 2


def test_published_batches_that_do_not_come_out_even_are_a_warning(ask):
    request = ask(strict=False, training={"global_batch": 12}, parallelism={"strategy": "ddp"})
    assert any("not a multiple" in text for text in request.warnings)


def test_bf16_where_there_is_none_is_said(ask):
    request = ask(hardware={"gpu": "v100-32gb"})
    assert any("no bf16" in text for text in request.warnings)


@pytest.mark.parametrize(
    ("gpu", "precision"), [("v100-32gb", "fp16-mixed"), ("t4", "fp16-mixed"), ("a100", "bf16-mixed")]
)
def test_precision_by_capability(ask, gpu, precision):
    assert ask(hardware={"gpu": gpu}, training={"precision": None}).precision == precision


def test_unknown_optional_keys_are_ignored(ask):
    assert ask(training={"new_key": 1}, hardware={"rack": "b"}).seq_len == 4096


def test_a_name_alone_is_enough():
    from outlive.plan.request import from_mapping

    request = from_mapping({"model": {"name": "Mistral-7B"}, "hardware": {"gpu": "h100"}})
    assert request.model.layers == 32 and request.layout is None
