"""Every rendering, by the word that is typed after ``--emit``."""

from __future__ import annotations

from outlive import errors
from outlive.launch import accelerate, deepspeed, docker, kubernetes, network, profiling, slurm, torchrun, wrappers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from outlive.launch.description import Launch
    from outlive.launch.files import Rendering

KINDS: dict[str, Callable[[Launch], Rendering]] = {
    "accelerate": accelerate.render,
    "ddp": wrappers.render_ddp,
    "deepspeed": deepspeed.render,
    "docker": docker.render_one,
    "docker-nodes": docker.render_nodes,
    "fsdp1": wrappers.render_fsdp1,
    "fsdp2": wrappers.render_fsdp2,
    "jobset": kubernetes.render_jobset,
    "kubernetes": kubernetes.render_job,
    "kubernetes-indexed": kubernetes.render_indexed,
    "nccl": network.render_network,
    "nsys": profiling.render_nsys,
    "profiler": profiling.render_profiler,
    "pytorchjob": kubernetes.render_pytorchjob,
    "slurm": slurm.render,
    "torchrun": torchrun.render_static,
    "torchrun-elastic": torchrun.render_elastic,
}


def render(launch: Launch, kind: str) -> Rendering:
    """Return the files of ``kind``. Raises UnknownName, and UsageError where this launch cannot be had that way."""
    if kind not in KINDS:
        near = errors.nearest(kind, KINDS)
        raise errors.UnknownName(
            f"nothing can be written as `{kind}`" + (f"; did you mean `{near}`?" if near else ""),
            name=kind,
            candidates=KINDS,
            safe="Nothing was written.",
        )
    return KINDS[kind](launch)
