"""Hugging Face Accelerate: its configuration file and the line that starts it."""

from __future__ import annotations

import json

from outlive.errors import UsageError
from outlive.launch.description import Launch
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.network import environment
from outlive.launch.shell import Raw, exports, lines, need_checkpoints
from outlive.launch.torchrun import each_node, meeting_host

MIXED = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}


def render(launch: Launch) -> Rendering:
    """``accelerate``: one file of settings, the same on every node, and a line with the node's number."""
    if launch.pipeline_parallel > 1:
        raise UsageError("accelerate has no pipeline parallelism", safe="Nothing was written.")
    if launch.strategy == "zero1":
        raise UsageError(
            "accelerate shards the optimizer alone only through DeepSpeed",
            next=[["outlive", "plan", "--emit", "deepspeed"]],
            safe="Nothing was written.",
        )
    sharded = launch.strategy != "ddp"
    split = launch.tensor_parallel > 1 or launch.context_parallel > 1
    if split and not sharded:
        raise UsageError(
            "accelerate combines tensor and context parallelism with sharding only (zero2, zero3)",
            safe="Nothing was written.",
        )
    if sharded and not launch.block_classes:
        raise UsageError(
            "the class that is one block of the model is needed to shard it",
            next=[["outlive", "plan", "--emit", "accelerate", "--block-class", "LlamaDecoderLayer"]],
            safe="Nothing was written.",
        )
    config = fill(
        "accelerate.yaml",
        header=launch.header(),
        kind=_kind(launch, sharded),
        cpu="true" if launch.device == "cpu" else "false",
        mixed=json.dumps(MIXED[launch.precision]),
        machines=str(launch.nodes),
        processes=str(launch.world),
        sharding=_sharding(launch) if sharded else "",
        parallelism=_parallelism(launch) if split or launch.strategy == "hsdp" else "",
    )
    pairs = [*environment(launch), ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", str(launch.accumulation))]
    if launch.device == "cpu":
        pairs.append(("ACCELERATE_USE_CPU", "true"))  # else each process takes itself for the only one
    words: list[list[str]] = [["exec", "accelerate", "launch", Raw('--config_file "$HERE/accelerate.yaml"')]]
    if launch.nodes > 1:
        words.append([Raw('--machine_rank "$NODE"'), Raw('--main_process_ip "$MASTER_ADDR"')])
        words.append([Raw('--main_process_port "$MASTER_PORT"')])
        node = (
            f"NODE=${{1:?the number of this node, from 0 to {launch.nodes - 1}}}\n"
            f"{meeting_host(launch)}\nMASTER_PORT=${{MASTER_PORT:-{launch.port}}}"
        )
    else:
        words.append(["--main_process_port", "0"])  # a free one
        node = ""
    text = fill(
        "accelerate.sh",
        header=launch.header(),
        node=node,
        environment=exports(pairs),
        checkpoints=need_checkpoints(launch),
        command=lines([*words, launch.words()]),
    )
    typed = ("sh launch.sh",) if launch.nodes == 1 else each_node(launch, "sh launch.sh {node}")
    return Rendering(
        (
            File("accelerate.yaml", config, "settings of Accelerate, the same on every node"),
            File("launch.sh", text, "starts one node; it looks for accelerate.yaml beside it", True),
        ),
        typed,
    )


def _kind(launch: Launch, sharded: bool) -> str:
    if sharded:
        return "FSDP"
    if launch.world == 1:
        return '"NO"'
    # also for CPU processes: under MULTI_CPU it would start a single one, unless mpirun starts them
    return "MULTI_GPU"


def _sharding(launch: Launch) -> str:
    return fill(
        "accelerate-fsdp.yaml",
        reshard="false" if launch.strategy == "zero2" else "true",
        offload="true" if launch.offload != "none" else "false",
        recompute="false" if launch.recompute == "none" else "true",
        blocks=json.dumps(",".join(launch.block_classes)),
    )


def _parallelism(launch: Launch) -> str:
    copies = launch.nodes if launch.strategy == "hsdp" else 1
    return fill(
        "accelerate-parallelism.yaml",
        copies=str(copies),
        shards=str(launch.data_parallel // copies),
        tensor=str(launch.tensor_parallel),
        context=str(launch.context_parallel),
    )
