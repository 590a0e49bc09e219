"""What a continued run must find again: schedule, scaler, averages, random state, place in the data, counters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.saving import WHOLE, keys_and_states, saved_value, torch_saves
from outlive.advice.lint.source import (
    EMA_CLASS,
    SCHEDULER_CLASS,
    Source,
    base,
    calls_in,
    dotted,
    is_ema,
    last_word,
    tail,
    words_of,
)


def state_saves(source: Source) -> list[ast.Call]:
    """Return the saves of a state that is meant to be continued from: a dict, not bare weights."""
    if WHOLE & source.family_words:
        return []
    found: list[ast.Call] = []
    for call in torch_saves(source):
        value = saved_value(source, call)
        words = words_of(value) if value is not None else set()
        whole = isinstance(value, ast.Dict) or (isinstance(value, ast.Call) and tail(value.func) == "dict")
        texts = _keys(value)
        optimizer = any(source.is_optimizer(word) for word in words) or any("optim" in text.lower() for text in texts)
        if whole and (optimizer or source.fragment):
            found.append(call)
    return found


def _keys(value: ast.expr | None) -> set[str]:
    if isinstance(value, ast.Dict):
        return {key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    if isinstance(value, ast.Call):
        return {word.arg for word in value.keywords if word.arg}
    return set()


def _kept(source: Source, fits: re.Pattern[str]) -> bool:
    keys, states = keys_and_states(source)
    return any(fits.search(word) for word in keys | states)


def _loaded(source: Source, fits: re.Pattern[str]) -> bool:
    """Return whether something that fits is given its state back."""
    return any(
        fits.search(ast.unparse(call))
        for one in source.family or [source]
        for call in one.calls_by_tail.get("load_state_dict", [])
    )


def _restores_optimizer(source: Source) -> ast.Call | None:
    for call in source.calls_by_tail.get("load_state_dict", []):
        if source.is_optimizer(last_word(base(call.func))):
            return call
    return None


SCHEDULE = re.compile(r"sched|lr_s|warmup", re.I)
SCALER = re.compile(r"scaler|amp", re.I)
EMA = re.compile(r"ema|swa|averag|shadow", re.I)


def _steps_schedule(source: Source) -> bool:
    known = source.made_by(SCHEDULER_CLASS)
    for call in source.calls_by_tail.get("step", []):
        word = last_word(base(call.func))
        if word in known or (source.fragment and source.is_scheduler(word)):
            return True
    return False


def _stateless_schedule(source: Source) -> bool:
    # built again from the step at which it starts
    return "last_epoch" in source.words


def scheduler_not_saved(source: Source) -> Iterator[Hit]:
    if _steps_schedule(source) and not _stateless_schedule(source) and not _kept(source, SCHEDULE):
        for call in state_saves(source)[:1]:
            yield Hit(call)


def scheduler_not_restored(source: Source) -> Iterator[Hit]:
    if source.fragment or not _steps_schedule(source) or not _kept(source, SCHEDULE) or _stateless_schedule(source):
        return
    if not state_saves(source):
        return
    where = _restores_optimizer(source)
    if where is not None and not _loaded(source, SCHEDULE):
        yield Hit(where)


def _uses_scaler(source: Source) -> bool:
    if source.fragment:
        return any("scaler" in base(call.func).lower() for call in source.calls_by_tail.get("update", []))
    return bool(source.calls_by_tail.get("GradScaler"))


def scaler_not_saved(source: Source) -> Iterator[Hit]:
    if _uses_scaler(source) and not _kept(source, SCALER):
        for call in state_saves(source)[:1]:
            yield Hit(call)


def scaler_not_restored(source: Source) -> Iterator[Hit]:
    if source.fragment or not _uses_scaler(source) or not _kept(source, SCALER) or not state_saves(source):
        return
    where = _restores_optimizer(source)
    if where is not None and not _loaded(source, SCALER):
        yield Hit(where)


def _uses_ema(source: Source) -> bool:
    if source.made_by(EMA_CLASS):
        return True
    updates = source.calls_by_tail.get("update", []) + source.calls_by_tail.get("update_parameters", [])
    return any(is_ema(last_word(base(call.func))) for call in updates)


def ema_not_saved(source: Source) -> Iterator[Hit]:
    if _uses_ema(source) and not _kept(source, EMA):
        for call in state_saves(source)[:1]:
            yield Hit(call)


def ema_not_restored(source: Source) -> Iterator[Hit]:
    if source.fragment or not _uses_ema(source) or not _kept(source, EMA) or not state_saves(source):
        return
    where = _restores_optimizer(source)
    if where is not None and not _loaded(source, EMA):
        yield Hit(where)


def rng_not_saved(source: Source) -> Iterator[Hit]:
    if source.fragment or any("rng" in word.lower() for word in source.family_words):
        return
    if any("rng" in text.lower() for text in source.family_strings):
        return
    if _restores_optimizer(source) is not None:
        for call in state_saves(source)[:1]:
            yield Hit(call)


def no_sampler_state(source: Source) -> Iterator[Hit]:
    known = {"StatefulDataLoader", "skip_first_batches", "islice", "StatefulDistributedSampler", "consumed_samples"}
    if source.family_words & known:
        return
    if any(
        re.search(r"skip|resume_step|consumed|start_batch|batches_seen|sampler_state", w) for w in source.family_words
    ):
        return
    if any(re.search(r"loader|sampler|dataset", word) for word in keys_and_states(source)[1]):
        return
    loaders = source.made_by(re.compile(r"^DataLoader$"))
    for call in state_saves(source):
        loop = source.loop_of(call)
        if not isinstance(loop, ast.For) or not words_of(loop.iter) & loaders:
            continue
        if calls_in(loop, "backward") and _restores_optimizer(source) is not None:
            yield Hit(call)
            return


def range_from_zero(source: Source) -> Iterator[Hit]:
    loads = [call for call in source.calls_by_tail.get("load", []) if base(call.func) == "torch"]
    if not loads or (_restores_optimizer(source) is None and not source.fragment):
        return
    for loop in source.loops:
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or tail(loop.iter.func) not in RANGES:
            continue
        if len(loop.iter.args) != 1 or isinstance(loop.iter.args[0], ast.Call) or loop.lineno < loads[0].lineno:
            continue
        if source.scope(loop) is not source.scope(loads[0]) and not source.fragment:
            continue
        name = next(iter(_names(loop.target)), "")
        trains = source.fragment or "backward" in source.reached_words(loop)
        inner = any(isinstance(above, ast.For | ast.While) for above in source.above(loop))
        # the counter may be skipped forward inside the loop, or be no counter of the run at all
        if trains and not inner and name != "_" and not _skips(loop):
            yield Hit(loop, {"name": name})
            return


RANGES = ("range", "trange")


def _skips(loop: ast.For) -> bool:
    first = loop.body[0] if loop.body else None
    return isinstance(first, ast.If) and any(isinstance(stmt, ast.Continue) for stmt in first.body)


def _names(target: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def strict_false(source: Source) -> Iterator[Hit]:
    if any(re.search(r"lora|adapter|peft|prompt_tuning", word, re.I) for word in source.family_words):
        return  # only the added weights are in the file, that is the point of it
    for call in source.calls_by_tail.get("load_state_dict", []):
        strict = next((word.value for word in call.keywords if word.arg == "strict"), None)
        if (
            isinstance(strict, ast.Constant)
            and strict.value is False
            and isinstance(source.parents.get(call), ast.Expr)
        ):
            yield Hit(call, {"name": dotted(call.func).rpartition(".")[0]})
