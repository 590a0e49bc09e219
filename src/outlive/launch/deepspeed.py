"""DeepSpeed: its JSON, the hostfile and the line that starts it."""

from __future__ import annotations

import json

from outlive.errors import UsageError
from outlive.launch.description import Launch
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.network import environment
from outlive.launch.shell import Raw, exports, lines, need_checkpoints

STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}


def render(launch: Launch) -> Rendering:
    """``deepspeed``: the JSON of the stage, a hostfile, and one line on the first node, which reaches others by ssh."""
    if launch.strategy not in STAGES:
        raise UsageError(
            f"{launch.strategy} has no DeepSpeed stage",
            next=[["outlive", "plan", "--emit", "fsdp2"]],
            safe="Nothing was written.",
        )
    if launch.tensor_parallel * launch.pipeline_parallel * launch.context_parallel > 1:
        raise UsageError(
            "the DeepSpeed file shards data-parallel copies only; this plan also splits the model",
            next=[["outlive", "plan", "--emit", "fsdp2"]],
            safe="Nothing was written.",
        )
    stage = STAGES[launch.strategy]
    if launch.offload == "all" and stage < 3:
        raise UsageError(
            f"weights are only moved to the host at stage 3, not at stage {stage}", safe="Nothing was written."
        )
    if launch.offload == "optimizer" and stage == 0:
        raise UsageError("the optimizer is moved to the host from stage 1 on", safe="Nothing was written.")
    settings = fill(
        f"deepspeed-stage{stage}.json",
        common=fill(
            "deepspeed-common.json",
            batch=str(launch.whole_batch),
            micro=str(launch.micro_batch),
            accumulation=str(launch.accumulation),
            clip=json.dumps(launch.clip_norm),
            precision=_precision(launch.precision),
            optimizer=fill("deepspeed-offload.json") if launch.offload != "none" else "",
        ),
        **({"offload": _offload(launch)} if stage else {}),
    )
    hosts = launch.hosts or (("localhost",) if launch.nodes == 1 else tuple(f"node-{n}" for n in range(launch.nodes)))
    hostfile = "".join(f"{host} slots={launch.gpus_per_node}\n" for host in hosts)
    words: list[list[str]] = [["exec", "deepspeed", Raw('--hostfile "$HERE/hostfile"')]]
    words.append([f"--num_nodes={launch.nodes}", f"--num_gpus={launch.gpus_per_node}"])
    words.append([f"--master_addr={hosts[0]}", Raw('--master_port="$MASTER_PORT"')])
    words += [launch.words(), ["--deepspeed", Raw('"$HERE/deepspeed.json"')]]
    pairs = environment(launch)
    text = fill(
        "deepspeed.sh",
        header=launch.header(),
        port=str(launch.port),
        environment=exports(pairs),
        checkpoints=need_checkpoints(launch),
        command=lines(words),
    )
    about = "sizes that make the effective batch, precision, stage and buckets; the optimizer stays in your script"
    files = (
        File("deepspeed.json", settings, about),
        File("deepspeed_env", "".join(f"{name}={value}\n" for name, value in pairs), "what the other nodes get"),
        File("hostfile", hostfile, "the nodes and their GPUs; edit the names" if not launch.hosts else "the nodes"),
        File("launch.sh", text, "on the first node; the others are reached by ssh from there", True),
    )
    return Rendering(files, ("sh launch.sh",))


def _precision(precision: str) -> str:
    if precision == "fp32":
        return ""
    return fill(f"deepspeed-{precision}.json")


def _offload(launch: Launch) -> str:
    parts = []
    if launch.offload != "none":
        parts.append("offload_optimizer")
    if launch.offload == "all":
        parts.append("offload_param")
    return "\n".join(f'"{part}": {{"device": "cpu", "pin_memory": true}},' for part in parts)
