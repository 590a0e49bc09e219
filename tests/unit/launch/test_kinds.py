"""What each rendering promises beyond being accepted by the real tool (tests/servers/test_launch_*.py)."""

import ast
import json

import pytest

from outlive.errors import UnknownName, UsageError
from outlive.launch import fill as fill_module
from outlive.launch.blocks import TABLE, block_class
from outlive.launch.description import Fabric, Launch, Mount
from outlive.launch.fill import TEMPLATES
from outlive.launch.kinds import KINDS, render
from outlive.launch.network import network


def launch(**fields):
    plain = {
        "gpus_per_node": 8,
        "strategy": "zero3",
        "block_classes": ("LlamaDecoderLayer",),
        "checkpoint_dir": "/ckpt",
    }
    return Launch(**{**plain, **fields})


SHAPES = [
    launch(),
    launch(strategy="ddp", checkpoint_dir="ckpt"),
    launch(strategy="zero1", precision="fp16", offload="optimizer"),
    launch(strategy="zero2"),
    launch(offload="all", precision="fp32"),
    launch(nodes=2, strategy="hsdp", hosts=("a", "b"), kueue_queue="q"),
    launch(nodes=2, tensor_parallel=4, fabric=Fabric(interface="eth0", infiniband=("mlx5_0:1",))),
    launch(nodes=3, min_nodes=1, device="cpu", mounts=(Mount(source="data", target="/data", read_only=True),)),
]


def renderings():
    for kind in KINDS:
        for shape in SHAPES:
            try:
                yield kind, shape, render(shape, kind)
            except UsageError as error:
                assert error.safe == "Nothing was written."


def test_every_kind_is_rendered_and_every_template_is_used(monkeypatch):
    used = set()
    real = fill_module.template
    monkeypatch.setattr(fill_module, "template", lambda name: used.add(name) or real(name))
    kinds = {kind for kind, _, _ in renderings()}
    assert kinds == set(KINDS)
    assert used == {path.name for path in TEMPLATES.iterdir()}


def test_renderings_are_deterministic_and_say_their_layout():
    for kind, shape, rendering in renderings():
        assert rendering == render(shape, kind)
        assert rendering.next and rendering.main is rendering.files[0]
        said = [line for file in rendering.files for line in file.text.splitlines() if line.startswith("# layout: ")]
        assert said and all(json.loads(line.removeprefix("# layout: ")) == shape.layout() for line in said)
        readme = rendering.readme().text
        assert all(f"`{file.name}`: {file.about}" in readme for file in rendering.files)
        for file in rendering.files:
            assert file.text.endswith("\n") and "@{" not in file.text
            if file.name.endswith(".py"):
                ast.parse(file.text)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean `slurm`") as caught:
        render(launch(), "slrum")
    assert set(caught.value.candidates) == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("ddp", {}, "this plan shards"),
        ("ddp", {"strategy": "ddp", "tensor_parallel": 2}, "tensor parallelism"),
        ("fsdp2", {"strategy": "ddp"}, "keeps everything on every GPU"),
        ("fsdp2", {"strategy": "zero1"}, "cannot shard the optimizer alone"),
        ("fsdp2", {"block_classes": ()}, "class that is one block"),
        ("fsdp2", {"pipeline_parallel": 2}, "pipeline parallel"),
        ("fsdp2", {"context_parallel": 2}, "context parallel"),
        ("fsdp2", {"expert_parallel": 2}, "expert parallel"),
        ("fsdp1", {"tensor_parallel": 2}, "tensor parallel"),
        ("deepspeed", {"strategy": "hsdp", "nodes": 2}, "no DeepSpeed stage"),
        ("deepspeed", {"tensor_parallel": 2}, "also splits the model"),
        ("deepspeed", {"strategy": "zero2", "offload": "all"}, "only moved to the host at stage 3"),
        ("deepspeed", {"strategy": "ddp", "offload": "optimizer"}, "from stage 1 on"),
        ("accelerate", {"strategy": "zero1"}, "only through DeepSpeed"),
        ("accelerate", {"pipeline_parallel": 2}, "no pipeline parallelism"),
        ("torchrun", {"nodes": 2, "min_nodes": 1}, "needs all 2 nodes"),
        ("slurm", {"nodes": 2, "min_nodes": 1}, "all of its nodes or none"),
        ("slurm", {"walltime_s": 100, "grace_s": 60}, "more than half"),
        ("docker", {"nodes": 2}, "is for one node"),
        ("docker-nodes", {}, "is for several nodes"),
        ("docker-nodes", {"nodes": 2, "checkpoint_dir": "out"}, "several nodes need one"),
        ("kubernetes", {"nodes": 2}, "is one pod"),
        ("kubernetes", {"checkpoint_dir": "out"}, "goes with it"),
        ("kubernetes", {"mounts": (Mount(source="/a", target="/b"),)}, "name of a volume claim"),
    ],
)
def test_what_a_kind_cannot_express_is_refused(kind, fields, said):
    with pytest.raises(UsageError) as caught:
        render(launch(**fields), kind)
    assert said in caught.value.what


def test_what_starts_again_by_itself_does_not_share_a_store_with_the_last_start():
    for kind, _, rendering in renderings():
        text = "\n".join(file.text for file in rendering.files)
        again = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in text
        assert again == (kind in {"torchrun-elastic", "slurm", "docker", "kubernetes", "kubernetes-indexed", "jobset",
                                  "pytorchjob"}), kind  # fmt: skip
        if "--node-rank" in text:
            assert "--max-restarts=0" in text


def test_deepspeed_stage_2_to_the_letter():
    shape = launch(strategy="zero2", micro_batch=4, accumulation=2, offload="optimizer")
    assert json.loads(render(shape, "deepspeed").main.text) == {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "wall_clock_breakdown": False,
        "steps_per_print": 100,
        "zero_optimization": {
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "stage": 2,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_scatter": True,
            "reduce_bucket_size": 200000000,
            "allgather_partitions": True,
            "allgather_bucket_size": 200000000,
        },
    }


def test_fp16_begins_with_a_scale_of_2_to_the_16():
    fp16 = json.loads(render(launch(precision="fp16"), "deepspeed").main.text)["fp16"]
    assert fp16["enabled"] is True and fp16["initial_scale_power"] == 16
    assert "init_scale=2.0**16" in render(launch(precision="fp16"), "fsdp2").main.text


def test_network_variables_follow_from_readings_only():
    def names(fabric, device="cuda"):
        return dict(network(launch(fabric=fabric, device=device)))

    nothing = names(Fabric())
    assert not {"NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_P2P_DISABLE"} & set(nothing)
    assert names(Fabric(infiniband=()))["NCCL_IB_DISABLE"] == "1"
    with_ib = names(Fabric(interface="eth0", infiniband=("mlx5_0:1", "mlx5_1:1"), peer_to_peer=False))
    assert with_ib["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1" and "NCCL_IB_DISABLE" not in with_ib
    assert with_ib["NCCL_SOCKET_IFNAME"] == "=eth0" and with_ib["GLOO_SOCKET_IFNAME"] == "eth0"
    assert with_ib["NCCL_P2P_DISABLE"] == "1"
    assert names(Fabric(interface="eth0"), "cpu") == {"GLOO_SOCKET_IFNAME": "eth0"}
    assert "NCCL_TIMEOUT" not in with_ib  # NCCL has no such variable; the limit is given where the processes meet


def test_the_users_own_variable_wins():
    text = render(launch(env=(("OMP_NUM_THREADS", "8"), ("MINE", "x"))), "torchrun").main.text
    assert (
        "export OMP_NUM_THREADS=8\n" in text and "export OMP_NUM_THREADS=1\n" not in text and "export MINE=x\n" in text
    )


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(60, "00:01:00"), (59, "00:01:00"), (3600, "01:00:00"), (86399, "23:59:00"), (3 * 86400 + 60, "3-00:01:00")],
)
def test_slurm_limits(seconds, written):
    from outlive.launch.slurm import limit

    assert limit(seconds) == written


@pytest.mark.parametrize(
    ("model", "block"),
    [
        ("meta-llama/Llama-3-8B", "LlamaDecoderLayer"),
        ("Qwen2.5-7B", "Qwen2DecoderLayer"),
        ("Mixtral-8x7B", "MixtralDecoderLayer"),
        ("DeepSeek-V3", "DeepseekV3DecoderLayer"),
        ("DeepSeek-R1-Distill-Llama-8B", "LlamaDecoderLayer"),
        ("gemma-2-9b", "Gemma2DecoderLayer"),
        ("something-new", ""),
    ],
)
def test_block_classes_by_name(model, block):
    assert block_class(model) == block
    assert list(json.loads(TABLE.read_text())["blocks"]) == sorted(json.loads(TABLE.read_text())["blocks"])
