"""Credentials in code, and the identity of a tracker's run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from outlive.advice.lint.hit import Hit
from outlive.advice.lint.source import Source, base, constant, dotted, last_word, tail


def wandb_no_id(source: Source) -> Iterator[Hit]:
    if any("WANDB_RUN_ID" in text or "WANDB_RESUME" in text for text in source.family_strings):
        return
    for call in source.calls_by_tail.get("init", []):
        names = {word.arg for word in call.keywords}
        if base(call.func) == "wandb" and None not in names and not names & {"id", "resume"}:
            yield Hit(call)


KEYS = re.compile(r"(^|_)(api_?key|(auth_|access_|hf_|hub_|wandb_)?token|secret(_?key)?|passw(or)?d)$", re.I)
KNOWN = re.compile(
    r"^(hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16}|glpat-[\w-]{20,})$"
)
FAKE = re.compile(r"your|xxx|example|dummy|placeholder|insert|change_?me|test|fake|<|\.\.\.|(.)\1{5}", re.I)


def secret_text(name: str, value: str) -> bool:
    """Return whether a name and a literal look like a credential and not like a placeholder or a word."""
    if KNOWN.match(value):
        return not re.search(r"x{6}|your", value, re.I)
    if not KEYS.search(name) or not re.match(r"^[A-Za-z0-9_\-]{20,}$", value) or FAKE.search(value):
        return False
    return bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value)) and "__" not in value


def key_literal(source: Source) -> Iterator[Hit]:
    for node in source.nodes:
        pairs: list[tuple[str, ast.AST]] = []
        if isinstance(node, ast.Assign):
            for target in node.targets:
                slot = constant(target.slice) if isinstance(target, ast.Subscript) else None
                pairs.append((slot if isinstance(slot, str) else last_word(dotted(target)), node.value))
        elif isinstance(node, ast.keyword) and node.arg:
            pairs.append((node.arg, node.value))
        elif isinstance(node, ast.Dict):
            pairs += [(str(constant(k)), v) for k, v in zip(node.keys, node.values, strict=True) if k is not None]
        elif isinstance(node, ast.Call) and tail(node.func) in ("login", "getenv", "setdefault"):
            pairs += [
                ("token" if tail(node.func) == "login" else str(constant(node.args[0])), arg) for arg in node.args
            ]
        for name, value in pairs:
            text = constant(value)
            named = "api_key" if name == "key" and "wandb" in source.words else name
            if isinstance(text, str) and secret_text(named, text):
                yield Hit(value, {"name": name})


def token_plain(source: Source) -> Iterator[Hit]:
    """Literals that are a known kind of credential wherever they stand."""
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and KNOWN.match(node.value):
            if not re.search(r"x{6}|your", node.value, re.I) and not isinstance(
                source.parents.get(node), ast.Assign | ast.keyword
            ):
                yield Hit(node, {"name": node.value[:4] + "..."})
