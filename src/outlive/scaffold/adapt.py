"""A patch for a training script that is not ours: five lines that make its loop resumable, and what it still lacks.

The script is read as a syntax tree and changed by whole lines, so that the diff is small and everything else stays as
it was written. Nothing is ever edited: the patch is printed, the person applies it.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive import errors

MAX_BYTES = 2_000_000
OPTIMIZERS = frozenset("SGD Adam AdamW NAdam RAdam Adafactor RMSprop Adagrad Lion Adamax AdamW8bit".split())
SCHEDULERS = frozenset(
    "LambdaLR StepLR MultiStepLR CosineAnnealingLR CosineAnnealingWarmRestarts OneCycleLR LinearLR ExponentialLR "
    "ReduceLROnPlateau ConstantLR PolynomialLR SequentialLR CyclicLR get_scheduler get_cosine_schedule_with_warmup "
    "get_linear_schedule_with_warmup get_constant_schedule_with_warmup".split()
)
HELD = {"GradScaler": "scaler", "DataLoader": "loader", "StatefulDataLoader": "loader"}


@dataclass
class Seen:
    """What a script's training part consists of; names are those that the script uses."""

    optimizer: str = ""
    model: str = ""
    scheduler: str = ""
    scaler: str = ""
    loader: str = ""
    last_line: int = 0
    """Last line of the statements that make these."""
    indent: int = 0
    loops: list[ast.For | ast.While] = field(default_factory=list)
    """The training loop, outermost first."""
    scope: list[ast.stmt] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def propose(path: Path) -> dict[str, Any]:
    """Return ``patch`` (a unified diff, "" if nothing fits), ``notes`` (what to decide or what is missing), ``found``.

    Raises UsageError for a file that is missing, not Python, or holds no training loop that can be told.
    """
    text = _read(path)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise errors.UsageError(
            f"{path} is not Python" + (f": line {line}: {getattr(error, 'msg', error)}" if line else f": {error}"),
            safe="Nothing was changed.",
        ) from error
    if "outlive.checkpoints" in text:
        return {"patch": "", "notes": ["the script uses outlive's checkpoints already"], "found": {}}
    seen = _best(tree)
    if seen is None:
        raise errors.UsageError(
            f"{path} holds no training loop that can be told: no optimizer whose .step() is called in a loop",
            safe="Nothing was changed.",
            next=[["outlive", "new", "nanogpt", "my-gpt"]],
        )
    patched, notes = _patched(text, tree, seen)
    diff = difflib.unified_diff(
        text.splitlines(keepends=True), patched.splitlines(keepends=True), f"a/{path.name}", f"b/{path.name}"
    )
    found = {"model": seen.model, "optimizer": seen.optimizer, "scheduler": seen.scheduler, "scaler": seen.scaler}
    return {
        "patch": "".join(diff),
        "notes": notes + _missing(text, tree, seen),
        "found": {**found, "loader": seen.loader},
    }


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise errors.UsageError(f"{path} is too large for a training script", safe="Nothing was changed.")
        return path.read_text("utf-8")
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be read: {error.strerror}", safe="Nothing was changed.") from error
    except UnicodeDecodeError as error:
        raise errors.UsageError(f"{path} is not text", safe="Nothing was changed.") from error


def _called(node: ast.AST) -> str:
    """Return the last word of what is called: AdamW of torch.optim.AdamW(...)."""
    if not isinstance(node, ast.Call):
        return ""
    of = node.func
    return of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""


def _best(tree: ast.Module) -> Seen | None:
    """Return the scope (module or function) that makes an optimizer and steps it in a loop; the first such."""
    scopes: list[list[ast.stmt]] = [tree.body]
    scopes += [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for body in scopes:
        seen = Seen(scope=body)
        for statement in _flat(body):
            _take(statement, seen)
        if seen.optimizer:
            seen.loops = _loops(body, seen.optimizer)
            if seen.loops and seen.model:
                return seen
    return None


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a scope, also inside `if __name__ == ...`, `with` and `try`, but not of loops."""
    found: list[ast.stmt] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, (ast.If, ast.With, ast.Try)):
            found += _flat(statement.body)
    return found


def _take(statement: ast.stmt, seen: Seen) -> None:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target = statement.targets[0]
    name = ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
    called = _called(statement.value)
    if not name or not called:
        return
    seen.names.add(name)
    value = statement.value
    assert isinstance(value, ast.Call)
    if called in OPTIMIZERS and not seen.optimizer:
        seen.optimizer = name
        seen.model = _model_of(value) or seen.model
    elif called in SCHEDULERS and not seen.scheduler:
        seen.scheduler = name
    elif called in HELD and not getattr(seen, HELD[called]):
        setattr(seen, HELD[called], name)
    else:
        return
    seen.last_line = max(seen.last_line, statement.end_lineno or 0)
    seen.indent = statement.col_offset


def _model_of(call: ast.Call) -> str:
    """Return X of `AdamW(X.parameters(), ...)`, wherever in the arguments it stands."""
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("parameters", "named_parameters"):
                return ast.unparse(node.func.value)
    return ""


def _steps(node: ast.AST, optimizer: str) -> bool:
    """Return whether ``optimizer.step()`` or ``scaler.step(optimizer)`` is called below the node."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "step":
            if ast.unparse(call.func.value) == optimizer:
                return True
            if any(ast.unparse(word) == optimizer for word in call.args):
                return True
    return False


def _loops(body: list[ast.stmt], optimizer: str) -> list[ast.For | ast.While]:
    """Return the nest of loops around the optimizer's step, outermost first; loops over micro-batches are not in it."""
    for statement in body:
        if isinstance(statement, (ast.For, ast.While)) and _steps(statement, optimizer):
            return [statement, *_loops(statement.body, optimizer)]
        if isinstance(statement, (ast.If, ast.With, ast.Try)) and _steps(statement, optimizer):
            inside = _loops(statement.body, optimizer)
            if inside:
                return inside
    return []


def _patched(text: str, tree: ast.Module, seen: Seen) -> tuple[str, list[str]]:
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    outer, inner = seen.loops[0], seen.loops[-1]
    pad = " " * outer.col_offset
    deep = " " * inner.body[0].col_offset
    given = [f"model={seen.model}", f"optimizer={seen.optimizer}"]
    given += [f"{key}={getattr(seen, key)}" for key in ("scheduler", "scaler") if getattr(seen, key)]
    notes: list[str] = []
    loop_source = inner.iter if isinstance(inner, ast.For) else None
    uses_loader = seen.loader and loop_source is not None and seen.loader in ast.unparse(loop_source)
    inserts: list[tuple[int, list[str]]] = []  # (before this 0-based line, lines)
    before: list[str] = []
    if uses_loader:
        before.append(f"{pad}{seen.loader} = ResumableLoader({seen.loader})\n")
        given.append(f"loader={seen.loader}")
    before.append(f'{pad}ckpt = Checkpointer("out/ckpt", {", ".join(given)})\n')
    simple = len(seen.loops) == 1 and isinstance(outer, ast.For) and isinstance(outer.target, ast.Name)
    in_range = simple and isinstance(outer, ast.For) and _called(outer.iter) == "range"
    if in_range and isinstance(outer, ast.For) and isinstance(outer.iter, ast.Call) and not uses_loader:
        call = outer.iter
        counter = ast.unparse(outer.target)
        if len(call.args) == 1:
            before.append(f"{pad}start = ckpt.resume()\n")
            old = lines[outer.lineno - 1]
            lines[outer.lineno - 1] = old.replace(ast.unparse(call), f"range(start, {ast.unparse(call.args[0])})", 1)
            if lines[outer.lineno - 1] == old:
                notes.append(f"line {outer.lineno}: let the loop begin at `start`")
        else:
            before.append(f"{pad}start = ckpt.resume()\n")
            notes.append(f"line {outer.lineno}: let the loop begin at `start`")
        save = [f"{deep}ckpt.maybe_save({counter} + 1)\n"]
    else:
        before.append(f"{pad}global_step = ckpt.resume()\n")
        save = [f"{deep}global_step += 1\n", f"{deep}ckpt.maybe_save(global_step)\n"]
        if len(seen.loops) > 1 and isinstance(outer, ast.For) and _called(outer.iter) == "range" and uses_loader:
            old = lines[outer.lineno - 1]
            call_text = ast.unparse(outer.iter)
            arguments = outer.iter.args if isinstance(outer.iter, ast.Call) else []
            lines[outer.lineno - 1] = old.replace(
                call_text, f"range({seen.loader}.epoch, {ast.unparse(arguments[-1])})" if arguments else call_text, 1
            )
            if lines[outer.lineno - 1] == old:
                notes.append(f"line {outer.lineno}: let the epochs begin at `{seen.loader}.epoch`")
        elif not uses_loader:
            notes.append("the loop's own counter was not understood: let it begin at `global_step`")
    inserts.append((outer.lineno - 1, before))
    inserts.append((inner.end_lineno or inner.lineno, save))
    inserts.append((outer.end_lineno or outer.lineno, [f"{pad}ckpt.close()\n"]))
    names = "Checkpointer, ResumableLoader" if uses_loader else "Checkpointer"
    inserts.append((_import_line(tree), [f"from outlive.checkpoints.torch import {names}\n"]))
    # from the bottom up; at one place the deeper line comes first in the file
    for at, new in sorted(
        inserts, key=lambda item: (item[0], -len(item[1][0]) + len(item[1][0].lstrip())), reverse=True
    ):
        lines[at:at] = new
    return "".join(lines), notes


def _import_line(tree: ast.Module) -> int:
    """Return the 0-based line after the imports at the top."""
    at = 0
    for number, statement in enumerate(tree.body):
        is_doc = number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement, (ast.Import, ast.ImportFrom)) or is_doc:
            at = statement.end_lineno or at
        elif at:
            break
    return at


def _missing(text: str, tree: ast.Module, seen: Seen) -> list[str]:
    """Return what of the five defaults of a robust script was not seen in it."""
    called = {_called(node) for node in ast.walk(tree)}
    notes = []
    if not seen.scheduler and "get_lr" not in text and "param_group" not in text:
        notes.append("no learning-rate schedule was seen: a cosine with warm-up is the usual one")
    if not called & {"clip_grad_norm_", "clip_grad_value_"}:
        notes.append("no gradient clipping was seen: torch.nn.utils.clip_grad_norm_ before the step")
    if "autocast" not in text and "bfloat16" not in text:
        notes.append("no mixed precision was seen: torch.autocast, bf16 where the GPU has it")
    if not called & {"manual_seed", "seed_everything", "set_seed"}:
        notes.append("no seed was seen: torch.manual_seed, before the model is made")
    if "json" not in text and not called & {"log", "info", "add_scalar"}:
        notes.append("no structured log was seen: one JSON line for each step is enough")
    if "torch.save(" in text:
        notes.append("torch.save is called besides: remove it where it wrote the checkpoint to resume from")
    return notes
