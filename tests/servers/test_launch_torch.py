"""Emitted launch files and wrapper code run by the real torchrun and accelerate, on processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.launched import LIMIT_S, TRAIN, Started, environment, need, put

from outlive.launch.description import Fabric, Launch
from outlive.launch.kinds import render

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    need("torch")
    holder = Started(tmp_path)
    yield holder
    holder.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "my project"  # a space, as people have them
    (directory / "ckpt").mkdir(parents=True)
    (directory / "train.py").write_text(TRAIN)
    return directory


def launch(**fields: object) -> Launch:
    plain = {"device": "cpu", "gpus_per_node": 2, "checkpoint_dir": "ckpt", "grace_s": 20, "workers": 0}
    return Launch(**{**plain, **fields})  # type: ignore[arg-type]


def state(project: Path) -> dict[str, object]:
    return json.loads((project / "ckpt" / "state.json").read_text())


def test_static_on_two_processes(started, project):
    script = put(launch(args=("5", "{checkpoint_dir}")), "torchrun", project)
    started.good(started.start(["sh", str(script)], project))
    assert state(project) == {"step": 5, "starts": [0], "worlds": [2]}


def test_elastic_goes_on_after_a_crash(started, project):
    script = put(launch(args=("6", "{checkpoint_dir}", "3"), max_restarts=2), "torchrun-elastic", project)
    started.good(started.start(["sh", str(script)], project))
    assert state(project) == {"step": 6, "starts": [0, 3], "worlds": [2, 2]}


# --- two nodes: network namespaces joined by a cable, each with its own view of the network ---


@pytest.fixture
def two_nodes() -> Iterator[list[tuple[str, str]]]:
    """Yield (namespace, address) of two nodes; in both the interface is called `train0`."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        if os.environ.get("OUTLIVE_REQUIRE_ROOT"):
            pytest.fail("network namespaces need root on Linux")
        pytest.skip("network namespaces need root on Linux")
    tag = os.urandom(3).hex()
    nodes = [(f"outlive-{tag}-{number}", f"10.79.0.{number + 1}") for number in range(2)]
    made: list[str] = []
    try:
        for name, _ in nodes:
            subprocess.run(["ip", "netns", "add", name], check=True)
            made.append(name)
        far = ["peer", "name", "train0", "netns", nodes[1][0]]
        subprocess.run(["ip", "-n", nodes[0][0], "link", "add", "train0", "type", "veth", *far], check=True)
        for name, address in nodes:
            subprocess.run(["ip", "-n", name, "addr", "add", f"{address}/24", "dev", "train0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "train0", "up"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield nodes
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.root
def test_static_on_two_nodes(started, project, two_nodes):
    addresses = tuple(address for _, address in two_nodes)
    plan = launch(
        nodes=2, gpus_per_node=1, hosts=addresses, fabric=Fabric(interface="train0"), args=("4", "{checkpoint_dir}")
    )
    script = put(plan, "torchrun", project)
    numbers = [
        started.start(["ip", "netns", "exec", name, "sh", str(script), str(number)], project)
        for number, (name, _) in enumerate(two_nodes)
    ]
    for number in numbers:
        started.good(number)
    assert state(project) == {"step": 4, "starts": [0], "worlds": [2]}


@pytest.mark.root
def test_elastic_on_two_nodes_goes_on_after_a_crash(started, project, two_nodes):
    addresses = tuple(address for _, address in two_nodes)
    plan = launch(
        nodes=2, gpus_per_node=1, hosts=addresses, fabric=Fabric(interface="train0"),
        args=("6", "{checkpoint_dir}", "3"), max_restarts=2,
    )  # fmt: skip
    script = put(plan, "torchrun-elastic", project)
    numbers = [
        started.start(
            ["ip", "netns", "exec", name, "sh", str(script), "start-1"],
            project,
            environment(IS_HOST=str(int(number == 0)), LOCAL_ADDR=address),
        )
        for number, (name, address) in enumerate(two_nodes)
    ]
    for number in numbers:
        started.good(number)
    assert state(project) == {"step": 6, "starts": [0, 3], "worlds": [2, 2]}


# --- wrapper code: three steps of a tiny model, and the losses agree however it is sharded ---


@pytest.mark.parametrize(
    ("kind", "strategy", "recompute"),
    [("ddp", "ddp", "full"), ("fsdp1", "zero2", "full")],
)
def test_wrapper_code_trains(started, tmp_path, kind, strategy, recompute):
    plan = launch(strategy=strategy, recompute=recompute, block_classes=("Block",), micro_batch=2, accumulation=2)
    module = put(plan, kind, tmp_path)
    words = ["torchrun", "--standalone", f"--nproc-per-node={plan.gpus_per_node}", str(module)]
    said = started.good(started.start(words, tmp_path, environment(OMP_NUM_THREADS="1")))
    losses = [float(line.split()[3]) for line in said.splitlines() if line.startswith("step ")]
    assert len(losses) == 3 and all(0 < loss < 10 for loss in losses), said
    assert f"world {plan.world}" in said


def test_fsdp2_computes_the_same_with_and_without_tensor_parallelism(started, tmp_path):
    losses = []
    for tensor, processes in ((1, 1), (2, 2)):
        folder = tmp_path / str(tensor)
        folder.mkdir()
        plan = launch(
            strategy="zero3",
            recompute="selective",
            tensor_parallel=tensor,
            gpus_per_node=processes,
            precision="fp32",
            block_classes=("Block",),
        )
        module = put(plan, "fsdp2", folder)
        words = ["torchrun", "--standalone", f"--nproc-per-node={processes}", str(module)]
        said = started.good(started.start(words, folder, environment(OMP_NUM_THREADS="1")))
        losses.append([float(line.split()[3]) for line in said.splitlines() if line.startswith("step ")])
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


# --- accelerate ---


def test_accelerate_takes_its_configuration(started, project):
    need("accelerate")
    (project / "train.py").write_text(
        "import json, sys\n"
        "from accelerate import Accelerator\n"
        "accelerator = Accelerator()\n"
        "seen = [accelerator.num_processes, accelerator.gradient_accumulation_steps, accelerator.mixed_precision,\n"
        "        accelerator.distributed_type.value, sys.argv[1]]\n"
        "accelerator.wait_for_everyone()\n"
        "if accelerator.is_main_process:\n"
        "    open('seen.json', 'w').write(json.dumps(seen))\n"
    )
    plan = launch(args=("{global_batch}",), micro_batch=3, accumulation=4, precision="fp32")
    put(plan, "accelerate", project)
    started.good(started.start(["sh", "launch.sh"], project))
    assert json.loads((project / "seen.json").read_text()) == [2, 4, "no", "MULTI_CPU", "24"]


def test_accelerate_reads_sharding_as_it_was_meant(tmp_path):
    need("accelerate")
    strategies = ("zero2", "zero3", "hsdp")
    for strategy in strategies:
        plan = launch(
            device="cuda", nodes=2, gpus_per_node=4, strategy=strategy, block_classes=("LlamaDecoderLayer",),
            recompute="full", hosts=("a", "b"),
        )  # fmt: skip
        (tmp_path / f"{strategy}.yaml").write_text(render(plan, "accelerate").main.text)
    code = (
        "import sys, json\n"
        "from accelerate.commands.config.config_args import load_config_from_file\n"
        "for c in map(load_config_from_file, sys.argv[1:]):\n"
        "    print(json.dumps([c.num_processes, c.num_machines, str(c.mixed_precision),\n"
        "        c.fsdp_config, c.parallelism_config]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / f"{strategy}.yaml") for strategy in strategies)],
        env=environment(), capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for strategy, line in zip(strategies, done.stdout.splitlines()[-3:], strict=True):
        processes, machines, mixed, sharding, parallel = json.loads(line)
        assert (processes, machines, mixed) == (8, 2, "bf16")
        assert sharding["fsdp_version"] == 2
        assert sharding["fsdp_reshard_after_forward"] is (strategy != "zero2")
        assert sharding["fsdp_transformer_layer_cls_to_wrap"] == "LlamaDecoderLayer"
        if strategy == "hsdp":
            assert parallel["parallelism_config_dp_replicate_size"] == 2
            assert parallel["parallelism_config_dp_shard_size"] == 4
        else:
            assert not parallel


# --- DeepSpeed: its own class reads the file ---


def test_deepspeed_reads_its_file(tmp_path):
    need("torch", "deepspeed")
    stages = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}
    for strategy in stages:
        plan = launch(
            device="cuda", gpus_per_node=1, strategy=strategy, micro_batch=3, accumulation=5,
            precision="fp16" if strategy == "zero1" else "bf16",
            offload={"zero2": "optimizer", "zero3": "all"}.get(strategy, "none"),
        )  # fmt: skip
        (tmp_path / f"{strategy}.json").write_text(render(plan, "deepspeed").main.text)
    code = (
        "import sys, json\n"
        "from deepspeed.runtime.config import DeepSpeedConfig\n"
        "for path in sys.argv[1:]:\n"
        "    c = DeepSpeedConfig(path)\n"
        "    z = c.zero_config\n"
        "    parts = (z.offload_optimizer, z.offload_param)\n"
        "    moved = [part is not None and str(getattr(part.device, 'value', part.device)) for part in parts]\n"
        "    print('READ', json.dumps([c.train_batch_size, c.train_micro_batch_size_per_gpu,\n"
        "        c.gradient_accumulation_steps, int(z.stage), moved, c.gradient_clipping]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / f"{strategy}.json") for strategy in stages)],
        env=environment(DS_ACCELERATOR="cpu"), capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    read = [json.loads(line.removeprefix("READ ")) for line in done.stdout.splitlines() if line.startswith("READ ")]
    moved = {"zero2": ["cpu", False], "zero3": ["cpu", "cpu"]}
    assert read == [[15, 3, 5, stage, moved.get(name, [False, False]), 1.0] for name, stage in stages.items()]


# --- profiler ---


def test_the_profiler_writes_three_steps(started, tmp_path):
    module = put(launch(), "profiler", tmp_path)
    started.good(started.start([sys.executable, str(module)], tmp_path, environment(OMP_NUM_THREADS="1")))
    traces = list((tmp_path / "out" / "trace").glob("*.json"))
    assert len(traces) == 1
    events = json.loads(traces[0].read_text())["traceEvents"]
    steps = {event["name"] for event in events if str(event.get("name", "")).startswith("ProfilerStep#")}
    assert len(steps) == 3
