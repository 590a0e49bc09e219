"""How state is written: whole, atomically, by one process, and also without a signal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

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
    is_model,
    keyword,
    last_word,
    tail,
    words_of,
)

RENAMES = {"replace", "rename", "renames", "move"}
WHOLE = {
    "Checkpointer",
    "save_state",
    "save_checkpoint",
    "async_save",
    "save_training_checkpoint",
    "StatefulDataLoader",
}
RUN_STATE = re.compile(r"optim|^opt$|^o$", re.I)


def torch_saves(source: Source) -> list[ast.Call]:
    """Return the calls of ``torch.save``."""
    return [
        call
        for call in source.calls_by_tail.get("save", [])
        if base(call.func) == "torch" or (base(call.func) == "" and source.imports.get("save") == "torch.save")
    ]


def saved_value(source: Source, call: ast.Call) -> ast.expr | None:
    """Return what a save writes; a name is followed to its last assignment before it in the same function."""
    value = call.args[0] if call.args else keyword(call, "obj")
    if isinstance(value, ast.Name):
        scope = source.scope(call)
        before = [
            given
            for target, given in source.assignments
            if dotted(target) == value.id and source.scope(target) is scope and target.lineno <= call.lineno
        ]
        if before:
            return before[-1]
    return value


@lru_cache(maxsize=32)
def keys_and_states(source: Source) -> tuple[set[str], set[str]]:
    """Return (keys of the dicts that are saved, names whose ``state_dict()`` is taken) in the family."""
    keys: set[str] = set()
    states: set[str] = set()
    for one in source.family or [source]:
        for call in one.calls_by_tail.get("state_dict", []):
            states.add(last_word(base(call.func)))
        for node in one.nodes:
            if isinstance(node, ast.Dict):
                keys |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
            elif isinstance(node, ast.Subscript) and isinstance(constant(node.slice), str):
                keys.add(str(constant(node.slice)))
            elif isinstance(node, ast.Call) and tail(node.func) in ("dict", "save_checkpoint", "save"):
                keys |= {word.arg for word in node.keywords if word.arg}
    return keys, states


def saves_run_state(source: Source) -> bool:
    """Return whether the family writes an optimizer's state somewhere."""
    keys, states = keys_and_states(source)
    return (
        any(RUN_STATE.search(word) for word in states)
        or any(re.search(r"optim", key, re.I) for key in keys)
        or bool(WHOLE & source.family_words)
    )


def save_only_model(source: Source) -> Iterator[Hit]:
    if saves_run_state(source):
        return
    for call in torch_saves(source):
        value = saved_value(source, call)
        if isinstance(value, ast.Call) and tail(value.func) == "state_dict":
            words = [word for word in re.findall(r"\w+", base(value.func)) if word != "module"]
            if words and is_model(words[-1]):
                yield Hit(call, severity="" if source.repeated(call) else "info")
                return


def inplace_torch_save(source: Source) -> Iterator[Hit]:
    if not _sees_writer(source):
        return
    for call in torch_saves(source):
        where = call.args[1] if len(call.args) > 1 else keyword(call, "f")
        if where is None or not source.repeated(call) or _never_rolls(source, call, where):
            continue
        words = source.reached_words(source.scope(call), 1)
        if words & RENAMES and not (words & RENAMES == {"replace"} and _only_text_replace(source, call)):
            continue
        yield Hit(call)


def _sees_writer(source: Source) -> bool:
    return "atomic" not in " ".join(source.words).lower()


def _only_text_replace(source: Source, call: ast.Call) -> bool:
    found = calls_in(source.scope(call), "replace")
    return bool(found) and all(base(one.func) != "os" and len(one.args) == 2 for one in found)


def _never_rolls(source: Source, call: ast.Call, where: ast.expr, depth: int = 2) -> bool:
    """Return whether the target is a buffer, a temporary file, or a new name each time."""
    scope = source.scope(call)
    text, names = _spelt_out(source, scope, where)
    if re.search(r"buf|bytesio|\bstream\b|tmp|temp|\.part\b|fileno|rank", text, re.I):
        return True
    if re.search(r"\b(\w+_)?(epochs?|steps?|iter\w*|idx|i|e|t|num|time|round|count)\b|strftime", text, re.I):
        return True
    handed = names & _arguments(scope)
    if not handed or not isinstance(scope, Function):
        return False
    # the caller names the file
    calls = source.called_from(scope)
    if not calls or depth == 0:
        return True
    given = [(one, place, value) for one, place in calls for value in _given(scope, place, handed)]
    return not given or all(_never_rolls(one, place, value, depth - 1) for one, place, value in given)


def _spelt_out(source: Source, scope: ast.AST, where: ast.expr) -> tuple[str, set[str]]:
    """Return (an expression and the values of the local names in it as text, all names in them)."""
    text, names, fresh = ast.unparse(where), words_of(where), words_of(where)
    for _ in range(2):
        values = [
            value
            for name in sorted(fresh)
            for target, value in source.assigned.get((scope, name), [])
            if target.lineno <= where.lineno
        ]
        text += "".join(" " + ast.unparse(value) for value in values)
        fresh = set().union(*map(words_of, values)) - names if values else set()
        names = names | fresh
    return text, names


def _given(function: Function, call: ast.Call, names: set[str]) -> list[ast.expr]:
    """Return what a call gives for these parameters of a function."""
    parameters = [arg.arg for arg in [*function.args.posonlyargs, *function.args.args]]
    if parameters[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute):
        parameters = parameters[1:]
    found = [value for name, value in zip(parameters, call.args, strict=False) if name in names]
    return found + [word.value for word in call.keywords if word.arg in names]


def _arguments(scope: ast.AST) -> set[str]:
    """Return the names of a function's parameters, without ``self`` and objects of settings."""
    if not isinstance(scope, Function):
        return set()
    args = scope.args
    return {arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]} - {
        "self",
        "args",
        "cfg",
        "config",
        "opt",
    }


def ungated_save_ddp(source: Source) -> Iterator[Hit]:
    if not source.fragment and not source.words & {"DistributedDataParallel", "DDP", "init_process_group"}:
        return
    for call in torch_saves(source):
        value = saved_value(source, call)
        if source.fragment and "module" not in words_of(call):
            continue
        if guarded(source, call) or (value is not None and _own_part(call)):
            continue
        yield Hit(call)


def _own_part(call: ast.Call) -> bool:
    return any(re.search(r"rank|local|process_index", word, re.I) for word in words_of(call))


def guarded(source: Source, node: ast.AST, depth: int = 3) -> bool:
    """Return whether one process only comes to ``node``: an ``if``, an early return, or such a place in each caller."""
    if any(asks_rank(test) or _speaks_of_rank(test) for test, _ in source.conditions(node)):
        return True
    scope = source.scope(node)
    if not isinstance(scope, Function):
        return False
    if any("rank_zero" in dotted(one) or "main_process" in dotted(one) for one in scope.decorator_list):
        return True
    for stmt in scope.body:
        if stmt.lineno >= getattr(node, "lineno", 0):
            break
        leaves = isinstance(stmt, ast.If) and any(isinstance(one, ast.Return) for one in stmt.body)
        if isinstance(stmt, ast.If) and leaves and (asks_rank(stmt.test) or _speaks_of_rank(stmt.test)):
            return True
    calls = source.called_from(scope)
    # one caller that asks is enough: the author knows about ranks, and the other callers may be alone by nature
    return bool(depth) and any(guarded(one, call, depth - 1) for one, call in calls)


def _speaks_of_rank(test: ast.expr) -> bool:
    return any(
        re.search(r"rank|main_process|is_main|master|primary|should_save|world_size|process_index|gpu_id|^gpu$", word)
        for word in words_of(test)
    )


def only_sigterm_save(source: Source) -> Iterator[Hit]:
    handlers = {
        dotted(call.args[1]): call
        for call in source.calls_by_tail.get("signal", [])
        if base(call.func) == "signal" and len(call.args) == 2
    }
    saves = [
        call
        for call in source.calls
        if re.match(r"^(_?save(_\w+)?|save_checkpoint)$", tail(call.func)) and "fig" not in tail(call.func)
    ]
    if not handlers or not saves:
        return
    where = {getattr(source.scope(call), "name", "") for call in saves}
    names = {last_word(name) for name in handlers}
    if where <= names:
        yield Hit(next(iter(handlers.values())))


def no_load_path(source: Source) -> Iterator[Hit]:
    loads = re.compile(r"^(load|restore|resume)|load_state|from_pretrained|resume|load_checkpoint|load_from")
    if any(loads.search(word) for word in source.family_words if word not in ("loads", "loader")):
        return
    for call in torch_saves(source):
        value = call.args[0] if call.args else None
        name = last_word(dotted(value)) if value is not None else ""
        whole = saves_run_state(source) or (source.fragment and re.match(r"^(state|ckpt|checkpoint)$", name))
        if whole and source.repeated(call):
            yield Hit(call)
            return


def flag_gated_load(source: Source) -> Iterator[Hit]:
    holders = {"args", "cfg", "opt", "config", "opts", "flags", "FLAGS", "hparams"}
    for node in source.nodes:
        if not isinstance(node, ast.If) or node.orelse:
            continue
        test = node.test
        if isinstance(test, ast.Attribute) and test.attr == "resume" and dotted(test.value) in holders:
            words = set().union(*(source.reached_words(stmt, 1) for stmt in node.body))
            if any("load" in word for word in words) and not any(
                re.search(r"latest|last|auto_resume|find_", word) for word in words
            ):
                yield Hit(node)
                return


def rank0_save_checkpoint(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("save_checkpoint", []):
        who = last_word(base(call.func)).lower()
        deepspeed = "engine" in who or ("deepspeed" in source.words and is_model(who))
        if deepspeed and any(asks_rank(test) for test, _ in source.conditions(call)):
            yield Hit(call)


def trainer_no_resume(source: Source) -> Iterator[Hit]:
    roots = {name.partition(".")[0] for name in source.modules}
    if not source.fragment and not roots & {"transformers", "trl"}:
        return
    for call in source.calls_by_tail.get("train", []):
        if not re.search(r"(^|\.|_)trainer$", base(call.func)) or call.args or call.keywords:
            continue
        others = calls_in(source.scope(call), "train")
        if not any(keyword(other, "resume_from_checkpoint") is not None for other in others):
            yield Hit(call)


def accelerate_no_register(source: Source) -> Iterator[Hit]:
    saves = source.calls_by_tail.get("save_state", [])
    if not saves or "register_for_checkpointing" in source.family_words:
        return
    made = [
        last_word(dotted(target))
        for target, value in source.assignments
        if isinstance(value, ast.Call)
        and source.is_scheduler(last_word(dotted(target)))
        and tail(value.func) != "prepare"
    ]
    prepared = {word for call in source.calls_by_tail.get("prepare", []) for arg in call.args for word in words_of(arg)}
    prepared |= {word for call in source.calls_by_tail.get("prepare_scheduler", []) for word in words_of(call)}
    unpacked = any(has_unpacked(call) for call in source.calls_by_tail.get("prepare", []))
    for name in made:
        if name not in prepared and not unpacked and source.is_accelerator(base(saves[0].func)):
            yield Hit(saves[0], {"name": name})
            return


def lightning_resume_argument(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("Trainer", []):
        where = keyword(call, "resume_from_checkpoint")
        if where is not None:
            yield Hit(where)


def no_save_last(source: Source) -> Iterator[Hit]:
    if any(name.partition(".")[0] in ("keras", "tensorflow") for name in source.modules):
        return
    for call in source.calls_by_tail.get("ModelCheckpoint", []):
        if has_unpacked(call) or keyword(call, "save_last") is not None or keyword(call, "monitor") is None:
            continue
        if constant(keyword(call, "save_top_k")) != -1:
            yield Hit(call)


def full_state_no_offload(source: Source) -> Iterator[Hit]:
    for call in source.calls_by_tail.get("state_dict_type", []) + source.calls_by_tail.get("set_state_dict_type", []):
        words = words_of(call)
        if "FULL_STATE_DICT" in words and len(call.args) + len(call.keywords) < 3:
            yield Hit(call)
