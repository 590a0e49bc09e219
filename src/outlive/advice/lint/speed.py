"""What slows every step: waiting for the device, emptying its cache, debug switches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import (
    Loop,
    Source,
    calls_in,
    constant,
)


def _step_loop(source: Source, node: ast.AST) -> Loop | None:
    """Return the loop that ``node`` runs in at every step: the innermost, going backward, with no ``if`` between."""
    loop = source.loop_of(node)
    if loop is None or any(True for _ in source.conditions(node, until=loop)):
        return None
    if source.fragment:
        return loop
    inner = [call for call in calls_in(loop, "backward") if source.loop_of(call) is loop]
    return loop if inner else None


def item_every_step(source: Source) -> Iterator[Hit]:
    told: set[ast.AST] = set()
    for call in source.calls_by_tail.get("item", []) + source.calls_by_tail.get("cpu", []):
        who = call.func.value if isinstance(call.func, ast.Attribute) else None
        if who is None or call.args or not re.search(r"loss|grad_?norm|\bl\b", ast.unparse(who), re.I):
            continue
        loop = _step_loop(source, call)
        if loop is not None and loop not in told:
            told.add(loop)
            yield Hit(call, {"name": ast.unparse(call)})


def empty_cache_every_step(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("empty_cache", []):
        if _step_loop(source, call) is not None:
            yield Hit(call)


def debug_left_on(source: Source) -> Iterator[Hit]:
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            slot = constant(node.targets[0].slice)
            if slot == "CUDA_LAUNCH_BLOCKING" and str(constant(node.value)) == "1":
                if not any(True for _ in source.conditions(node)):
                    yield Hit(node, {"name": "CUDA_LAUNCH_BLOCKING"})
    for call in source.calls_by_tail.get("gradcheck", []):
        if not source.is_test and source.uses_torch and source.has_raw_loop:
            yield Hit(call, {"name": "gradcheck"})
