"""What a check answers: where, and the words of this place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from outlive.advice.lint.source import Source


@dataclass(frozen=True)
class Hit:
    """One place. ``words`` fill the blanks of the page's message; ``severity``, where given, replaces the page's."""

    node: ast.AST
    words: dict[str, str] = field(default_factory=dict)
    severity: str = ""


Check = Callable[[Source], Iterator[Hit]]
"""Looks at one file (and through ``source.family`` at what it imports) and yields its hits in any order."""
