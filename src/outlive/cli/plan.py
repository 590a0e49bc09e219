"""``outlive plan``: does it fit, how fast, what does it cost, what to type on each node."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from outlive import errors

SAFE = "Nothing was done."


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    from outlive.cli import emit

    parser = subparsers.add_parser(
        "plan",
        help="does it fit, how fast is it, what does it cost, what to type",
        description="Does a training fit on a GPU, with which parallelism, how fast, for how much. The request is YAML "
        "on standard input or in a file, or flags. Nothing is started and nothing is fetched.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a request as YAML or JSON (default: standard input)")
    model = parser.add_argument_group("the model")
    model.add_argument("--model", metavar="NAME", help="Llama-3-8B, Qwen/Qwen2.5-7B, ... or the path of a config.json")
    model.add_argument("--model-config", metavar="FILE", help="a config.json in the manner of Hugging Face")
    model.add_argument("--params", metavar="N", help="parameters (7e9, 7B); alone: the dimensions are inferred")
    hardware = parser.add_argument_group("the hardware")
    hardware.add_argument("--gpu", metavar="NAME[:N]", help="H100:8, A100-40GB, 4090, ...; `any` compares all")
    hardware.add_argument("--gpus-per-node", type=int, metavar="N")
    hardware.add_argument("--nodes", type=int, metavar="N")
    hardware.add_argument("--memory-gib", type=float, metavar="GIB", help="usable memory per GPU, where it is known")
    hardware.add_argument("--network-gb-s", type=float, metavar="GB", help="of a node towards others, one direction")
    training = parser.add_argument_group("the training")
    training.add_argument("--seq-len", "--seq", type=int, metavar="N", dest="seq_len", help="tokens per sequence")
    training.add_argument("--micro-batch", type=int, metavar="N", help="sequences per GPU and pass (default: chosen)")
    training.add_argument("--global-batch", type=int, metavar="N", help="sequences per optimizer step")
    training.add_argument("--precision", metavar="P", help="fp32 fp16-mixed bf16-mixed bf16-pure fp8-mixed")
    training.add_argument("--optimizer", metavar="O", help="adamw adamw8bit paged_adamw adafactor sgd lion ...")
    training.add_argument("--method", metavar="M", help="full lora qlora")
    training.add_argument("--lora-rank", type=int, metavar="R")
    training.add_argument("--lora-targets", metavar="A,B", help="q,k,v,o,mlp,head (default: all of a block)")
    training.add_argument("--base-quantization", metavar="Q", help="nf4 bnb.nf4-dq gptq-int4 int8")
    training.add_argument("--activation-checkpointing", metavar="A", help="none selective full (default: chosen)")
    training.add_argument("--attention", metavar="A", help="flash sdpa eager")
    training.add_argument("--loss", metavar="L", help="standard chunked fused")
    training.add_argument("--compile", action="store_true", help="torch.compile is used")
    training.add_argument("--offload", metavar="O", help="none params params+optimizer params+activations")
    layout = parser.add_argument_group("the layout", "left out: every possible one is compared")
    layout.add_argument("--strategy", metavar="S", help="single ddp zero1 zero2 zero3 fsdp_full hsdp fsdp_tp 3d ...")
    for name in ("dp", "tp", "pp", "cp", "ep"):
        layout.add_argument(f"--{name}", type=int, metavar="N")
    goal = parser.add_argument_group("time and money")
    goal.add_argument("--tokens", metavar="N", help="train on so many tokens (300B, 1e12)")
    goal.add_argument("--dataset-tokens", metavar="N", help="with --epochs: tokens of one pass")
    goal.add_argument("--epochs", type=float, metavar="N")
    goal.add_argument(
        "--price", action="append", default=[], metavar="[GPU=]N", help="per GPU and hour; prices are yours"
    )
    goal.add_argument("--currency", default="USD", metavar="C")
    goal.add_argument("--max-hours", type=float, metavar="H", help="with --gpu any: leave out what takes longer")
    goal.add_argument("--max-cost", type=float, metavar="N", help="with --gpu any: leave out what costs more")
    goal.add_argument("--mtbf-hours", type=float, metavar="H", help="mean time between interruptions of a node")
    goal.add_argument("--disk-gb-s", type=float, metavar="GB", help="what a node writes to checkpoint storage")
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--json", action="store_true", help="one JSON object on stdout")
    shown.add_argument("--explain", action="store_true", help="every term with its numbers put in")
    shown.add_argument("--html", metavar="FILE", help="write a page with plots")
    shown.add_argument("--measure", action="store_true", help="two tiny steps here, predicted against measured (torch)")
    shown.add_argument("--save", action="store_true", help="with --measure: keep the correction for this GPU")
    shown.add_argument("--corrected", action="store_true", help="apply the correction kept for this GPU")
    emit.add_arguments(parser)
    parser.set_defaults(func=run, takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Plan and print; return 0 whenever there is an answer."""
    mapping, strict = _mapping(args)
    if str(mapping.get("hardware", {}).get("gpu", "")) == "any":
        return _any(args, mapping)
    from outlive.cli.printing import columns, result, unicode_wanted
    from outlive.plan.choose import plan
    from outlive.plan.request import from_mapping
    from outlive.views import plan_view

    request = from_mapping(mapping, strict=strict)
    if args.measure:
        return _measure(args, request)
    if args.corrected:
        request = _corrected(request)
    found = plan(request)
    if getattr(args, "emit", None):
        return _emit(args, found)
    saves = goal = None
    if found.choice.fits:
        saves = _saves(args, request, found.choice)
        goal = _goal(args, found.choice, saves.waste if args.mtbf_hours else None)
    if args.html:
        from outlive.views import plan_page

        _write(args.html, plan_page.page(found, saves, goal, _sweeps(request, found)))

    def lines() -> list[str]:
        shown = plan_view.lines(found, saves, goal, columns(), plain=not unicode_wanted())
        if args.explain:
            from outlive.views import plan_terms

            shown += ["", *plan_terms.lines(request, found.choice)]
        return [*shown, *([f"wrote {args.html}"] if args.html else [])]

    data = plan_view.data(found, saves, goal, request.id)
    if args.explain:
        from outlive.views import plan_terms

        data["explained"] = plan_terms.data(request, found.choice)
    result(args, data, lines)
    return 0


def _measure(args: argparse.Namespace, request: Any) -> int:
    from outlive.cli.printing import result
    from outlive.views import plan_measured

    try:
        from outlive.plan.measure import measure
    except ImportError as error:
        raise errors.UsageError(
            f"--measure trains two tiny steps and needs torch: {error}", safe=SAFE, next=[["pip", "install", "torch"]]
        ) from error
    found = measure(request)
    kept = ""
    if args.save:
        from outlive.runs.home import state_dir

        kept = str(plan_measured.keep(found, request.gpu.key, state_dir()))
    result(args, plan_measured.data(found, kept), lambda: plan_measured.lines(found, kept))
    return 0


def _corrected(request: Any) -> Any:
    from outlive.runs.home import state_dir
    from outlive.views import plan_measured

    found = plan_measured.kept(request.gpu.key, state_dir())
    if found is None:
        raise errors.UsageError(
            f"no correction is kept for {request.gpu.key}",
            safe=SAFE,
            next=[["outlive", "plan", "--measure", "--save", "--gpu", request.gpu.key]],
        )
    return request._replace(activation_scale=found[0], speed_scale=found[1] or 1.0)


def _emit(args: argparse.Namespace, found: Any) -> int:
    from outlive.cli import emit

    if not found.choice.fits:
        raise errors.UsageError(
            "the plan does not fit, so no launch files are written",
            why=[f"{found.choice.memory.total / 1e9:.1f} GB of {found.choice.usable_bytes / 1e9:.1f} GB per GPU"],
            safe=SAFE,
            next=[["outlive", "plan", *found.changes[-1].flags]] if found.changes else [],
        )
    return emit.emit(args.emit, found.choice, args)


def _mapping(args: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Return the request as a mapping and whether it came from flags, which have to come out even."""
    typed = {name: value for name, value in vars(args).items() if name in _FLAGS and value not in (None, False)}
    if args.file or not typed:
        from outlive.plan.plain_yaml import loads

        data = loads(_read(args.file), file=args.file or "<stdin>")
        for name, value in typed.items():
            _put(data, name, value)
        return data, False
    data = {"model": {}, "hardware": {}, "training": {}}
    for name, value in typed.items():
        _put(data, name, value)
    if not data["model"]:
        raise errors.UsageError("no model: give --model, --model-config or --params", safe=SAFE)
    if "gpu" not in data["hardware"]:
        raise errors.UsageError(
            "no GPU: give --gpu",
            safe=SAFE,
            next=[["outlive", "plan", "--gpu", "H100:8"], ["outlive", "plan", "--gpu", "any"]],
        )
    return data, True


def _read(file: str | None) -> str:
    try:
        if file and file != "-":
            from pathlib import Path

            return Path(file).read_text("utf-8")
        if sys.stdin.isatty():
            raise errors.UsageError(
                "no request: give flags, or YAML on standard input",
                safe=SAFE,
                next=[["outlive", "plan", "--model", "Llama-3-8B", "--gpu", "H100:8"]],
            )
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadConfig(f"cannot be read: {error}", file=file or "<stdin>", safe=SAFE) from error


_FLAGS: dict[str, tuple[str, str]] = {
    "model": ("model", "name"),
    "model_config": ("model", "config"),
    "params": ("model", "params"),
    "gpu": ("hardware", "gpu"),
    "gpus_per_node": ("hardware", "gpus_per_node"),
    "nodes": ("hardware", "nodes"),
    "memory_gib": ("hardware", "memory_usable_gib"),
    "network_gb_s": ("hardware", "network_gb_s"),
    "seq_len": ("training", "seq_len"),
    "micro_batch": ("training", "micro_batch"),
    "global_batch": ("training", "global_batch"),
    "precision": ("training", "precision"),
    "optimizer": ("training", "optimizer"),
    "method": ("training", "method"),
    "base_quantization": ("training", "base_quantization"),
    "activation_checkpointing": ("training", "activation_checkpointing"),
    "attention": ("training", "attention"),
    "loss": ("training", "loss"),
    "compile": ("training", "compile"),
    "offload": ("training", "offload"),
    "lora_rank": ("training.lora", "rank"),
    "lora_targets": ("training.lora", "targets"),
    "strategy": ("parallelism", "strategy"),
    "dp": ("parallelism", "dp"),
    "tp": ("parallelism", "tp"),
    "pp": ("parallelism", "pp"),
    "cp": ("parallelism", "cp"),
    "ep": ("parallelism", "ep"),
}


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    part, key = _FLAGS[name]
    if name == "params":
        value = whole_number(value, "--params")
    if name == "model" and (value.endswith(".json") or "/" in value and _is_file(value)):
        key = "config"
    if name == "gpu":
        from outlive.plan.gpus import parse

        value, count = parse(value)
        if count is not None:
            data["hardware"]["gpus_per_node"] = count
    where = data
    for step in part.split("."):
        where = where.setdefault(step, {})
        if not isinstance(where, dict):
            raise errors.UsageError(f"`{step}` of the request holds no keys", safe=SAFE)
    where[key] = value


def _is_file(path: str) -> bool:
    import os

    return os.path.isfile(path)


def whole_number(text: str, flag: str) -> int:
    """Return ``7B``, ``1.5e12`` or ``7000000000`` as a whole number. Raises UsageError."""
    plain = str(text).strip().replace("_", "")
    scale = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}.get(plain[-1:].lower(), 0)
    try:
        value = float(plain[:-1]) * scale if scale else float(plain)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1e20:
        raise errors.UsageError(f"{flag}: `{text}` is not a number above 0 such as 7B or 1.5e12", safe=SAFE)
    return round(value)


def _prices(args: argparse.Namespace) -> dict[str, float]:
    """Return prices by GPU key; "" for one without a name."""
    from outlive.plan.gpus import by_name

    found = {}
    for text in args.price:
        name, equals, number = text.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            price = -1.0
        if not 0 <= price < 1e6 or (equals and not name):
            raise errors.UsageError(f"--price {text}: write 2.50 or H100=2.50, per GPU and hour", safe=SAFE)
        found[by_name(name).key if name else ""] = price
    return found


def _tokens(args: argparse.Namespace) -> float | None:
    if args.tokens and (args.epochs or args.dataset_tokens):
        raise errors.UsageError("--tokens and --epochs say the same twice: give one", safe=SAFE)
    if args.tokens:
        return float(whole_number(args.tokens, "--tokens"))
    if args.epochs or args.dataset_tokens:
        if not args.dataset_tokens or (args.epochs is not None and args.epochs <= 0):
            raise errors.UsageError("--epochs needs --dataset-tokens, and both above 0", safe=SAFE)
        return whole_number(args.dataset_tokens, "--dataset-tokens") * (args.epochs or 1.0)
    return None


def _saves(args: argparse.Namespace, request: Any, choice: Any) -> Any:
    from outlive.plan.checkpoint_plan import checkpoint_plan

    for flag, value in (("--mtbf-hours", args.mtbf_hours), ("--disk-gb-s", args.disk_gb_s)):
        if value is not None and not 0 < value < 1e9:
            raise errors.UsageError(f"{flag} is above 0", safe=SAFE)
    return checkpoint_plan(
        request,
        choice,
        mtbf_s=args.mtbf_hours * 3600 if args.mtbf_hours else None,
        disk_bytes_per_s=args.disk_gb_s * 1e9 if args.disk_gb_s else None,
    )


def _goal(args: argparse.Namespace, choice: Any, waste: float | None) -> Any:
    tokens = _tokens(args)
    if tokens is None:
        return None
    from outlive.plan.cost import target

    prices = _prices(args)
    price = prices.get(choice.gpu.key, prices.get(""))
    return target(choice, tokens, price=price, currency=args.currency, waste=waste)


def _any(args: argparse.Namespace, mapping: dict[str, Any]) -> int:
    from outlive.cli.printing import columns, result
    from outlive.plan.anywhere import everywhere
    from outlive.views import plan_view

    tokens = _tokens(args)
    for flag, value in (("--max-hours", args.max_hours), ("--max-cost", args.max_cost)):
        if value is not None and (tokens is None or value <= 0):
            raise errors.UsageError(f"{flag} is above 0 and needs --tokens", safe=SAFE)
    found = everywhere(
        mapping,
        tokens=tokens,
        prices=_prices(args),
        currency=args.currency,
        max_hours=args.max_hours,
        max_cost=args.max_cost,
    )
    head = f"{len(found)} ways, best first" if found else "nothing fits within these limits"
    result(args, plan_view.any_data(found), lambda: [head, *(plan_view.any_lines(found, columns()) if found else [])])
    return 0


def _sweeps(request: Any, found: Any) -> Any:
    from outlive.plan.sweep import sweeps

    return sweeps(request, found.choice.layout)


def _write(path: str, text: str) -> None:
    from pathlib import Path

    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be written: {error.strerror}", safe=SAFE) from error
