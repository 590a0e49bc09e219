"""``outlive plan --emit KIND``: from the planner's choice and the flags to launch files, printed or written."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from outlive import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from outlive.launch.description import Launch, Mount
    from outlive.launch.files import File, Rendering

STRATEGY = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
SAFE = "Nothing was written."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Register ``--emit`` and what belongs to it. The command comes after ``--``, with or without `python`."""
    group = parser.add_argument_group(
        "launch files",
        "written from the plan; the command stands after `--` and may hold {micro_batch}, {accumulation}, "
        "{checkpoint_dir} and the like",
    )
    group.add_argument("--emit", metavar="KIND", help="torchrun, slurm, docker, jobset, ...; a wrong word lists all")
    group.add_argument("--out", metavar="DIR", help="write the files and a README there (default: print the main one)")
    group.add_argument("--replace", action="store_true", help="replace files that are there and differ")
    group.add_argument("--name", dest="job", metavar="NAME", help="name of the job, container or manifest")
    group.add_argument("--hosts", metavar="A,B", help="the nodes, the first is where the others meet")
    group.add_argument("--min-nodes", type=int, metavar="N", help="elastic: go on with this many")
    group.add_argument("--max-restarts", type=int, default=3, metavar="N", help="after a crash (default 3)")
    group.add_argument("--port", type=int, default=29500, metavar="P", help="where the nodes meet (default 29500)")
    group.add_argument("--walltime", default="4h", metavar="TIME", help="limit of a queue's job (default 4h)")
    group.add_argument("--grace", default="120s", metavar="TIME", help="between the stop signal and the kill")
    group.add_argument("--workers", type=int, default=4, metavar="N", help="data loader processes per GPU (default 4)")
    group.add_argument("--image", default="pytorch/pytorch:latest", help="container image")
    group.add_argument("--checkpoint-dir", default="out/ckpt", metavar="DIR", help="where the work saves")
    group.add_argument("--mount", action="append", default=[], metavar="FROM:TO[:ro]", help="for containers and pods")
    group.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="written into the file: no secrets"
    )
    group.add_argument("--interface", metavar="NAME", help="network interface of the training traffic")
    group.add_argument("--infiniband", metavar="DEVICES", help="active devices, or `none`; left out: nothing is set")
    group.add_argument("--no-p2p", action="store_true", help="GPUs of a node cannot read each other's memory")
    group.add_argument("--partition", default="", help="of Slurm")
    group.add_argument("--account", default="", help="of Slurm")
    group.add_argument("--namespace", default="default", help="of Kubernetes")
    group.add_argument("--queue", default="", help="of Kueue: the job waits there")
    group.add_argument("--block-class", metavar="CLASS", help="class of one block of the model (default: by its name)")
    group.add_argument("--cpu", action="store_true", help="CPU processes and gloo, to try it without GPUs")


def emit(kind: str, choice: Any, args: argparse.Namespace) -> int:
    """Print the main file, or write all of them to ``--out``. ``choice`` is the planner's (docs/design/plan.md)."""
    from outlive.cli.printing import note, result
    from outlive.launch.kinds import render

    rendering = render(launch_of(choice, args), kind)
    if args.out is None:
        if getattr(args, "json", False):
            result(args, _object(kind, rendering, []), lambda: [])
            return 0
        print(rendering.main.text, end="", flush=True)
        others = [file.name for file in rendering.files[1:]]
        if others:
            note(f"also needed: {', '.join(others)}; `--out DIR` writes them all")
        return 0
    written = write([*rendering.files, rendering.readme()], Path(args.out), force=args.replace)
    lines = [f"{os.path.join(args.out, file.name)}: {file.about}" for file in rendering.files]
    result(args, _object(kind, rendering, written), lambda: [*lines, *(f"  {line}" for line in rendering.next)])
    return 0


def launch_of(choice: Any, args: argparse.Namespace) -> Launch:
    """Return the launch that a choice and the flags describe. Raises UsageError where they cannot be meant."""
    from outlive.launch.blocks import block_class
    from outlive.launch.description import Launch

    layout = choice.layout
    strategy = "hsdp" if layout.strategy == "hsdp" and choice.nodes > 1 else STRATEGY[layout.zero_stage]
    if strategy == "hsdp" and layout.shard_group != choice.gpus_per_node:
        raise errors.UsageError(
            f"the plan shards over {layout.shard_group} GPUs; files can be written for shards inside one node "
            f"({choice.gpus_per_node} GPUs)",
            safe=SAFE,
        )
    words = _command(list(getattr(args, "command", None) or []))
    block = args.block_class or block_class(choice.model.name)
    return Launch(
        name=args.job or _name(choice.model.name),
        script=words[0],
        args=tuple(words[1:]),
        env=tuple(_pair(text) for text in args.env),
        nodes=choice.nodes,
        gpus_per_node=choice.gpus_per_node,
        min_nodes=args.min_nodes,
        device="cpu" if args.cpu else "cuda",
        hosts=tuple(args.hosts.split(",")) if args.hosts else (),
        port=args.port,
        fabric=_fabric(args),
        strategy=strategy,
        tensor_parallel=layout.tp,
        pipeline_parallel=layout.pp,
        context_parallel=layout.cp,
        expert_parallel=layout.ep,
        precision=_precision(choice.precision),
        micro_batch=layout.micro_batch,
        accumulation=layout.accumulation,
        global_batch=choice.global_batch,
        recompute=layout.recompute,
        offload="none" if layout.offload == "none" else "all",
        block_classes=(block,) if block else (),
        checkpoint_dir=args.checkpoint_dir,
        mounts=tuple(_mount(text) for text in args.mount),
        workers=args.workers,
        mtbf_s=args.mtbf_hours * 3600 if getattr(args, "mtbf_hours", None) else None,
        grace_s=_whole_seconds(args.grace, "--grace"),
        walltime_s=_whole_seconds(args.walltime, "--walltime"),
        max_restarts=args.max_restarts,
        image=args.image,
        partition=args.partition,
        account=args.account,
        namespace=args.namespace,
        kueue_queue=args.queue,
    )


def write(files: list[File], directory: Path, *, force: bool = False) -> list[str]:
    """Write the files; return the paths. One that is there and differs is refused before anything is written."""
    differ = []
    for file in files:
        path = directory / file.name
        try:
            if path.read_bytes() != file.text.encode():
                differ.append(str(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise errors.UsageError(f"{path} cannot be read: {error.strerror}", safe=SAFE) from error
    if differ and not force:
        raise errors.UsageError(
            f"{differ[0]} is there and differs" + (f", and {len(differ) - 1} more" if len(differ) > 1 else ""),
            why=[*differ[1:], "`--replace` replaces them"],
            safe="Nothing was written; they are as they were.",
        )
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in files:
            path = directory / file.name
            aside = path.with_name(f".{file.name}.{os.getpid()}")
            aside.write_text(file.text, "utf-8")
            aside.chmod(0o755 if file.executable else 0o644)
            aside.replace(path)
            written.append(str(path))
    except OSError as error:
        raise errors.UsageError(
            f"{directory} cannot be written: {error.strerror}", why=[f"written: {path}" for path in written]
        ) from error
    return written


def _object(kind: str, rendering: Rendering, written: list[str]) -> dict[str, object]:
    return {
        "schema": "outlive/plan-emit/1",
        "kind": kind,
        "files": [
            {"name": file.name, "about": file.about, "executable": file.executable, "text": file.text}
            for file in rendering.files
        ],
        "written": written,
        "next": list(rendering.next),
    }


def _command(words: list[str]) -> list[str]:
    """Return the script and its arguments of what stood after ``--``."""
    if words and words[0] in ("python", "python3"):
        words = words[1:]
    if not words:
        return ["train.py"]
    if words[0] in ("torchrun", "accelerate", "deepspeed", "srun", "sbatch"):
        raise errors.UsageError(
            f"the launcher `{words[0]}` is what is written here; after `--` comes the script alone",
            next=[["outlive", "plan", "--emit", "torchrun", "--", "train.py", "--lr", "3e-4"]],
            safe=SAFE,
        )
    return words


def _name(model: str) -> str:
    import re

    name = re.sub(r"[^a-z0-9]+", "-", model.rsplit("/", 1)[-1].lower()).strip("-")[:40].strip("-")
    return name if name and name[0].isalpha() else f"train-{name}".strip("-")


def _precision(word: str) -> str:
    return "fp32" if word == "fp32" else "fp16" if word.startswith("fp16") else "bf16"


def _fabric(args: argparse.Namespace) -> Any:
    from outlive.launch.description import Fabric

    devices = None
    if args.infiniband is not None:
        devices = () if args.infiniband == "none" else tuple(args.infiniband.split(","))
    return Fabric(interface=args.interface, infiniband=devices, peer_to_peer=False if args.no_p2p else None)


def _mount(text: str) -> Mount:
    from outlive.launch.description import Mount

    parts = text.split(":")
    if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
        raise errors.UsageError(f"--mount {text!r}: write FROM:TO or FROM:TO:ro", safe=SAFE)
    return Mount(source=parts[0], target=parts[1], read_only=parts[2:] == ["ro"])


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise errors.UsageError(f"--env {text!r}: write NAME=VALUE", safe=SAFE)
    return name, value


def _whole_seconds(text: str, flag: str) -> int:
    from outlive.runs.job import seconds

    try:
        return int(seconds(text))
    except ValueError as error:
        raise errors.UsageError(f"{flag}: {error}", safe=SAFE) from error
