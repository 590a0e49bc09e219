"""`outlive plan` from the outside: YAML and flags, JSON and text, errors."""

import io
import json

import pytest

from outlive.cli.main import main

YAML = """version: 1
id: "d0001"
model:
  name: "Llama-3-8B"
  arch: "decoder"
  params: 8030261248
  layers: 32
  hidden: 4096
  heads: 32
  kv_heads: 8
  ffn: 14336
  mlp: "gated"
  vocab: 128256
  tied_embeddings: false
hardware:
  gpu: "a100-80gb-sxm"
  gpus_per_node: 8
  nodes: 1
training:
  method: "full"
  seq_len: 8192
  micro_batch: 1
  global_batch: 8
  precision: "bf16-mixed"
  optimizer: "adamw"
  activation_checkpointing: "selective"
parallelism:
  strategy: "fsdp_full"
  dp: 8
"""


def run(capsys, monkeypatch, *words, stdin=""):
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    code = main(["plan", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_yaml_on_standard_input_gives_the_object_of_the_format(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "--json", stdin=YAML)
    answer = json.loads(out)
    assert code == 0
    assert answer["schema"] == "outlive/plan/1" and answer["id"] == "d0001"
    assert answer["strategy"] == "fsdp_full" and answer["fits"] is True
    memory = answer["memory_gb_per_gpu"]
    parts = [memory[name] for name in ("weights", "gradients", "optimizer", "activations", "logits_loss", "overhead")]
    assert sum(parts) == pytest.approx(memory["total"], abs=0.01)
    rate = answer["tokens_per_second_per_gpu"]
    assert rate["low"] < rate["mid"] < rate["high"]
    assert answer["checkpoints"]["keep_latest"] >= 1


def test_flags_and_text(capsys, monkeypatch):
    words = ["--model", "Llama-3-8B", "--gpu", "H100:8", "--seq", "8192", "--global-batch", "64"]
    code, out, _ = run(capsys, monkeypatch, *words, "--tokens", "10B", "--price", "2.5", "--explain")
    assert code == 0
    assert "fits" in out and "USD" in out and "compared" in out and "checkpoints:" in out
    assert "arXiv" in out


def test_a_file_and_a_flag_over_it(capsys, monkeypatch, tmp_path):
    path = tmp_path / "request.yaml"
    path.write_text(YAML)
    code, out, _ = run(capsys, monkeypatch, str(path), "--seq-len", "4096", "--json")
    assert code == 0 and json.loads(out)["seq_len"] == 4096


def test_does_not_fit_is_an_answer(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "--model", "Llama-2-70B", "--gpu", "4090:1", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["fits"] is False and answer["changes"]


def test_the_page_is_complete_in_itself(capsys, monkeypatch, tmp_path):
    path = tmp_path / "plan.html"
    code, _, _ = run(capsys, monkeypatch, "--model", "gpt2", "--gpu", "a100:8", "--seq", "1024", "--html", str(path))
    text = path.read_text()
    assert code == 0
    assert text.count("<svg") >= 3 and "<script" not in text and "http" not in text.split("</style>")[1]


def test_any_gpu(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "--model", "gpt2", "--gpu", "any", "--tokens", "1B", "--json")
    answer = json.loads(out)
    assert code == 0 and len(answer["candidates"]) > 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "Llama-3-8B"], "no GPU"),
        (["--gpu", "H100:8"], "no model"),
        (["--model", "Llama-3-8B", "--gpu", "H101:8"], "no GPU is called"),
        (["--model", "Lama-3-8B", "--gpu", "H100:8"], "did you mean `Llama-3-8B`"),
        (["--model", "Llama-3-8B", "--gpu", "H100:0"], "whole number"),
        (["--model", "Llama-3-8B", "--gpu", "H100:8", "--tp", "3"], "tp 3 does not divide"),
        (["--params=-7B", "--gpu", "H100"], "not a number above 0"),
        (["--model", "gpt2", "--gpu", "H100", "--tokens", "1B", "--epochs", "2"], "twice"),
        (["--model", "gpt2", "--gpu", "H100", "--tokens", "1B", "--price", "cheap"], "per GPU and hour"),
        (["--model", "gpt2", "--gpu", "any", "--max-hours", "3"], "needs --tokens"),
        (["--model-config", "/nonexistent/config.json", "--gpu", "H100"], "cannot be read"),
        (
            ["--model", "gpt2", "--gpu", "H100", "--global-batch", "5", "--micro-batch", "2", "--strategy", "single"],
            "multiple",
        ),
    ],
)
def test_bad_input_is_exit_2_without_a_traceback(capsys, monkeypatch, words, said):
    code, out, err = run(capsys, monkeypatch, *words)
    assert code == 2 and out == ""
    assert said in err and "Traceback" not in err


def test_an_error_as_an_object(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "--json", stdin="model: [1]\n")
    assert code == 2 and json.loads(out)["exit_code"] == 2
