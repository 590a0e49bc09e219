"""Recipes that look at a few steps: torch's own profiler, and Nsight Systems."""

from __future__ import annotations

from outlive.launch.description import Launch
from outlive.launch.files import File, Rendering
from outlive.launch.fill import fill
from outlive.launch.network import environment
from outlive.launch.shell import exports, lines

WAIT, WARMUP, ACTIVE = 1, 1, 3


def render_profiler(launch: Launch) -> Rendering:
    """``profiler``: a module whose `profiled` goes around the training loop; after its steps it costs nothing more."""
    text = fill(
        "profiler.py.txt", header=launch.header(), wait=str(WAIT), warmup=str(WARMUP), active=str(ACTIVE),
    )  # fmt: skip
    return Rendering(
        (File("profiling.py", text, "your script imports `profiled` from it; a trace per process under out/trace"),),
        ("python profiling.py   # try it on a tiny loop", "tensorboard --logdir out/trace   # or chrome://tracing"),
    )


def render_nsys(launch: Launch) -> Rendering:
    """``nsys``: one minute of the whole node in Nsight Systems, from the first node."""
    words = [
        ["exec", "nsys", "profile", "--trace=cuda,nvtx,osrt,cudnn,cublas", "--sample=none", "--cpuctxsw=none"],
        ["--delay=60", "--duration=60", "--kill=none", "--force-overwrite=false", "--output=out/nsys-%h-%p"],
        ["torchrun", "--standalone", f"--nproc-per-node={launch.gpus_per_node}"],
        launch.words(),
    ]
    text = fill("nsys.sh", header=launch.header(), environment=exports(environment(launch)), command=lines(words))
    return Rendering((File("nsys.sh", text, "runs the work on this node under Nsight Systems", True),), ("sh nsys.sh",))
