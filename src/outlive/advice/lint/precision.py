"""Number formats: autocast, scalers, half models, what is left at the slow default."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import Source, base, constant, dotted, keyword, last_word, tail, words_of

HALF = {"float16", "half"}


def _autocasts(source: Source) -> list[tuple[ast.Call, str]]:
    """Return (call, its constant dtype or "")."""
    found = []
    for call in source.calls_by_tail.get("autocast", []):
        dtype = keyword(call, "dtype")
        name = last_word(dotted(dtype)) if isinstance(dtype, ast.Attribute) else ""
        found.append((call, "float16" if name in HALF else name))
    return found


def fp16_no_scaler(source: Source) -> Iterator[Hit]:
    if (
        any("scaler" in word.lower() for word in source.family_words)
        or source.handed_over
        or "deepspeed" in source.words
    ):
        return
    if not source.fragment and not source.backwards:
        return
    for call, dtype in _autocasts(source):
        if dtype == "float16" and not _only_evaluates(source, call):
            yield Hit(call)
            return


def _only_evaluates(source: Source, call: ast.Call) -> bool:
    return bool(re.search(r"eval|val|test|infer|sample|generate|predict", getattr(source.scope(call), "name", "")))


def bf16_scaler(source: Source) -> Iterator[Hit]:
    kinds = {dtype for _, dtype in _autocasts(source)}
    if kinds != {"bfloat16"}:
        return
    for call in source.calls_by_tail.get("GradScaler", []):
        if keyword(call, "enabled") is None:
            yield Hit(call)


def half_model(source: Source) -> Iterator[Hit]:
    if not source.fragment and not source.has_raw_loop:
        return
    for call in source.calls_by_tail.get("half", []):
        who = last_word(base(call.func))
        if who in ("model", "net", "network") and not call.args and not _only_evaluates(source, call):
            if not any(True for _ in source.conditions(call)):
                yield Hit(call)


def slow_fp32(source: Source) -> Iterator[Hit]:
    words, texts = source.family_words, source.family_strings
    faster = re.compile(
        r"autocast|bf16|bfloat16|fp16|float16|half|mixed_?precision|amp$|allow_tf32|matmul_precision|tf32", re.I
    )
    if source.fragment or any(faster.search(word) for word in words | texts):
        return
    if source.handed_over or not source.has_raw_loop or not ("cuda" in words or "cuda" in texts):
        return
    for call in source.backwards[:1]:
        yield Hit(call)


def silent_cpu(source: Source) -> Iterator[Hit]:
    for node in source.nodes:
        if isinstance(node, ast.IfExp) and constant(node.orelse) == "cpu" and "is_available" in words_of(node.test):
            if str(constant(node.body)).startswith("cuda") and "cuda" in words_of(node.test):
                yield Hit(node)
                return


def eager_attention(source: Source) -> Iterator[Hit]:
    for call in source.calls:
        value = keyword(call, "attn_implementation")
        if constant(value) == "eager":
            yield Hit(call)


def benchmark_with_deterministic(source: Source) -> Iterator[Hit]:
    on: dict[str, ast.AST] = {}
    for node in source.nodes:
        if isinstance(node, ast.Assign) and constant(node.value) is True:
            name = dotted(node.targets[0])
            if name.endswith(("cudnn.benchmark", "cudnn.deterministic")):
                on[tail(node.targets[0])] = node
    if len(on) == 2 and source.scope(on["benchmark"]) is source.scope(on["deterministic"]):
        apart = [list(source.conditions(node)) for node in on.values()]
        if not apart[0] and not apart[1]:
            yield Hit(on["benchmark"])
