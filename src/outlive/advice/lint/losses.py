"""What goes into a loss, and what is averaged over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import (
    Function,
    Source,
    autocast,
    base,
    calls_in,
    constant,
    dotted,
    is_model,
    keyword,
    last_word,
    tail,
    words_of,
)

SOFTMAX = {"softmax", "log_softmax", "Softmax", "LogSoftmax"}


def _criteria(source: Source, name: str) -> set[str]:
    """Return the names that hold a loss of that class, in the family."""
    fits = re.compile(f"^{name}$")
    return {word for one in source.family or [source] if name in one.words for word in one.made_by(fits)}


def _loss_calls(source: Source, function: str, cls: str) -> list[ast.Call]:
    """Return the calls that compute this loss: the function, or an object of the class."""
    found = list(source.calls_by_tail.get(function, []))
    for name in _criteria(source, cls):
        found += source.calls_by_tail.get(name, [])
    found += [call for call in source.calls if isinstance(call.func, ast.Call) and tail(call.func.func) == cls]
    return found


def _softmaxed(source: Source, value: ast.expr, call: ast.Call) -> str:
    """Return the softmax that ``value`` is the result of, "" for none."""
    if isinstance(value, ast.Call) and tail(value.func) in SOFTMAX:
        return tail(value.func)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Call) and tail(value.func.func) in SOFTMAX:
        return tail(value.func.func)
    if isinstance(value, ast.Name):
        scope = source.scope(call)
        given = [
            (target.lineno, one)
            for target, one in source.assignments
            if dotted(target) == value.id and source.scope(target) is scope and target.lineno < call.lineno
        ]
        if given and isinstance(given[-1][1], ast.Call):
            return _softmaxed(source, given[-1][1], call)
    return ""


def softmax_then_ce(source: Source) -> Iterator[Hit]:
    for call in _loss_calls(source, "cross_entropy", "CrossEntropyLoss"):
        first = call.args[0] if call.args else keyword(call, "input")
        name = _softmaxed(source, first, call) if first is not None else ""
        if name:
            # a second log_softmax changes nothing; a second softmax flattens the gradient
            yield Hit(call, {"name": name}, severity="info" if name.lower().startswith("log") else "")


def head_ends_in_softmax(source: Source) -> Iterator[Hit]:
    if not any("softmax" in word.lower() for word in source.words):
        return
    used = {"CrossEntropyLoss", "cross_entropy"} & source.family_words
    if not used and not source.fragment:
        return
    for call in source.calls_by_tail.get("Sequential", []):
        last = call.args[-1] if call.args else None
        if isinstance(last, ast.Call) and tail(last.func) in ("Softmax", "LogSoftmax"):
            yield Hit(last, {"name": tail(last.func)}, severity="info" if tail(last.func) == "LogSoftmax" else "")
    if source.fragment or not source.has_raw_loop:
        return
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and any("Module" in dotted(one) for one in node.bases):
            built = {tail(call.func) for call in source.calls}
            for found in _softmax_returns(node):
                if node.name in built and _is_the_model(source, node.name):
                    yield Hit(found, {"name": "softmax"})


def _softmax_returns(node: ast.ClassDef) -> list[ast.expr]:
    forward = next((one for one in node.body if isinstance(one, Function) and one.name == "forward"), None)
    returns = [one.value for one in ast.walk(forward) if isinstance(one, ast.Return) and one.value] if forward else []
    return [one for one in returns if isinstance(one, ast.Call) and tail(one.func) == "softmax"]


def _is_the_model(source: Source, name: str) -> bool:
    """Return whether a class's object is called ``model`` or ``net`` and its result given to the loss."""
    return any(
        isinstance(value, ast.Call) and name in words_of(value) and is_model(last_word(dotted(target)))
        for target, value in source.assignments
    )


def bceloss(source: Source) -> Iterator[Hit]:
    if not {"BCELoss", "binary_cross_entropy"} & source.calls_by_tail.keys():
        return
    if not source.fragment and "sigmoid" not in {word.lower() for word in source.family_words}:
        return
    fails = any(autocast(node) for node in source.nodes if isinstance(node, ast.Call))
    for call in source.calls_by_tail.get("BCELoss", []) + source.calls_by_tail.get("binary_cross_entropy", []):
        yield Hit(call, severity="warning" if fails else "")


def nll_raw(source: Source) -> Iterator[Hit]:
    if not {"nll_loss", "NLLLoss"} & source.words:
        return
    if any(re.search(r"log_?softmax|log_?prob|logsigmoid|^log$|logp", word, re.I) for word in source.family_words):
        return
    defined = any(isinstance(node, ast.ClassDef) for node in source.nodes)
    if not source.fragment and not (defined and source.has_raw_loop):
        return
    for call in _loss_calls(source, "nll_loss", "NLLLoss"):
        yield Hit(call)
        return


def ce_no_ignore_index(source: Source) -> Iterator[Hit]:
    words = source.family_words
    if not source.fragment:
        pads = any(re.search(r"^pad_(token|id|idx|sequence)|^padding_value$|^pad_token_id$", word) for word in words)
        masked = any(re.search(r"ignore_index|loss_mask|label_mask|masked_fill", word) for word in words)
        if not pads or masked or _minus_hundred(source):
            return
    for call in source.calls_by_tail.get("cross_entropy", []):
        if keyword(call, "ignore_index") is not None or has_reduction(call) or has_any_unpacked(call):
            continue
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Call) and tail(first.func) in ("view", "reshape", "flatten", "transpose"):
            yield Hit(call)


def has_reduction(call: ast.Call) -> bool:
    """Return whether the loss is returned one by one, to be weighted by hand."""
    return constant(keyword(call, "reduction")) in ("none", "sum")


def has_any_unpacked(call: ast.Call) -> bool:
    """Return whether keywords are handed through."""
    return any(word.arg is None for word in call.keywords)


def _minus_hundred(source: Source) -> bool:
    return any("-100" in one.text for one in source.family or [source])


def mask_numel(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("mean", []):
        value = call.func.value if isinstance(call.func, ast.Attribute) else None
        if call.args or call.keywords or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
            continue
        sides = [dotted(value.left), dotted(value.right)]
        masks = [side for side in sides if re.search(r"(^|_)(mask|masks)$", last_word(side))]
        rest = [last_word(side) for side in sides if side not in masks]
        if masks and rest and re.search(r"loss|nll|^l$|ce$|per_tok", rest[0]):
            yield Hit(call)


def accumulates_loss_tensor(source: Source) -> Iterator[Hit]:
    for node in source.nodes:
        if (
            not isinstance(node, ast.AugAssign)
            or not isinstance(node.op, ast.Add)
            or not isinstance(node.value, ast.Name)
        ):
            continue
        total, loss = last_word(dotted(node.target)), node.value.id
        named = bool(re.search(r"(total|running|epoch|sum|avg|accum)\w*loss|loss\w*(total|sum|meter)", total, re.I))
        if not _live_loss(source, loss, node) or (source.fragment and not (named and loss == "loss")):
            continue
        scope = source.scope(node)
        if any(last_word(base(call.func)) == total for call in calls_in(scope, "backward")):
            continue
        if not source.fragment and source.loop_of(node) is None:
            continue
        if _let_go(source, scope, total):
            continue
        yield Hit(node, {"name": total, "loss": loss})


def append_loss_tensor(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("append", []):
        if len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
            continue
        loss, box = call.args[0].id, base(call.func)
        if not _live_loss(source, loss, call) or (source.fragment and loss != "loss"):
            continue
        scope = source.scope(call)
        used = [one for one in calls_in(scope, "stack", "cat", "sum") if last_word(box) in words_of(one)]
        if used and not source.fragment:
            continue  # put together again: perhaps to go backward through all of them
        # in a method that a loop calls, only what is kept on the object outlives the step
        kept = source.loop_of(call) is not None or (box.startswith("self.") and source.repeated(call))
        if source.fragment or kept:
            yield Hit(call, {"name": box, "loss": loss})


def _live_loss(source: Source, loss: str, node: ast.AST) -> bool:
    """Return whether ``loss`` is differentiable here: this function goes backward from it, and it is not cut before."""
    if source.fragment:
        return "loss" in loss
    scope = source.scope(node)
    here = getattr(node, "lineno", 0)
    goes = any(
        loss in words_of(call.func) or any(loss in words_of(arg) for arg in call.args)
        for call in calls_in(scope, "backward")
    )
    cut = [
        value
        for target, value in source.assignments
        if dotted(target) == loss and source.scope(target) is scope and target.lineno < here
    ]
    last = cut[-1] if cut else None
    return goes and not (
        last is not None and any(tail(call.func) in ("item", "detach", "float", "clone") for call in calls_in(last))
    )


def _let_go(source: Source, scope: ast.AST, total: str) -> bool:
    return any(
        dotted(target).endswith(total) and "detach" in words_of(value)
        for target, value in source.assignments
        if source.scope(target) is scope
    )
