"""Which layout to take: enumerate what is possible, cost it, decide by the rules, say why.

The rules, plainest first: what fits with its optimizer runs as DDP; where only the states are too large, optimizer and
gradients are sharded; where the weights are too large, everything is; beyond 70 B parameters matrices are split inside
the node as well. A layout of a later rule is taken over an earlier one only if it is clearly faster.
"""

from __future__ import annotations

from collections.abc import Iterable

from outlive.plan.answer import Change, Choice, Plan, RunnerUp
from outlive.plan.layouts import Layout, divisors, possible
from outlive.plan.memory import Memory, memory
from outlive.plan.request import Request
from outlive.plan.speed import Speed, speed

TIER = {"single": 0, "ddp": 0, "fsdp_grad_op": 1, "zero2": 1, "zero1": 1, "fsdp_full": 2, "hsdp": 2, "zero3": 2}
"""The rule that a strategy belongs to; everything with tensor or pipeline parallelism is the last one."""
LAST = 3
CLEARLY_FASTER = 1.25
LARGE = 70e9
RULE = {
    0: "weights, gradients and optimizer fit on one GPU: plain copies need the least traffic",
    1: "the states do not fit on one GPU, the weights do: optimizer and gradients are sharded",
    2: "the weights do not fit beside their states on one GPU: everything is sharded",
    3: "beyond 70 B parameters, or where sharding alone does not fit: matrices are split inside the node",
}
RECOMPUTES = ("none", "selective", "full")


def plan(request: Request) -> Plan:
    """Return the plan for a request: the given layout costed, or the best that can be found."""
    if request.layout is not None:
        choice = costed(request, request.layout)
        changes = () if choice.fits else tuple(ladder(request, request.layout))
        return Plan(choice, False, (), changes, 1, (*request.warnings, *_cautions(request, choice)))
    layouts = list(_layouts(request))
    best, rest = _pick(request, layouts)
    warnings = list(request.warnings)
    searched = len(layouts)
    if best is None:
        for smaller in _smaller(request):
            fewer = list(_layouts(smaller))
            searched += len(fewer)
            best, rest = _pick(smaller, fewer)
            if best is not None:
                idle = request.world - best.world
                warnings.append(f"no layout of all {request.world} GPUs fits or divides: {idle} stay idle")
                break
    if best is not None:
        return Plan(best, True, rest, (), searched, (*warnings, *_cautions(request, best)))
    offloaded = _offloaded(request)
    nearest_fit = offloaded or _least(request, layouts)
    changes = tuple(ladder(request, nearest_fit.layout))
    return Plan(nearest_fit._replace(fits=False), True, (), changes, searched, tuple(warnings))


def costed(request: Request, layout: Layout, reasons: Iterable[str] = ()) -> Choice:
    """Return a layout with its memory and speed."""
    held = memory(request, layout)
    return _choice(request, layout, held, speed(request, layout), reasons)


def _choice(request: Request, layout: Layout, held: Memory, fast: Speed, reasons: Iterable[str]) -> Choice:
    per_node = min(request.gpus_per_node, layout.world)
    return Choice(
        layout=layout,
        model=request.model,
        gpu=request.gpu,
        nodes=max(1, layout.world // per_node),
        gpus_per_node=per_node,
        precision=request.precision,
        optimizer=request.optimizer,
        method=request.method,
        lora_rank=None if request.method == "full" else request.lora_rank,
        base_quantization=request.base_quantization,
        seq_len=request.seq_len,
        global_batch=layout.global_batch,
        attention=request.attention,
        loss=request.loss,
        compile=request.compile,
        fits=held.total <= request.usable_bytes,
        usable_bytes=request.usable_bytes,
        memory=held,
        speed=fast,
        reasons=tuple(reasons),
        warnings=request.warnings,
    )


def _layouts(request: Request, offload: str = "none") -> Iterable[Layout]:
    return possible(
        request.model,
        world=request.world,
        gpus_per_node=request.gpus_per_node,
        seq_len=request.seq_len,
        global_batch=request.global_batch,
        micro_batch=request.micro_batch,
        recomputes=(request.recompute,) if request.recompute else RECOMPUTES,
        offload=request.offload if offload == "none" else offload,
    )


def _tier(layout: Layout) -> int:
    return TIER.get(layout.strategy, LAST)


def _pick(request: Request, layouts: list[Layout]) -> tuple[Choice | None, tuple[RunnerUp, ...]]:
    """Return the choice among the layouts that fit, and the best of each other strategy with why it lost."""
    found: dict[str, tuple[float, Layout, Memory, Speed]] = {}
    least: dict[str, tuple[float, Layout]] = {}
    for layout in layouts:
        held = memory(request, layout)
        if held.total > request.usable_bytes:
            seen = least.get(layout.strategy)
            if seen is None or held.total < seen[0]:
                least[layout.strategy] = (held.total, layout)
            continue
        fast = speed(request, layout)
        rate = fast.tokens_per_second_per_gpu
        # of equally fast layouts the smaller one: less recompute, less memory at risk
        if layout.strategy not in found or rate > 1.01 * found[layout.strategy][0]:
            found[layout.strategy] = (rate, layout, held, fast)
    if not found:
        return None, ()
    large = request.model.params > LARGE
    ranked = sorted(found.values(), key=lambda item: (_tier(item[1]), -item[0]))
    if large and any(_tier(item[1]) == LAST for item in ranked):
        ranked.sort(key=lambda item: (_tier(item[1]) != LAST, -item[0]))
    taken = ranked[0]
    why_taken = RULE[_tier(taken[1])]
    if not (large and _tier(taken[1]) == LAST):
        for other in ranked[1:]:
            if other[0] > CLEARLY_FASTER * taken[0]:
                ratio = other[0] / taken[0]
                why_taken = f"{other[1].strategy} is {ratio:.2f} x as fast as {taken[1].strategy}, which fits as well"
                taken = other
    choice = _choice(request, taken[1], taken[2], taken[3], _reasons(request, taken[1], taken[2], why_taken))
    rest = []
    for other in sorted(ranked, key=lambda item: -item[0]):
        if other is taken:
            continue
        share = other[0] / taken[0]
        if share >= 0.995:
            why = "as fast, and more to go wrong" if _tier(other[1]) >= _tier(taken[1]) else "no faster here"
            if share > 1.005:
                why = f"{100 * (share - 1):.0f} % faster by prediction, less than the prediction can tell apart"
        else:
            why = f"{100 * (1 - share):.0f} % slower"
        rest.append(RunnerUp(_choice(request, other[1], other[2], other[3], ()), why))
    for strategy, (total, layout) in least.items():
        if strategy not in found:
            held, fast = memory(request, layout), speed(request, layout)
            over = (total - request.usable_bytes) / 1e9
            rest.append(RunnerUp(_choice(request, layout, held, fast, ()), f"does not fit: {over:.1f} GB too much"))
    return choice, tuple(rest)


def _reasons(request: Request, layout: Layout, held: Memory, rule: str) -> list[str]:
    whole = layout._replace(
        strategy="ddp", zero_stage=0, shard_group=1, tp=1, pp=1, cp=1, dp=max(1, layout.world), ep=1
    )
    alone = memory(request, whole._replace(strategy="single"))
    states = (alone.weights + alone.gradients + alone.optimizer) / 1e9
    return [
        f"weights {alone.weights / 1e9:.1f} GB, gradients {alone.gradients / 1e9:.1f} GB, optimizer "
        f"{alone.optimizer / 1e9:.1f} GB: {states:.1f} GB unsharded, {request.usable_bytes / 1e9:.1f} GB on a GPU",
        rule,
        f"{held.total / 1e9:.1f} GB used, {(request.usable_bytes - held.total) / 1e9:.1f} GB free on the worst device",
    ]


def _smaller(request: Request) -> Iterable[Request]:
    """Yield the same request on fewer of its GPUs, largest first: whole nodes, then parts of one."""
    for nodes in reversed(divisors(request.nodes)[:-1]):
        yield request._replace(nodes=nodes)
    for count in reversed(divisors(request.gpus_per_node)):
        if count < request.gpus_per_node:
            yield request._replace(nodes=1, gpus_per_node=count)


def _offloaded(request: Request) -> Choice | None:
    """Return the fastest plan that keeps states on the host, named as such; None where none fits either."""
    if request.offload != "none" or request.method != "full":
        return None
    moved = request._replace(offload="params+optimizer")
    kinds = ("single", "zero2", "fsdp_full")
    layouts = [layout for layout in _layouts(moved, "params+optimizer") if layout.strategy in kinds]
    best, _ = _pick(moved, layouts)
    if best is None:
        return None
    names = {"single": "single_offload", "zero2": "zero2_offload", "fsdp_full": "zero3_offload"}
    gb = best.memory.total / 1e9
    reasons = (
        "no layout fits with its states on the GPU",
        f"weights and optimizer in host memory leave {gb:.1f} GB of {request.usable_bytes / 1e9:.1f} GB in use",
    )
    return best._replace(layout=best.layout._replace(strategy=names[best.layout.strategy]), reasons=reasons)


def _least(request: Request, layouts: list[Layout]) -> Choice:
    """Return the layout that comes nearest to fitting."""
    if not layouts:
        layouts = [_plainest(request)]
    best = min(layouts, key=lambda layout: memory(request, layout).total)
    return costed(request, best, ["nothing fits; this comes nearest"])


def _plainest(request: Request) -> Layout:
    shard = request.world
    if shard == 1:
        return Layout(micro_batch=request.micro_batch or 1, recompute=request.recompute or "full")
    return Layout(
        strategy="fsdp_full",
        dp=shard,
        zero_stage=3,
        shard_group=shard,
        micro_batch=request.micro_batch or 1,
        recompute=request.recompute or "full",
    )


def ladder(request: Request, layout: Layout) -> Iterable[Change]:
    """Yield what would make it fit, cheapest first: micro-batch, recompute, sharding, offload, LoRA, more GPUs.

    Each rung keeps the ones before it, and the global batch. The first that fits ends the ladder.
    """
    now, asked = layout, request
    if now.strategy.endswith("_offload"):
        now = now._replace(
            strategy={"single_offload": "single", "zero2_offload": "zero2"}.get(now.strategy, "fsdp_full")
        )
        now = now._replace(offload="none")

    base = speed(request, now).tokens_per_second_per_gpu

    def rung(what: str, flags: tuple[str, ...]) -> Change:
        held = memory(asked, now)
        slower = 1 - speed(asked, now).tokens_per_second_per_gpu / base if base else None
        return Change(what, flags, held.total, held.total <= asked.usable_bytes, slower)

    if now.micro_batch > 1:
        steps = now.micro_batch * now.accumulation
        now = now._replace(micro_batch=1, accumulation=steps)
        change = rung(f"micro-batch 1 with {steps} micro-steps, same global batch", ("--micro-batch", "1"))
        yield change
        if change.fits:
            return
    if now.recompute != "full":
        now = now._replace(recompute="full")
        change = rung("recompute every block in the backward pass", ("--activation-checkpointing", "full"))
        yield change
        if change.fits:
            return
    world = now.dp * now.cp
    if now.zero_stage < 3 and world > 1 and now.pp == 1:
        now = now._replace(strategy="fsdp_tp" if now.tp > 1 else "fsdp_full", zero_stage=3, shard_group=world)
        change = rung("shard weights, gradients and optimizer over all GPUs", ("--strategy", now.strategy))
        yield change
        if change.fits:
            return
    if request.method == "full" and now.offload == "none" and now.pp == 1:
        kept = now
        now = now._replace(offload="params+optimizer")
        asked = asked._replace(offload="params+optimizer")
        change = rung("keep weights and optimizer in host memory", ("--offload", "params+optimizer"))
        yield change
        if change.fits:
            return
        now, asked = kept, asked._replace(offload="none")
    if request.method == "full":
        asked = asked._replace(method="lora", lora_rank=16, lora_targets="", precision="bf16-pure")
        change = rung(
            "train adapters (LoRA, rank 16) instead of all weights", ("--method", "lora", "--precision", "bf16-pure")
        )
        yield change
        if change.fits:
            return
    if asked.method != "qlora" and asked.base_quantization is None:
        asked = asked._replace(method="qlora", base_quantization="nf4", precision="bf16-pure")
        change = rung("adapters on 4-bit weights (QLoRA)", ("--method", "qlora", "--precision", "bf16-pure"))
        yield change


def _cautions(request: Request, choice: Choice) -> list[str]:
    """Return what a person should know before renting."""
    found = []
    gpu, layout = request.gpu, choice.layout
    if layout.tp > 1 and (gpu.nvlink_gb_s == 0 or (gpu.bridge and layout.tp > 2)):
        cost = 100 * choice.speed.tensor_s / choice.speed.step_s
        found.append(f"tp {layout.tp} goes over PCIe on {gpu.name}: about {cost:.0f} % of each step waits for it")
    elif layout.tp > 1 and gpu.bridge:
        found.append(f"tp {layout.tp} needs the NVLink bridge between the two {gpu.name}; without it PCIe carries it")
    if choice.fits and choice.memory.high > choice.usable_bytes:
        over = (choice.memory.high - choice.usable_bytes) / 1e9
        found.append(f"it fits by prediction, but the upper end of the estimate is {over:.1f} GB over: keep headroom")
    if choice.precision == "fp16-mixed" and gpu.bf16:
        found.append("this GPU has bf16: it needs no loss scaler and does not overflow")
    if not request.gpu.compute_capability:
        found.append(f"{gpu.name} is not a CUDA device: memory is arithmetic, speed is a guess")
    return found
