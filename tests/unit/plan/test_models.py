"""Models: the table against published counts, config.json in its dialects, inference from parameters alone."""

import json

import pytest

from outlive.errors import BadConfig, UnknownName
from outlive.plan import catalog, compile, gpus, hf_config, infer

ROWS = catalog.table()


def test_the_compiled_files_are_those_of_the_sources():
    for name, content in compile.render().items():
        assert (compile.HERE / "compiled" / name).read_bytes() == content, "python -m outlive.plan.compile"


@pytest.mark.parametrize("name", ROWS)
def test_counted_parameters_are_the_published_ones(name):
    model = catalog.build(name, ROWS[name])
    assert model.params == pytest.approx(ROWS[name]["dims"][6] * 1e6, rel=0.02)
    assert model.heads % model.kv_heads == 0
    assert model.block_params > 0


def test_the_table_is_large():
    assert len(ROWS) >= 60


@pytest.mark.parametrize(
    ("typed", "known"),
    [
        ("meta-llama/Llama-2-7b-hf", "Llama-2-7B"),
        ("gpt2-xl", "GPT-2-XL"),
        ("bert-large-uncased", "BERT-large"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("llama 3 8b", "Llama-3-8B"),
    ],
)
def test_names_as_people_write_them(typed, known):
    assert catalog.by_name(typed).name == known


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(UnknownName) as caught:
        catalog.by_name("Llama-3-9B")
    assert "Llama-3-8B" in caught.value.what


def test_active_parameters_of_a_mixture():
    model = catalog.by_name("Mixtral-8x7B")
    assert model.active_params == pytest.approx(12.9e9, rel=0.01)
    assert catalog.by_name("DeepSeek-V3").active_params == pytest.approx(37.5e9, rel=0.03)


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
GPT2 = {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "vocab_size": 50257, "n_positions": 1024}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 6144,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "intermediate_size": 24576,
    "vocab_size": 50432,
    "tie_word_embeddings": False,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "tie_word_embeddings": False,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "tie_word_embeddings": False,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.1,
}


@pytest.mark.parametrize(
    ("config", "billions"),
    [(LLAMA, 8.03), (GPT2, 1.558), (NEOX, 20.55), (MIXTRAL, 46.7), (QWEN_MOE, 30.5), (DEEPSEEK, 671.0), (BERT, 0.335)],
    ids=["llama", "gpt2", "neox", "mixtral", "qwen3-moe", "deepseek-v3", "bert"],
)
def test_config_json_in_its_dialects(tmp_path, config, billions):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert hf_config.read(path).params / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("config", "drop", "put", "key"),
    [
        (LLAMA, "hidden_size", {}, "hidden_size"),
        (LLAMA, "num_hidden_layers", {}, "num_hidden_layers"),
        (LLAMA, "intermediate_size", {}, "intermediate_size"),
        (LLAMA, "", {"hidden_size": 0}, "hidden_size"),
        (LLAMA, "", {"hidden_size": -1}, "hidden_size"),
        (LLAMA, "", {"hidden_size": "big"}, "hidden_size"),
        (LLAMA, "", {"num_attention_heads": 33}, "num_attention_heads"),
        (LLAMA, "", {"num_key_value_heads": 5}, "num_key_value_heads"),
        (MIXTRAL, "num_experts_per_tok", {}, "num_experts_per_tok"),
        (QWEN_MOE, "moe_intermediate_size", {}, "moe_intermediate_size"),
        (MIXTRAL, "", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        (DEEPSEEK, "v_head_dim", {}, "v_head_dim"),
    ],
)
def test_a_missing_or_impossible_key_is_named(config, drop, put, key):
    broken = {name: value for name, value in {**config, **put}.items() if name != drop}
    with pytest.raises(BadConfig) as caught:
        hf_config.from_config(broken)
    assert caught.value.key == key
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("params", [1e8, 1.3e9, 7e9, 3e10, 7e10, 4e11, 2e12])
def test_from_parameters_alone_the_dimensions_are_said(params):
    model = infer.from_params(params)
    assert model.params == params
    assert model.inferred and str(model.layers) in model.inferred[0]
    blocks = model.layers * (4 * model.hidden**2 + 3 * model.hidden * model.ffn)
    assert 0.5 * params < blocks + 2 * model.vocab * model.hidden < 2.1 * params


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("H100", "h100-80gb-sxm"),
        ("a100-40gb", "a100-40gb-sxm"),
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA L40S", "l40s"),
        ("4090", "rtx-4090"),
        ("h200", "h200-141gb"),
    ],
)
def test_gpus_as_people_type_them(typed, key):
    assert gpus.by_name(typed).key == key


def test_an_unknown_gpu_names_the_nearest():
    with pytest.raises(UnknownName) as caught:
        gpus.by_name("a100-80gb-sxn")
    assert "a100-80gb-sxm" in caught.value.what
