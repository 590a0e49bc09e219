"""Language models, diffusion and reinforcement learning: what only their training can get wrong."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import Source, base, constant, dotted, keyword, last_word, tail, words_of


def prediction_types(source: Source) -> Iterator[Hit]:
    found: dict[str, ast.AST] = {}
    for node in source.nodes:
        pairs: list[tuple[str, ast.AST]] = []
        if isinstance(node, ast.Call):
            pairs = [(word.arg or "", word.value) for word in node.keywords]
        elif isinstance(node, ast.Assign):
            pairs = [(last_word(dotted(node.targets[0])), node.value)]
        for name, value in pairs:
            if name == "prediction_type" and isinstance(constant(value), str):
                found.setdefault(str(constant(value)), value)
    if len(found) > 1 and not any("prediction_type" in words_of(n.test) for n in source.nodes if isinstance(n, ast.If)):
        yield Hit(list(found.values())[-1], {"name": " and ".join(sorted(found))})


def hard_coded_scale(source: Source) -> Iterator[Hit]:
    for node in source.nodes:
        if isinstance(node, ast.BinOp) and 0.18215 in (constant(node.left), constant(node.right)):
            yield Hit(node)


def replay_not_saved(source: Source) -> Iterator[Hit]:
    if "save" not in source.calls_by_tail:
        return
    off_policy = {"SAC", "DQN", "TD3", "DDPG", "TQC", "QRDQN"} & source.words
    baselines = any(name.startswith(("stable_baselines3", "sb3_contrib")) for name in source.modules)
    if "save_replay_buffer" in source.family_words or not (source.fragment or (baselines and off_policy)):
        return
    for call in source.calls_by_tail.get("save", []):
        if base(call.func) == "model" and call.args and isinstance(constant(call.args[0]), str | None):
            yield Hit(call)
            return


def advantage_raw(source: Source) -> Iterator[Hit]:
    if not any("ratio" in word for word in source.words) or not any("adv" in word for word in source.words):
        return
    if any(re.search(r"whiten|normali[sz]e_adv|adv_norm|norm_adv", word) for word in source.family_words):
        return
    for node in source.nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = [dotted(node.left), dotted(node.right)]
            adv = next((side for side in sides if re.match(r"^(\w+\.)*\w*adv(antages?)?s?$", side)), "")
            if adv and any("ratio" in side for side in sides):
                if not any("adv" in ast.unparse(call) for call in source.calls_by_tail.get("std", [])):
                    yield Hit(node, {"name": adv})
                    return


def right_padding(source: Source) -> Iterator[Hit]:
    sides: dict[str, ast.AST] = {}
    for target, value in source.assignments:
        if tail(target) == "padding_side" and isinstance(constant(value), str):
            sides.setdefault(str(constant(value)), value)
    for call in source.calls:
        value = keyword(call, "padding_side")  # type: ignore[assignment]
        if value is not None and isinstance(constant(value), str):
            sides.setdefault(str(constant(value)), value)
    if set(sides) == {"right"} and source.calls_by_tail.get("generate"):
        yield Hit(sides["right"])


def labels_unmasked(source: Source) -> Iterator[Hit]:
    if any(
        "-100" in one.text or "ignore_index" in one.text or "IGNORE_INDEX" in one.text
        for one in source.family or [source]
    ):
        return
    for target, value in source.assignments:
        slot = constant(target.slice) if isinstance(target, ast.Subscript) else None
        name = slot if isinstance(slot, str) else last_word(dotted(target))
        if name != "labels" or not isinstance(value, ast.Call) or tail(value.func) != "clone":
            continue
        inner = value.func.value if isinstance(value.func, ast.Attribute) else value
        key = constant(inner.slice) if isinstance(inner, ast.Subscript) else None
        if (key or last_word(dotted(inner))) == "input_ids":
            yield Hit(value)


def packing_leaks(source: Source) -> Iterator[Hit]:
    if any(re.search(r"flash|varlen|flex_attention", text) for text in source.family_strings | source.family_words):
        return
    for name in ("SFTConfig", "SFTTrainer"):
        for call in source.calls_by_tail.get(name, []):
            if constant(keyword(call, "packing")) is True:
                yield Hit(call)
