"""Validation inside training: modes, gradients, memory, and what is evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import (
    Function,
    Source,
    base,
    calls_in,
    constant,
    is_ema,
    is_model,
    last_word,
    no_grad,
    tail,
    words_of,
)

JUDGES = re.compile(
    r"^_?(run_)?(val|valid|validate|validation|evaluate|eval|test|validate_epoch|eval_epoch|eval_model|test_epoch"
    r"|estimate_loss|evaluate_model|test_model|validate_model)(_one_epoch|_epoch|_loop)?$"
)


def eval_never_back(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("eval", []):
        who = base(call.func)
        if not is_model(last_word(who)) or call.args:
            continue
        for one, loop in _rounds(source, call):
            words = one.reached_words(loop)
            back = any(_switches_on(again) for again in calls_in(loop, "train"))
            if back or _trained_in_callee(one, loop) or "set_training" in words:
                continue
            if source.fragment or "backward" in words:
                yield Hit(call, {"name": who})
                break


def _switches_on(call: ast.Call) -> bool:
    off = bool(call.args) and constant(call.args[0]) is False
    return not off and is_model(last_word(base(call.func)))


def _rounds(source: Source, call: ast.Call) -> Iterator[tuple[Source, ast.AST]]:
    """Yield the outermost loop around a place, or around each call of the function that holds it."""
    loops = source.loops_of(call)
    if loops:
        yield source, loops[-1]
        return
    scope = source.scope(call)
    if isinstance(scope, Function) and not calls_in(scope, "train"):
        for one, place in source.called_from(scope):
            around = one.loops_of(place)
            if around:
                yield one, around[-1]


def _trained_in_callee(source: Source, loop: ast.AST) -> bool:
    """Return whether a function of the family that the loop calls has ``.train()`` on a model."""
    todo = [(word, 0) for word in words_of(loop)]
    seen: set[str] = set()
    while todo:
        word, depth = todo.pop()
        if word in seen or word not in source.reach:
            continue
        seen.add(word)
        for _, function in source.reach[word]:
            if any(is_model(last_word(base(call.func))) for call in calls_in(function, "train")):
                return True
            if depth < 3:
                todo += [(one, depth + 1) for one in words_of(function)]
    return False


def _judges(source: Source) -> list[Function]:
    """Return the functions that evaluate a model: named so, and calling one that they were given or that is global."""
    found = []
    for function in source.functions:
        if not JUDGES.match(function.name) or calls_in(function, "backward"):
            continue
        if any(_calls_model(call) for call in calls_in(function)):
            found.append(function)
    return found


def _calls_model(call: ast.Call) -> bool:
    name = last_word(base(call.func)) if tail(call.func) in ("forward", "module") else tail(call.func)
    return is_model(name) and not isinstance(call.func, ast.Call)


def no_eval_call(source: Source) -> Iterator[Hit]:
    if source.calls_by_tail.get("eval") or "eval" in source.family_words or source.handed_over:
        return
    switched = [call for call in source.calls_by_tail.get("train", []) if call.args]
    if switched:
        return
    for function in _judges(source):
        yield Hit(function, {"name": function.name})


def eval_without_no_grad(source: Source) -> Iterator[Hit]:
    for function in _judges(source):
        loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
        if not any(_calls_model(call) for loop in loops for call in calls_in(loop)):
            continue
        if _without_gradients(source, function):
            continue
        yield Hit(function, {"name": function.name})


def _without_gradients(source: Source, function: Function, depth: int = 2) -> bool:
    if any(no_grad(one) for one in function.decorator_list):
        return True
    if {"no_grad", "inference_mode", "set_grad_enabled", "requires_grad_"} & words_of(function):
        return True
    if any(one == "no_grad" or "no_grad" in one for one in map(tail, function.decorator_list)):
        return True
    calls = source.called_from(function)
    if not calls or not depth:
        return False
    return all(
        one.inside_with(call, no_grad)
        or (isinstance(scope := one.scope(call), Function) and _without_gradients(one, scope, depth - 1))
        for one, call in calls
    )


def gpu_outputs_appended(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("append", []):
        scope = source.scope(call)
        named = isinstance(scope, Function) and JUDGES.match(scope.name)
        if not (source.fragment and not source.functions) and not named:
            continue
        value = call.args[0] if len(call.args) == 1 else None
        if isinstance(value, ast.Call) and _calls_model(value):
            if not source.fragment and source.loop_of(call) is None:
                continue
            yield Hit(call)


def ema_unused_in_sampling(source: Source) -> Iterator[Hit]:
    known = {"copy_to", "store", "average_parameters", "ema_scope", "apply_shadow", "swap", "restore"}
    if known & source.family_words:
        return
    averaged = {
        ast.unparse(call.args[0])
        for name in ("step", "update", "update_parameters")
        for call in source.calls_by_tail.get(name, [])
        if len(call.args) == 1 and is_ema(last_word(base(call.func)))
    }
    for name in ("sample", "generate", "evaluate", "validate"):
        for call in source.calls_by_tail.get(name, []):
            if isinstance(call.func, ast.Name) and call.args and ast.unparse(call.args[0]) in averaged:
                with_ema = any(is_ema(word) for one in source.calls_by_tail.get(name, []) for word in words_of(one))
                if not with_ema:
                    yield Hit(call, {"name": ast.unparse(call.args[0])})
