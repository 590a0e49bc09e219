"""Code that puts a model under DDP, FSDP2 or FSDP1 as the plan says: a module to lie beside the script."""

from __future__ import annotations

from outlive.errors import UsageError
from outlive.launch.description import Launch
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.shell import quote

MODULE = "parallel.py"


def render_ddp(launch: Launch) -> Rendering:
    """``ddp``: the whole model on every GPU, gradients exchanged once per step."""
    if launch.strategy != "ddp":
        raise UsageError(
            f"this plan shards ({launch.strategy}); DDP keeps everything on every GPU",
            next=[["outlive", "plan", "--emit", "deepspeed" if launch.strategy == "zero1" else "fsdp2"]],
            safe="Nothing was written.",
        )
    _refuse_splits(launch, "ddp", tensor=False)
    if launch.offload != "none":
        raise UsageError("DDP moves nothing to the host; shard first", safe="Nothing was written.")
    text = fill("ddp.py.txt", **_common(launch))
    return _module(launch, text, "DDP")


def render_fsdp2(launch: Launch) -> Rendering:
    """``fsdp2``: fully_shard, with tensor parallelism inside the node where the plan has it. torch 2.6 and newer."""
    _refuse_unsharded(launch, "fsdp2")
    _refuse_splits(launch, "fsdp2", tensor=True)
    copies = launch.nodes if launch.strategy == "hsdp" else 1
    text = fill(
        "fsdp2.py.txt",
        **_common(launch),
        reshard="False" if launch.strategy == "zero2" else "True",
        copies=str(copies),
        tensor=str(launch.tensor_parallel),
        offload="True" if launch.offload != "none" else "False",
    )
    return _module(launch, text, "FSDP2")


def render_fsdp1(launch: Launch) -> Rendering:
    """``fsdp1``: FullyShardedDataParallel, for torch 2.1 to 2.5."""
    _refuse_unsharded(launch, "fsdp1")
    _refuse_splits(launch, "fsdp1", tensor=False)
    how = {"zero2": "SHARD_GRAD_OP", "zero3": "FULL_SHARD", "hsdp": "HYBRID_SHARD"}
    text = fill(
        "fsdp1.py.txt",
        **_common(launch),
        how=how[launch.strategy],
        per_node=str(launch.gpus_per_node),
        offload="True" if launch.offload != "none" else "False",
    )
    return _module(launch, text, "FSDP")


def _common(launch: Launch) -> dict[str, str]:
    return {
        "header": launch.header(),
        "accumulation": str(launch.accumulation),
        "micro": str(launch.micro_batch),
        "precision": repr(launch.precision),
        "recompute": repr(launch.recompute),
        "blocks": repr(launch.block_classes),
        "clip": repr(float(launch.clip_norm)),
        "timeout": str(launch.timeout_s),
    }


def _module(launch: Launch, text: str, what: str) -> Rendering:
    one_node = f"torchrun --standalone --nproc-per-node={launch.gpus_per_node}"
    start = f"{one_node} {quote(launch.script)}"
    if launch.nodes > 1:
        start = (
            f"outlive plan ... --emit torchrun   # or slurm, docker-nodes, jobset: to start it on {launch.nodes} nodes"
        )
    return Rendering(
        (File(MODULE, text, f"your script imports `setup`, `wrap` and `train_step` from it ({what})"),),
        (f"{one_node} {MODULE}   # three steps of a tiny model", start),
    )


def _refuse_unsharded(launch: Launch, kind: str) -> None:
    if launch.strategy == "ddp":
        raise UsageError(
            f"this plan keeps everything on every GPU; {kind} shards",
            next=[["outlive", "plan", "--emit", "ddp"]],
            safe="Nothing was written.",
        )
    if launch.strategy == "zero1":
        raise UsageError(
            f"{kind} cannot shard the optimizer alone",
            next=[["outlive", "plan", "--emit", "deepspeed"]],
            safe="Nothing was written.",
        )
    if not launch.block_classes:
        raise UsageError(
            "the class that is one block of the model is needed to shard it block by block",
            next=[["outlive", "plan", "--emit", kind, "--block-class", "LlamaDecoderLayer"]],
            safe="Nothing was written.",
        )


def _refuse_splits(launch: Launch, kind: str, *, tensor: bool) -> None:
    splits = {
        "pipeline": launch.pipeline_parallel,
        "context": launch.context_parallel,
        "expert": launch.expert_parallel,
    }
    if not tensor:
        splits["tensor"] = launch.tensor_parallel
    for name, degree in splits.items():
        if degree > 1:
            raise UsageError(
                f"{kind} code cannot do {name} parallelism, and this plan has {name} parallel {degree}: the model's "
                "own code has to",
                safe="Nothing was written.",
            )
