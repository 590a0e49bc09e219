"""What a line must contain for a pattern to match: the cheap test that the engine makes before the expensive one.

Read off the parsed regular expression when the rules are compiled; the box gets the result.
"""

from __future__ import annotations

from typing import Any

MIN_CHARS = 3
MAX_ALTERNATIVES = 400
COMMON = frozenset(
    (
        "loss grad train step epoch must you need node host self exit half time file error worker workers "
        "checkpoint cannot rank device failed expected value size memory model process remote peer system "
        "requested different access"
    ).split()
) | {"could not", "failed to", "unable to", "is not a"}
"""Words of healthy logs: as a test they would let nearly everything through."""


def required(pattern: str) -> list[str] | None:
    """Return lower-case strings of which every match contains at least one; None when nothing is known."""
    from re import _parser  # type: ignore[attr-defined]

    found = _of_sequence(list(_parser.parse(pattern)))
    if found is None:
        return None
    kept: list[str] = []
    for text in sorted(found, key=lambda t: (len(t), t)):
        if not any(k in text for k in kept):
            kept.append(text)
    return sorted(kept)


def _of_sequence(items: list[Any]) -> set[str] | None:
    """The best set among the parts of a sequence: longest shortest member, then fewest members."""
    best: set[str] | None = None
    run = ""
    for op, value in [*items, (None, None)]:
        name = str(op)
        if name == "LITERAL":
            run += chr(value).lower()
            continue
        if name == "IN":
            folded = {chr(v).lower() for o, v in value if str(o) == "LITERAL"}
            if len(folded) == 1 and all(str(o) == "LITERAL" for o, _ in value):
                run += folded.pop()
                continue
        if len(run) >= MIN_CHARS:
            best = _better(best, {run})
        run = ""
        if op is None:
            break
        best = _better(best, _of_part(name, value))
    return best


def _of_part(name: str, value: Any) -> set[str] | None:
    if name == "SUBPATTERN":
        return _of_sequence(list(value[3]))
    if name == "BRANCH":
        union: set[str] = set()
        for branch in value[1]:
            one = _of_sequence(list(branch))
            if one is None:
                return None
            union |= one
        return union if len(union) <= MAX_ALTERNATIVES else None
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        low, _, inner = value
        return _of_sequence(list(inner)) if low >= 1 else None
    if name == "ATOMIC_GROUP":
        return _of_sequence(list(value))
    return None


def _better(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=_worth)


def _worth(texts: set[str]) -> tuple[int, int]:
    return min(min(0 if t.strip() in COMMON else len(t) for t in texts), 6), -len(texts)


def alternatives(pattern: str) -> list[str]:
    """Split a pattern at its outermost ``|``; flags in front go to every part."""
    flags, rest = ("(?i)", pattern[4:]) if pattern.startswith("(?i)") else ("", pattern)
    parts, start, depth, in_class, i = [], 0, 0, False, 0
    while i < len(rest):
        char = rest[i]
        if char == "\\":
            i += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            i += 1 if rest[i + 1 : i + 2] == "]" or rest[i + 1 : i + 2] == "^" else 0
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "|" and depth == 0:
            parts.append(rest[start:i])
            start = i + 1
        i += 1
    return [flags + part for part in [*parts, rest[start:]]]
