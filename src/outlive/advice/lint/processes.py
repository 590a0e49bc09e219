"""Several processes: who does what, on which device, and who waits for whom."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import (
    Function,
    Source,
    asks_rank,
    base,
    calls_in,
    constant,
    dotted,
    has_unpacked,
    keyword,
    last_word,
    tail,
    words_of,
)

COLLECTIVES = {
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all", "all_to_all_single", "broadcast", "broadcast_object_list", "barrier", "monitored_barrier", "reduce",
    "gather_object", "scatter_object_list",
}  # fmt: skip
WRAPPERS = {"wait_for_everyone", "gather_for_metrics"}


def _collective(source: Source, call: ast.Call) -> bool:
    name, who = tail(call.func), base(call.func)
    if any(word.arg in ("group", "process_group") for word in call.keywords):
        return False  # of a group: others may have no part in it
    if name in WRAPPERS:
        return source.is_accelerator(who)
    if name not in COLLECTIVES:
        return False
    if who in ("dist", "torch.distributed", "distributed", "fabric", "self.fabric", "accelerator", "comm"):
        return True
    return not who and "torch.distributed" in source.imports.get(name, "")


def collective_under_rank(source: Source) -> Iterator[Hit]:
    for call in source.calls:
        if not _collective(source, call):
            continue
        scope = source.scope(call)
        for test, holds in source.conditions(call):
            if asks_rank(test) and not _answered(source, scope, call, test, holds):
                yield Hit(call, {"name": tail(call.func)})
                break
        else:
            leaves = _left_before(source, scope, call)
            if leaves is not None:
                yield Hit(call, {"name": tail(call.func)})


def _answered(source: Source, scope: ast.AST, call: ast.Call, test: ast.expr, holds: bool) -> bool:
    """Return whether the other processes make the same call elsewhere: in the other branch, or in its own ``if``."""
    name = tail(call.func)
    for node in source.above(call):
        if isinstance(node, ast.If) and node.test is test:
            other_branch = node.orelse if holds else node.body
            if any(name in source.reached_words(stmt, 2) for stmt in other_branch):
                return True
    for other in calls_in(scope, name):
        if other is call:
            continue
        for test_there, holds_there in source.conditions(other):
            if test_there is test and holds_there != holds:
                return True
            if (
                test_there is not test
                and asks_rank(test_there)
                and _opposite(test, test_there)
                and holds == holds_there
            ):
                return True
    return False


def _opposite(one: ast.expr, other: ast.expr) -> bool:
    """Return whether one condition singles out a process and the other the rest."""
    return _single(one) != _single(other)


def _single(test: ast.expr) -> bool:
    """Return whether a condition about ranks holds on one process (else: on all others)."""
    if isinstance(test, ast.UnaryOp):
        return not _single(test.operand)
    if isinstance(test, ast.BoolOp):
        asking = [value for value in test.values if asks_rank(value)]
        return _single(asking[0]) if asking else True
    if isinstance(test, ast.Compare):
        if isinstance(test.ops[0], ast.NotEq | ast.Gt | ast.NotIn):
            return False
        return not (isinstance(test.ops[0], ast.In) and -1 not in _numbers(test.comparators[0])) or True
    return True


def _numbers(node: ast.expr) -> list[object]:
    return [constant(one) for one in getattr(node, "elts", [])]


def _left_before(source: Source, scope: ast.AST, call: ast.Call) -> ast.If | None:
    """Return the ``if rank != 0: return`` that stands before ``call`` in its function."""
    if not isinstance(scope, Function):
        return None
    for stmt in scope.body:
        if stmt.lineno >= call.lineno:
            return None
        if isinstance(stmt, ast.If) and asks_rank(stmt.test) and not stmt.orelse:
            last = stmt.body[-1]
            if isinstance(last, ast.Return) and not any(_collective(source, one) for one in calls_in(stmt)):
                return stmt
    return None


def no_set_epoch(source: Source) -> Iterator[Hit]:
    if source.handed_over or "set_epoch" in source.family_words:
        return
    for call in source.calls_by_tail.get("DistributedSampler", []):
        if constant(keyword(call, "shuffle")) is False:
            continue
        names = [last_word(dotted(target)) for target in getattr(source.statement(call), "targets", [])]
        if any(re.search(r"val|test|eval", name) for name in names):
            continue
        if source.fragment or _epochs(source):
            yield Hit(call)


def _epochs(source: Source) -> bool:
    """Return whether some loop of the family goes over epochs."""
    return any(
        isinstance(loop, ast.For)
        and any("epoch" in word.lower() for word in words_of(loop.target) | words_of(loop.iter))
        for one in source.family or [source]
        for loop in one.loops
    )


def set_device_global_rank(source: Source) -> Iterator[Hit]:
    local = any(re.search(r"local_?rank", word, re.I) for word in source.words | source.strings)
    for call in source.calls_by_tail.get("set_device", []):
        first = call.args[0] if call.args else None
        if first is None:
            continue
        text = ast.unparse(first)
        asks = re.search(r"environ.*['\"]RANK['\"]|getenv\(['\"]RANK['\"]|get_rank\(\)", text)
        if "%" in text or "LOCAL" in text:
            continue
        if asks or (text == "rank" and (source.fragment or (not local and not _spawned(source)))):
            if asks or _from_world(source):
                yield Hit(call)


def _spawned(source: Source) -> bool:
    """Return whether processes are started by this program on this machine: then the rank is the local one."""
    return bool({"spawn", "Process", "start_processes", "MultiProcessTestCase"} & source.family_words)


def _from_world(source: Source) -> bool:
    return any(
        dotted(target) == "rank" and re.search(r"get_rank\(\)|['\"]RANK['\"]", ast.unparse(value))
        for target, value in source.assignments
    )


def ddp_with_plain_bn(source: Source) -> Iterator[Hit]:
    words = source.words
    if any("sync" in word.lower() and ("bn" in word.lower() or "batchnorm" in word.lower()) for word in words):
        return
    if not source.fragment and not any(re.match(r"^BatchNorm[123]d$", word) for word in words):
        return
    for name in ("DDP", "DistributedDataParallel"):
        for call in source.calls_by_tail.get(name, []):
            yield Hit(call)
            return


def fsdp_no_autowrap(source: Source) -> Iterator[Hit]:
    calls = source.calls_by_tail.get("FSDP", []) + source.calls_by_tail.get("FullyShardedDataParallel", [])
    if len(calls) > 1 or {"enable_wrap", "wrap", "auto_wrap_policy", "auto_wrap"} & source.family_words:
        return
    for call in calls:
        if not has_unpacked(call) and len(call.args) < 4 and call.args:
            yield Hit(call)


def mixedprecision_partial(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("MixedPrecision", []):
        given = {word.arg for word in call.keywords}
        missing = [name for name in ("reduce_dtype", "buffer_dtype") if name not in given]
        if "param_dtype" in given and missing and not has_unpacked(call):
            yield Hit(call, {"name": " and ".join(missing)})
