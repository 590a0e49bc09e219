"""Parse every travelling file as Python 3.8 and look for library calls that came later.

The real proof is `tools/travel_tests.py`; this is the second's answer for a machine without old interpreters. Types are
checked by mypy with 3.11's grammar, since mypy reads nothing older.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("wire", "probes", "artifacts", "diagnose", "checkpoints", "onbox")

LATER_METHODS = {
    "removeprefix": "3.9",
    "removesuffix": "3.9",
    "is_relative_to": "3.9",
    "readlink": "3.9",
    "bit_count": "3.10",
}
LATER_NAMES = {
    ("functools", "cache"): "3.9",
    ("itertools", "pairwise"): "3.10",
    ("itertools", "batched"): "3.12",
    ("math", "lcm"): "3.9",
    ("os", "waitstatus_to_exitcode"): "3.9",
    ("os", "pidfd_open"): "3.9",
    ("signal", "pidfd_send_signal"): "3.9",
    ("random", "randbytes"): "3.9",
    ("hashlib", "file_digest"): "3.11",
    ("datetime", "UTC"): "3.11",
    ("types", "NoneType"): "3.10",
    ("asyncio", "to_thread"): "3.9",
    ("typing", "Self"): "3.11",
    ("typing", "TypeAlias"): "3.10",
    ("typing", "ParamSpec"): "3.10",
    ("typing", "Annotated"): "3.9",
    ("typing", "assert_never"): "3.11",
    ("enum", "StrEnum"): "3.11",
}
LATER_KEYWORDS = {
    ("zip", "strict"): "3.10",
    ("dataclass", "slots"): "3.10",
    ("dataclass", "kw_only"): "3.10",
}
LATER_MODULES = {"tomllib": "3.11", "zoneinfo": "3.9", "graphlib": "3.9"}
BUILTIN_GENERICS = {"list", "dict", "tuple", "set", "frozenset", "type"}


def travelling(root: Path = ROOT) -> list[Path]:
    """Return the Python files that run on boxes, and their tests."""
    package = root / "src" / "outlive"
    files = [package / "__init__.py"]
    for name in PACKAGES:
        files += sorted((package / name).rglob("*.py"))
        files += sorted((root / "tests" / "unit" / name).rglob("*.py"))
    return [path for path in files if "checkpoints/torch/" not in path.as_posix() or "/src/" in path.as_posix()]


def problems(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, what) for each thing in ``source`` that Python 3.8 does not have."""
    try:
        tree = ast.parse(source, feature_version=(3, 8))
    except SyntaxError as bad:
        yield bad.lineno or 0, f"syntax newer than 3.8: {bad.msg}"
        return
    lazy = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(a.name == "annotations" for a in node.names)
        for node in tree.body
    )
    notes = set(in_annotations(tree)) if lazy else set()
    for node in ast.walk(tree):
        if node in notes:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in LATER_MODULES:
                    yield node.lineno, f"module {alias.name} is new in {LATER_MODULES[alias.name]}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                since = LATER_NAMES.get((node.module or "", alias.name)) or LATER_MODULES.get(node.module or "")
                if since:
                    yield node.lineno, f"{node.module}.{alias.name} is new in {since}"
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            since = LATER_NAMES.get((owner, node.attr)) or ("" if owner == "os" else LATER_METHODS.get(node.attr, ""))
            if since:
                yield node.lineno, f"{owner or '...'}.{node.attr} is new in {since}"
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in BUILTIN_GENERICS:
            yield node.lineno, f"{node.value.id}[...] is evaluated here, and new in 3.9"
        elif isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            for keyword in node.keywords:
                since = LATER_KEYWORDS.get((called, keyword.arg or ""))
                if since:
                    yield node.lineno, f"{called}({keyword.arg}=) is new in {since}"
        elif isinstance(node, ast.With) and len(node.items) > 1 and parenthesised(source, node):
            yield node.lineno, "parenthesised with is new in 3.9"


def in_annotations(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node inside an annotation; with the __future__ import they are never evaluated."""
    for node in ast.walk(tree):
        found: list[ast.AST | None] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.returns)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            found.append(node.annotation)
        for one in found:
            if one is not None:
                yield from ast.walk(one)


def parenthesised(source: str, node: ast.With) -> bool:
    """Return whether all items of a ``with`` stand in one pair of parentheses, which ast accepts for 3.8 too."""
    first, last = node.items[0].context_expr, node.items[-1]
    end = last.optional_vars or last.context_expr
    lines = source.splitlines()
    head = lines[node.lineno - 1][node.col_offset + 4 :] if first.lineno >= node.lineno else ""
    tail = "\n".join(lines[(end.end_lineno or 1) - 1 :])[(end.end_col_offset or 0) :].lstrip(" ,\n")
    return head.lstrip().startswith("(") and tail.startswith(")")


def main() -> int:
    """Print one line per problem; return the exit status."""
    files = travelling()
    found = [(path, line, what) for path in files for line, what in problems(path.read_text("utf-8"))]
    for path, line, what in found:
        print(f"{path.relative_to(ROOT)}:{line}: {what}")
    print(f"{len(files)} travelling files, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
