"""What an optimizer owns and how it is set."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import (
    OPTIMIZER_CLASS,
    Source,
    apart,
    base,
    constant,
    dotted,
    keyword,
    last_word,
    tail,
    words_of,
)


def _built(source: Source) -> list[tuple[ast.Call, str]]:
    """Return (call, model) of optimizers over all of ``model.parameters()``."""
    found = []
    for call in source.calls:
        if not OPTIMIZER_CLASS.match(tail(call.func)) or not call.args:
            continue
        first = call.args[0]
        if isinstance(first, ast.Call) and tail(first.func) == "parameters" and isinstance(first.func, ast.Attribute):
            found.append((call, base(first.func)))
    return found


def _later(source: Source, call: ast.Call, node: ast.AST) -> bool:
    """Return whether ``node`` runs after ``call``: same function, further down, not in another branch."""
    if source.scope(call) is not source.scope(node) or getattr(node, "lineno", 0) <= call.lineno:
        return False
    return not apart(source, call, node)


def optimizer_before_to(source: Source) -> Iterator[Hit]:
    for call, model in _built(source):
        for name in ("to", "cuda"):
            for move in source.calls_by_tail.get(name, []):
                if base(move.func) != model or not _later(source, call, move):
                    continue
                first = next(iter(move.args), None)
                if name == "to" and (first is None or constant(first) == "cpu" or "dtype" in words_of(move)):
                    continue
                statement = source.statement(move)
                whole = isinstance(statement, ast.Expr) or (
                    isinstance(statement, ast.Assign) and dotted(statement.targets[0]) == model
                )
                if whole and getattr(statement, "value", None) is move and source.loop_of(move) is source.loop_of(call):
                    yield Hit(move, {"name": model})
                    return


def submodule_after_optimizer(source: Source) -> Iterator[Hit]:
    built = _built(source)
    for node in source.nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        target = node.targets[0]
        module = re.match(r"^(nn|torch\.nn)\.[A-Z]\w+$", dotted(node.value.func))
        if not isinstance(target, ast.Attribute) or not module:
            continue
        for call, model in built:
            again = [one for one, other in built if other == model and one.lineno > node.lineno]
            if dotted(target.value) == model and _later(source, call, node) and not again:
                if "add_param_group" not in source.words:
                    yield Hit(node, {"name": dotted(target)})


def freeze_after_optimizer(source: Source) -> Iterator[Hit]:
    built = _built(source)
    for node in source.nodes:
        if not isinstance(node, ast.Assign) or constant(node.value) is not False:
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Attribute) or target.attr != "requires_grad":
            continue
        loop = source.loop_of(node)
        over = dotted(loop.iter) if isinstance(loop, ast.For) else dotted(target)
        for call, model in built:
            again = [one for one, other in built if other == model and one.lineno > node.lineno]
            if over.startswith(model + ".") and _later(source, call, node) and not again:
                yield Hit(node, {"name": model})
                break


def frozen_bn_train(source: Source) -> Iterator[Hit]:
    norms = re.compile(r"batchnorm|resnet|resnext|mobilenet|efficientnet|densenet|vgg\w*_bn|inception|regnet", re.I)
    if not source.fragment and not any(norms.search(word) for word in source.family_words | source.family_strings):
        return
    frozen: list[str] = []
    for node in source.nodes:
        if isinstance(node, ast.Assign) and constant(node.value) is False and tail(node.targets[0]) == "requires_grad":
            loop = source.loop_of(node)
            if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and tail(loop.iter.func) == "parameters":
                frozen.append(base(loop.iter.func))
    evals = {base(call.func) for call in source.calls_by_tail.get("eval", [])}
    for call in source.calls_by_tail.get("train", []):
        whole = base(call.func)
        if call.args and constant(call.args[0]) is False:
            continue
        for part in frozen:
            if part.startswith(whole + ".") and not any(one.startswith(whole + ".") for one in evals):
                yield Hit(call, {"name": part})
                return


def adam_weight_decay(source: Source) -> Iterator[Hit]:
    if any(name.partition(".")[0] in ("keras", "tensorflow", "optax") for name in source.modules):
        return
    for call in source.calls_by_tail.get("Adam", []):
        decay = keyword(call, "weight_decay")
        if decay is None or constant(decay) in (0, 0.0) or keyword(call, "decoupled_weight_decay") is not None:
            continue
        # a number in the code is chosen; a variable is often zero
        yield Hit(call, severity="" if isinstance(decay, ast.Constant) else "info")


def decay_on_norms(source: Source) -> Iterator[Hit]:
    norms = re.compile(r"^(LayerNorm|RMSNorm|GPT\w*|Transformer\w*|MultiheadAttention|\w*ForCausalLM)$")
    if source.fragment or not any(norms.match(word) for word in source.family_words):
        return
    for call, _ in _built(source):
        decay = keyword(call, "weight_decay")
        value = constant(decay)
        if tail(call.func) == "AdamW" and isinstance(value, float | int) and value >= 0.05:
            yield Hit(call, {"value": str(value)})


def pure_half_adam(source: Source) -> Iterator[Hit]:
    kind = ""
    for call in source.calls:
        who = last_word(base(call.func))
        if not re.match(r"^(model|net|m|self)$", who):
            continue
        words = words_of(ast.Tuple(elts=[*call.args, *(word.value for word in call.keywords)], ctx=ast.Load()))
        if tail(call.func) == "half" or (tail(call.func) == "to" and words & {"float16", "half"}):
            kind = "float16"
        elif tail(call.func) == "bfloat16" or (tail(call.func) == "to" and "bfloat16" in words):
            kind = kind or "bfloat16"
    if not kind:
        return
    for call in source.calls:
        if tail(call.func) in ("Adam", "AdamW") and keyword(call, "eps") is None and _parameters(call):
            if not any(word.arg is None for word in call.keywords):
                yield Hit(call, {"kind": kind}, severity="" if kind == "float16" else "info")


def _parameters(call: ast.Call) -> bool:
    return bool(call.args)


def get_lr(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("get_lr", []):
        within = getattr(source.scope(call), "name", "")  # a schedule made of another passes the question on
        if not call.args and within != "get_lr" and source.is_scheduler(last_word(base(call.func))):
            yield Hit(call)


def log_config_lr(source: Source) -> Iterator[Hit]:
    for node in source.nodes:
        if not isinstance(node, ast.Dict) or (not source.fragment and source.loop_of(node) is None):
            continue
        if not source.fragment and not any("sched" in word.lower() for word in source.family_words):
            continue  # a constant rate is the real one
        for key, value in zip(node.keys, node.values, strict=True):
            if constant(key) in ("lr", "learning_rate") and re.match(
                r"^(self\.)?(args|cfg|config)\.\w*(lr|learning_rate)$", dotted(value)
            ):
                yield Hit(value)  # fmt: skip
