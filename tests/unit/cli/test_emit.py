"""From a choice of the planner and the flags to files."""

import argparse
import json
import os
from types import SimpleNamespace

import pytest

from outlive.cli import emit
from outlive.errors import UsageError
from outlive.launch.files import File


def choice(**fields):
    layout = {
        "strategy": "fsdp_full", "dp": 8, "tp": 2, "pp": 1, "cp": 1, "ep": 1, "zero_stage": 3, "shard_group": 8,
        "micro_batch": 2, "accumulation": 4, "recompute": "full", "offload": "none",
    }  # fmt: skip
    layout |= fields.pop("layout", {})
    plain = {
        "layout": SimpleNamespace(**layout), "model": SimpleNamespace(name="meta-llama/Llama-3-8B"), "nodes": 2,
        "gpus_per_node": 8, "precision": "bf16-mixed", "global_batch": 64,
    }  # fmt: skip
    return SimpleNamespace(**{**plain, **fields})


def args(*words, command=()):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    emit.add_arguments(parser)
    typed = parser.parse_args(words)
    typed.command = list(command)
    return typed


def test_a_choice_becomes_a_launch():
    launch = emit.launch_of(
        choice(),
        args("--hosts", "a,b", "--walltime", "2h", "--env", "A=b=c", "--mount", "/d:/data:ro", "--infiniband", "none",
             command=["python", "run.py", "--mb", "{micro_batch}"]),
    )  # fmt: skip
    assert (launch.name, launch.strategy, launch.precision) == ("llama-3-8b", "zero3", "bf16")
    assert (launch.data_parallel, launch.tensor_parallel, launch.whole_batch) == (8, 2, 64)
    assert launch.words() == ["run.py", "--mb", "2"] and launch.block_classes == ("LlamaDecoderLayer",)
    assert launch.walltime_s == 7200 and launch.env == (("A", "b=c"),) and launch.hosts == ("a", "b")
    assert launch.mounts[0].read_only and launch.fabric.infiniband == () and launch.fabric.interface is None


@pytest.mark.parametrize(
    ("layout", "nodes", "strategy"),
    [
        ({"strategy": "ddp", "zero_stage": 0}, 2, "ddp"),
        ({"strategy": "zero1", "zero_stage": 1}, 2, "zero1"),
        ({"strategy": "fsdp_grad_op", "zero_stage": 2}, 2, "zero2"),
        ({"strategy": "hsdp", "zero_stage": 3, "tp": 1, "dp": 16, "shard_group": 8}, 2, "hsdp"),
        ({"strategy": "hsdp", "zero_stage": 3, "tp": 1, "dp": 8, "shard_group": 8}, 1, "zero3"),
    ],
)
def test_strategies(layout, nodes, strategy):
    batch = 2 * 4 * layout.get("dp", 8)
    assert emit.launch_of(choice(layout=layout, nodes=nodes, global_batch=batch), args()).strategy == strategy


@pytest.mark.parametrize(
    ("words", "command", "said"),
    [
        (["--mount", "x"], [], "--mount"),
        (["--env", "x"], [], "--env"),
        (["--walltime", "soon"], [], "--walltime"),
        ([], ["torchrun", "x.py"], "the launcher `torchrun`"),
        (["--hosts", "a"], [], "1 hosts"),
    ],
)
def test_flags_that_cannot_be_meant(words, command, said):
    with pytest.raises(UsageError, match=said):
        emit.launch_of(choice(), args(*words, command=command))


def test_one_file_goes_to_stdout_and_the_others_are_named(capsys):
    assert emit.emit("deepspeed", choice(layout={"tp": 1, "dp": 16}, global_batch=128), args()) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["train_batch_size"] == 128
    assert "hostfile" in err and "--out DIR" in err


def test_json_holds_every_file(capsys):
    emit.emit("accelerate", choice(), args("--json"))
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "outlive/plan-emit/1" and data["kind"] == "accelerate"
    assert [file["name"] for file in data["files"]] == ["accelerate.yaml", "launch.sh"]
    assert data["written"] == [] and data["next"]


def test_files_are_written_with_a_readme_and_never_replaced_unasked(tmp_path, capsys):
    out = tmp_path / "new" / "dir"
    assert emit.emit("torchrun", choice(), args("--out", str(out))) == 0
    assert sorted(os.listdir(out)) == ["README.md", "launch.sh"]
    assert os.access(out / "launch.sh", os.X_OK)
    assert "launch.sh" in capsys.readouterr().out
    assert emit.emit("torchrun", choice(), args("--out", str(out))) == 0  # the same again is no change
    (out / "launch.sh").write_text("mine\n")
    with pytest.raises(UsageError, match="is there and differs") as caught:
        emit.emit("torchrun", choice(), args("--out", str(out)))
    assert "--replace" in caught.value.sentence()
    assert (out / "launch.sh").read_text() == "mine\n"
    assert emit.emit("torchrun", choice(), args("--out", str(out), "--replace")) == 0
    assert (out / "launch.sh").read_text() != "mine\n"
    assert sorted(os.listdir(out)) == ["README.md", "launch.sh"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        emit.write([File("a", "x\n", "")], tmp_path / "file")
