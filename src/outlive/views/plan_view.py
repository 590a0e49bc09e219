"""How a plan reads: one JSON object, and the terminal page with bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.plan.answer import Choice, Plan, Target
from outlive.plan.checkpoint_plan import CheckpointPlan
from outlive.plan.memory import TERMS, Memory
from outlive.views.amounts import bar, size, span

GB = 1e9


def data(plan: Plan, saves: CheckpointPlan | None = None, goal: Target | None = None, id: str = "") -> dict[str, Any]:
    """Return the plan as one object: decimal GB, worst device."""
    choice = plan.choice
    found: dict[str, Any] = {"schema": "outlive/plan/1"}
    if id:
        found["id"] = id
    found.update(_choice(choice))
    if not choice.fits and plan.chosen and "_offload" not in choice.layout.strategy:
        found["strategy"] = "none"
    found.update(
        model=_model(choice),
        gpu=choice.gpu.key,
        world=choice.world,
        usable_gb_per_gpu=_r(choice.usable_bytes),
        chosen=plan.chosen,
        searched=plan.searched,
        reasons=list(choice.reasons),
        warnings=list(plan.warnings),
        runners_up=[{**_brief(other.choice), "why": other.why} for other in plan.runners_up],
        changes=[
            {
                "what": change.what,
                "flags": list(change.flags),
                "total_gb_per_gpu": _r(change.total_bytes),
                "fits": change.fits,
                "slower": None if change.slower is None else round(change.slower, 3),
            }
            for change in plan.changes
        ],
    )
    if saves is not None:
        found["checkpoints"] = checkpoint_data(saves)
    if goal is not None:
        found["target"] = target_data(goal)
    return found


def _choice(choice: Choice) -> dict[str, Any]:
    layout, speed = choice.layout, choice.speed
    return {
        "strategy": layout.strategy,
        "parallelism": {
            "dp": layout.dp,
            "tp": layout.tp,
            "pp": layout.pp,
            "cp": layout.cp,
            "ep": layout.ep,
            "zero_stage": layout.zero_stage,
            "shard_group": layout.shard_group,
            "virtual_pp": layout.virtual_pp,
            "sequence_parallel": layout.sequence_parallel,
        },
        "micro_batch": layout.micro_batch,
        "accumulation": layout.accumulation,
        "global_batch": choice.global_batch,
        "seq_len": choice.seq_len,
        "activation_checkpointing": layout.recompute,
        "offload": layout.offload,
        "precision": choice.precision,
        "optimizer": choice.optimizer,
        "method": choice.method,
        "fits": choice.fits,
        "memory_gb_per_gpu": memory_data(choice.memory),
        "tokens_per_second_per_gpu": {
            "low": _f(speed.low),
            "mid": _f(speed.tokens_per_second_per_gpu),
            "high": _f(speed.high),
        },
        "mfu": round(speed.mfu, 4),
        "step_time_s": _f(speed.step_s),
        "step_parts_s": {name: _f(value) for name, value, _ in _parts(choice)},
    }


def _brief(choice: Choice) -> dict[str, Any]:
    layout = choice.layout
    return {
        "strategy": layout.strategy,
        "parallelism": {
            "dp": layout.dp,
            "tp": layout.tp,
            "pp": layout.pp,
            "cp": layout.cp,
            "zero_stage": layout.zero_stage,
        },
        "micro_batch": layout.micro_batch,
        "accumulation": layout.accumulation,
        "activation_checkpointing": layout.recompute,
        "fits": choice.fits,
        "total_gb_per_gpu": _r(choice.memory.total),
        "tokens_per_second_per_gpu": _f(choice.speed.tokens_per_second_per_gpu),
    }


def memory_data(memory: Memory) -> dict[str, float]:
    """Return the terms in decimal GB. The six of the format sum to ``total``; ``terms`` are the finer ones."""
    overhead = memory.gathered + memory.buffers + memory.working + memory.fragmentation + memory.context
    return {
        "weights": _r(memory.weights),
        "gradients": _r(memory.gradients),
        "optimizer": _r(memory.optimizer),
        "activations": _r(memory.activations),
        "logits_loss": _r(memory.logits_loss),
        "overhead": _r(overhead),
        "total": _r(memory.total),
        "allocated": _r(memory.allocated),
        "reserved": _r(memory.reserved),
        "low": _r(memory.low),
        "high": _r(memory.high),
        "gathered": _r(memory.gathered),
        "buffers": _r(memory.buffers),
        "working": _r(memory.working),
        "fragmentation": _r(memory.fragmentation),
        "context": _r(memory.context),
    }


def _model(choice: Choice) -> dict[str, Any]:
    model = choice.model
    return {
        "name": model.name,
        "params": model.params,
        "active_params": round(model.active_params),
        "layers": model.layers,
        "hidden": model.hidden,
        "inferred": list(model.inferred),
    }


def checkpoint_data(saves: CheckpointPlan) -> dict[str, Any]:
    """Return the checkpoint plan."""
    return {
        "format": saves.format,
        "bytes": round(saves.bytes),
        "weights_bytes": round(saves.weights_bytes),
        "files": saves.files,
        "save_s": _f(saves.save_s),
        "every_s": _f(saves.interval_s),
        "every_steps": saves.interval_steps,
        "mtbf_s": saves.mtbf_s,
        "mtbf_assumed": saves.mtbf_assumed,
        "expected_waste": round(saves.waste, 4),
        "keep_latest": saves.keep_latest,
        "keep_best": saves.keep_best,
        "disk_bytes": round(saves.disk_bytes),
        "inodes": saves.inodes,
        "resume": list(saves.resume),
    }


def target_data(goal: Target) -> dict[str, Any]:
    """Return time and money of the target."""
    found: dict[str, Any] = {
        "tokens": goal.tokens,
        "hours": {"low": _f(goal.hours_low), "mid": _f(goal.hours), "high": _f(goal.hours_high)},
        "expected_waste": None if goal.waste is None else round(goal.waste, 4),
    }
    if goal.cost is not None:
        found["cost"] = {
            "low": _f(goal.cost_low or 0),
            "mid": _f(goal.cost),
            "high": _f(goal.cost_high or 0),
            "currency": goal.currency,
        }
    return found


def lines(
    plan: Plan, saves: CheckpointPlan | None, goal: Target | None, columns: int, *, plain: bool = False
) -> list[str]:
    """Return the page for a terminal."""
    choice = plan.choice
    speed, memory = choice.speed, choice.memory
    verdict = "fits" if choice.fits else "DOES NOT FIT"
    if not choice.fits and choice.layout.strategy.endswith("_offload"):
        verdict = "fits only with its states in host memory"
    found = [
        f"{choice.model.name} ({_billions(choice.model.params)}) on {choice.world} x {choice.gpu.name}: {verdict}",
        f"  {layout_words(choice)}",
        "",
        f"memory per GPU, worst device{f' ({memory.stage} pipeline stage)' if memory.stage else ''}: "
        f"{memory.total / GB:.1f} GB ({memory.low / GB:.1f}-{memory.high / GB:.1f}) "
        f"of {choice.usable_bytes / GB:.1f} GB",
    ]
    wide = max(10, min(40, columns - 50))
    scale = max(choice.usable_bytes, memory.total)
    for name, what in TERMS.items():
        value = getattr(memory, name)
        if value >= 0.005 * GB:
            found.append(
                f"  {name:<13} {value / GB:7.2f} GB  {bar(value, scale, wide, plain=plain)}  {what}"[:columns].rstrip()
            )
    found.append(f"  {'total':<13} {memory.total / GB:7.2f} GB  {bar(memory.total, scale, wide, plain=plain)}")
    found += [
        "",
        f"speed: {speed.tokens_per_second_per_gpu:.0f} tokens/s per GPU ({speed.low:.0f}-{speed.high:.0f}), "
        f"step {span_s(speed.step_s)}, MFU {100 * speed.mfu:.0f} %",
    ]
    for name, value, what in _parts(choice):
        if value >= 0.01 * speed.step_s:
            share = f"{100 * value / speed.step_s:3.0f} %"
            found.append(
                f"  {name:<13} {share}       {bar(value, speed.step_s, wide, plain=plain)}  {what}"[:columns].rstrip()
            )
    if goal is not None:
        found += ["", *target_lines(goal)]
    if choice.reasons:
        found += ["", "why:", *(f"  {reason}" for reason in choice.reasons)]
    if plan.runners_up:
        found += ["", f"compared ({plan.searched} layouts):", *_table(plan)]
    if plan.changes:
        found += ["", "to make it fit, cheapest first:"]
        for change in plan.changes:
            cost = (
                ""
                if not change.slower
                else f", {100 * abs(change.slower):.0f} % {'slower' if change.slower > 0 else 'faster'}"
            )
            mark = "fits" if change.fits else "not yet"
            found.append(
                f"  {change.total_bytes / GB:7.1f} GB  {mark:<8} {change.what}{cost}  ({' '.join(change.flags)})"
            )
    if saves is not None:
        found += ["", *checkpoint_lines(saves)]
    if plan.warnings:
        found += ["", *(f"careful: {text}" for text in plan.warnings)]
    return found


def layout_words(choice: Choice) -> str:
    """Return the layout in one line."""
    layout = choice.layout
    degrees = " x ".join(
        f"{name} {value}" for name in ("dp", "tp", "pp", "cp", "ep") if (value := getattr(layout, name)) > 1
    )
    parts = [layout.strategy, degrees, f"micro-batch {layout.micro_batch} x {layout.accumulation} steps"]
    parts += [f"global batch {choice.global_batch}", f"{choice.seq_len} tokens", choice.precision, choice.optimizer]
    parts += [f"recompute {layout.recompute}", f"offload {layout.offload}" if layout.offload != "none" else ""]
    if choice.method != "full":
        parts.append(f"{choice.method} rank {choice.lora_rank}")
    return ", ".join(part for part in parts if part)


def checkpoint_lines(saves: CheckpointPlan) -> list[str]:
    """Return the checkpoint plan as lines."""
    known = "assumed" if saves.mtbf_assumed else "given"
    return [
        f"checkpoints: {saves.format}, {size(saves.bytes)} in {saves.files} files, "
        f"about {span_s(saves.save_s)} to write",
        f"  every {span(saves.interval_s)} ({saves.interval_steps} steps), for one interruption per "
        f"{span(saves.mtbf_s)} and node ({known}): {100 * saves.waste:.1f} % of the time is lost",
        f"  keep {saves.keep_latest} newest and {saves.keep_best} best: {size(saves.disk_bytes)}, "
        f"{saves.inodes} inodes",
        *(f"  resume: {text}" for text in saves.resume),
    ]


def target_lines(goal: Target) -> list[str]:
    """Return time and money as lines."""
    lost = f", {100 * goal.waste:.1f} % lost to saving and interruptions" if goal.waste else ""
    found = [
        f"{_billions(goal.tokens)} tokens: {hours(goal.hours)} "
        f"({hours(goal.hours_low)} to {hours(goal.hours_high)}){lost}"
    ]
    if goal.cost is not None and goal.cost_low is not None and goal.cost_high is not None:
        found.append(f"  {goal.cost:.0f} {goal.currency} ({goal.cost_low:.0f} to {goal.cost_high:.0f})")
    return found


def hours(value: float) -> str:
    """Return hours as a span."""
    return span(value * 3600)


def span_s(seconds: float) -> str:
    """Return a short span with parts of a second."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else span(seconds)


def _parts(choice: Choice) -> list[tuple[str, float, str]]:
    speed = choice.speed
    parts = [
        ("matrices", speed.matrices_s, "matrix products"),
        ("attention", speed.attention_s, "attention core"),
        ("elementwise", speed.elementwise_s, "norms, activations, loss: memory bandwidth"),
        ("launch", speed.launch_s, "waiting for kernel launches"),
        ("tensor", speed.tensor_s, "tensor and context parallel traffic"),
        ("sharding", speed.sharding_s, "gathers and gradient sums that compute does not hide"),
        ("bubble", speed.bubble_s, "pipeline idle"),
        ("optimizer", speed.optimizer_s, "optimizer step"),
    ]
    rest = speed.step_s - sum(value for _, value, _ in parts)
    return [*parts, ("other", max(0.0, rest), "input, host, stragglers")]


def _table(plan: Plan) -> list[str]:
    rows = [("", plan.choice, "taken")] + [("", other.choice, other.why) for other in plan.runners_up[:8]]
    found = [f"  {'strategy':<13}{'dp x tp x pp x cp':<19}{'batch':<9}{'recompute':<11}{'GB':>7}{'tok/s':>9}  "]
    for _, choice, why in rows:
        layout = choice.layout
        degrees = f"{layout.dp} x {layout.tp} x {layout.pp} x {layout.cp}"
        batch = f"{layout.micro_batch} x {layout.accumulation}"
        found.append(
            f"  {layout.strategy:<13}{degrees:<19}{batch:<9}{layout.recompute:<11}{choice.memory.total / GB:7.1f}"
            f"{choice.speed.tokens_per_second_per_gpu:9.0f}  {why}"
        )
    return found


def any_lines(found: Sequence[tuple[Choice, Target | None, str]], columns: int) -> list[str]:
    """Return the table of ``--gpu any``: one row per kind and count, best first."""
    rows = [f"  {'GPUs':<28}{'strategy':<14}{'GB':>7}{'of':>7}{'tok/s':>10}{'hours':>10}{'cost':>12}  "]
    for choice, goal, why in found:
        when = f"{goal.hours:10.1f}" if goal is not None else " " * 10
        money = f"{goal.cost:8.0f} {goal.currency}" if goal is not None and goal.cost is not None else " " * 12
        rows.append(
            f"  {f'{choice.world} x {choice.gpu.name}':<27.27} {choice.layout.strategy:<14}"
            f"{choice.memory.total / GB:7.1f}{choice.usable_bytes / GB:7.1f}"
            f"{choice.speed.tokens_per_second_per_gpu * choice.world:10.0f}{when}{money}  {why}"
        )
    return [row[:columns].rstrip() for row in rows]


def any_data(found: Sequence[tuple[Choice, Target | None, str]]) -> dict[str, Any]:
    """Return the answer of ``--gpu any``."""
    return {
        "schema": "outlive/plan-any/1",
        "candidates": [
            {
                **_choice(choice),
                "gpu": choice.gpu.key,
                "nodes": choice.nodes,
                "gpus_per_node": choice.gpus_per_node,
                "target": target_data(goal) if goal is not None else None,
                "why": why,
            }
            for choice, goal, why in found
        ],
    }


def _billions(number: float) -> str:
    for unit, step in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= step:
            return f"{number / step:.3g}{unit}"
    return f"{number:.0f}"


def _r(value: float) -> float:
    return round(value / GB, 4)


def _f(value: float) -> float:
    return float(f"{value:.6g}")
