"""The order of a training step: zero_grad, backward, unscale, clip, step, schedule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import (
    Function,
    Source,
    apart,
    autocast,
    base,
    calls_in,
    constant,
    dotted,
    keyword,
    last_word,
    no_grad,
    tail,
    words_of,
)

CLEARS = {"zero_grad", "optimizer_zero_grad", "zero_grad_buffer", "clear_gradients"}
CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients")


def _engine(source: Source) -> bool:
    return "deepspeed" in source.words or "engine" in source.words


def _step_loops(source: Source) -> list[ast.For | ast.AsyncFor | ast.While]:
    """Return the innermost loops that hold a backward."""
    loops = (source.loop_of(call) for call in source.backwards)
    return list(dict.fromkeys(loop for loop in loops if loop is not None))


def missing_step(source: Source) -> Iterator[Hit]:
    if _engine(source):
        return
    for loop in _step_loops(source):
        scope = source.scope(loop)
        cleared = [
            call for call in calls_in(loop, "zero_grad")
            if source.is_optimizer(last_word(base(call.func)))
        ]  # fmt: skip
        words = source.reached_words(scope)
        if not cleared or words & {"step", "optimizer_step", "backward_and_step", "minimize"}:
            continue
        optimizer = last_word(base(cleared[0].func))
        handed = any(
            optimizer in words_of(arg)
            for call in calls_in(scope)
            for arg in [*call.args, *(k.value for k in call.keywords)]
        )
        if not handed:
            yield Hit(loop, {"name": optimizer})


def zero_after_backward(source: Source) -> Iterator[Hit]:
    if not source.backwards or "zero_grad" not in source.calls_by_tail:
        return
    for block in blocks(source):
        seen = ""
        place: ast.AST | None = None
        for stmt in block:
            call = _bare_call(stmt)
            if call is None:
                if {"backward", "step"} & words_of(stmt):
                    seen = ""
                continue
            name = tail(call.func)
            if name == "backward":
                seen, place = "backward", None
            elif name == "zero_grad" and seen == "backward":
                seen, place = "zero", call
            elif name == "step" and source.steps_optimizer(call):
                if seen == "zero" and place is not None:
                    yield Hit(place)
                seen = ""


def missing_zero_grad(source: Source) -> Iterator[Hit]:
    if _engine(source) or "dist_autograd" in source.words:  # there gradients live in a context of their own
        return
    for loop in _step_loops(source):
        outer = source.loops_of(loop)[-1:] or [loop]
        scope = source.scope(loop)
        steps = [call for call in calls_in(loop, "step") if source.steps_optimizer(call)]
        if not steps or any(source.loop_of(one) is None for one in steps):
            continue
        words = source.reached_words(scope) | (source.reached_words(outer[0]))
        if words & CLEARS or _sets_grad_none(scope) or _one_pass(loop):
            continue
        if any(re.search(r"zero_?grad|clear_?grad", word) for word in words):
            continue
        yield Hit(steps[0], {"name": last_word(base(steps[0].func))})


def _sets_grad_none(scope: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(scope)
    )


def _one_pass(loop: ast.AST) -> bool:
    return (
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and constant(next(iter(loop.iter.args), None)) == 1
    )


def sched_before_opt(source: Source) -> Iterator[Hit]:
    if len(source.calls_by_tail.get("step", [])) < 2 or not source.optimizer_steps:
        return
    for block in blocks(source):
        early: ast.Call | None = None
        stepped = False
        for stmt in block:
            call = _bare_call(stmt)
            if call is None or tail(call.func) != "step":
                if "step" in words_of(stmt):
                    stepped = True  # inside a condition or a loop: the order cannot be read off
                continue
            if source.steps_optimizer(call):
                if early is not None and not stepped:
                    yield Hit(early, {"name": last_word(base(early.func))})
                stepped = True
            elif source.is_scheduler(last_word(base(call.func))) and not stepped:
                early = call


def accum_no_divide(source: Source) -> Iterator[Hit]:
    if "accumulate" in source.words or _engine(source):
        return
    for node in source.nodes:
        if not isinstance(node, ast.If) or not any(
            isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(node.test)
        ):
            continue  # fmt: skip
        steps = [call for stmt in node.body for call in calls_in(stmt, "step") if source.steps_optimizer(call)]
        if not steps or any(calls_in(stmt, "backward") for stmt in node.body):
            continue
        around: ast.AST = source.loop_of(node) or source.scope(node)
        backwards = [call for call in calls_in(around, "backward") if call.lineno < node.lineno]
        if not backwards or (isinstance(around, Function) and not source.repeated(node)):
            continue
        if not any(_divides(one) for one in ast.walk(around)):
            yield Hit(backwards[-1])


def _divides(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div | ast.Mult):
        words = words_of(node)
        return any(re.search(r"loss|accum|scale|weight|^l$|grad", word, re.I) for word in words)
    return isinstance(node, ast.Call) and tail(node.func) in ("div", "div_", "mul", "mul_")


def backward_on_item(source: Source) -> Iterator[Hit]:
    for call in source.backwards:
        who = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(who, ast.Name):
            continue
        if _detached(source, who.id, source.scope(call), set()):
            yield Hit(call, {"name": who.id})


def _detached(source: Source, name: str, scope: ast.AST, seen: set[str]) -> bool:
    """Return whether every value that ``name`` gets here was cut from the graph."""
    if name in seen:
        return True
    values = [value for _, value in source.assigned.get((scope, name), [])]
    values += [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.AugAssign) and dotted(node.target) == name and source.scope(node) is scope
    ]
    others = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    if not values or len(others) != len(values):
        return False
    if isinstance(scope, Function) and any(arg.arg == name for arg in scope.args.args + scope.args.kwonlyargs):
        return False
    verdicts = [_cut(source, value, scope, seen | {name}) for value in values]
    return all(verdicts) and any(not isinstance(value, ast.Constant) for value in values)


def _cut(source: Source, value: ast.expr, scope: ast.AST, seen: set[str]) -> bool:
    if isinstance(value, ast.Call):
        return (tail(value.func) in ("item", "detach") and isinstance(value.func, ast.Attribute)) or (
            isinstance(value.func, ast.Name) and value.func.id == "float"
        )
    if isinstance(value, ast.BinOp):
        return _cut(source, value.left, scope, seen) and _cut(source, value.right, scope, seen)
    if isinstance(value, ast.Name):
        return value.id in seen or _detached(source, value.id, scope, seen)
    return isinstance(value, ast.Constant)


def train_under_no_grad(source: Source) -> Iterator[Hit]:
    for call in source.backwards:
        if source.inside_with(call, no_grad) and not source.inside_with(call, _enables):
            yield Hit(call)


def _enables(node: ast.expr) -> bool:
    name = tail(node.func) if isinstance(node, ast.Call) else ""
    first = next(iter(node.args), None) if isinstance(node, ast.Call) else None
    return name == "enable_grad" or (name == "set_grad_enabled" and constant(first) is not False)


def clip_no_unscale(source: Source) -> Iterator[Hit]:
    for clip in [call for name in CLIPS for call in source.calls_by_tail.get(name, [])]:
        scope = source.scope(clip)
        if base(clip.func) in ("accelerator", "self.accelerator", "fabric", "self.fabric"):
            continue
        scales = [call for call in calls_in(scope, "scale") if "scaler" in base(call.func).lower()]
        scales += [
            call for call in calls_in(scope, "scale") if base(call.func) in source.made_by(re.compile("^GradScaler$"))
        ]
        scales = [call for call in scales if not apart(source, call, clip)]
        if not any(_called_on(source, call, "backward") for call in scales):
            continue
        if not {"unscale_", "unscale_gradients", "unscale"} & source.reached_words(scope, 2):
            yield Hit(clip)


def _called_on(source: Source, call: ast.Call, name: str) -> bool:
    above = source.parents.get(call)
    return isinstance(above, ast.Attribute) and above.attr == name


def backward_in_autocast(source: Source) -> Iterator[Hit]:
    for call in source.backwards:
        if source.inside_with(call, autocast):
            yield Hit(call)


def no_clip(source: Source) -> Iterator[Hit]:
    if any("clip" in word.lower() for word in source.family_words | source.family_strings):
        return
    if not source.fragment:
        signs = r"[Aa]ttention|^Transformer(Encoder|Decoder)?(Layer)?$|gpt|GPT|[Ll]lama|[Bb]ert|CausalLM"
        if source.handed_over or not any(re.search(signs, word) for word in source.family_words):
            return
    for call in source.optimizer_steps:
        scope = source.scope(call)
        inside = source.fragment or source.loop_of(call) is not None
        if inside and any(one.lineno < call.lineno for one in calls_in(scope, "backward")):
            yield Hit(call)
            return


def engine_bare_backward(source: Source) -> Iterator[Hit]:
    starts = [call for call in source.calls_by_tail.get("initialize", []) if base(call.func) == "deepspeed"]
    if not starts:
        return
    engines = {
        last_word(name) for target, value in source.assignments if value in starts for name in _tuple_names(target)
    }
    for call in source.backwards:
        who = base(call.func)
        if not call.args and "loss" in who.lower() and last_word(who) not in engines:
            yield Hit(call)


def _tuple_names(target: ast.expr) -> list[str]:
    return [dotted(one) for one in target.elts] if isinstance(target, ast.Tuple) else [dotted(target)]


def blocks(source: Source) -> Iterator[list[ast.stmt]]:
    """Yield every list of statements that run one after the other."""
    for node in source.nodes:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and len(block) > 1:
                yield block


def _bare_call(stmt: ast.stmt) -> ast.Call | None:
    value = stmt.value if isinstance(stmt, ast.Expr | ast.Assign) else None
    return value if isinstance(value, ast.Call) else None


def anomaly_left_on(source: Source) -> Iterator[Hit]:
    for name in ("set_detect_anomaly", "detect_anomaly"):
        for call in source.calls_by_tail.get(name, []):
            first = next(iter(call.args), keyword(call, "mode"))
            on = constant(first) is True or (first is None and name == "detect_anomaly")
            if on and not any(True for _ in source.conditions(call)):
                yield Hit(call)
