"""Takes out of Python source what a box has no use for: comments, docstrings, annotations, most of the indentation.

Every statement stays on its line, so that a traceback from a box names the lines of the source tree.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

INDENT = 4


def lean(source: str) -> str:
    """Return the source without what nobody reads on a box."""
    source = _without_annotations(source)
    lines = source.split("\n")
    inside: set[int] = set()
    strings: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT":
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
        elif kind == "STRING":
            inside.update(range(token.start[0], token.end[0]))
        elif kind == "FSTRING_START":
            strings.append(token.start[0])
        elif kind == "FSTRING_END":
            inside.update(range(strings.pop(), token.end[0]))
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            continue
        assert node.end_lineno is not None
        # a body may have nothing but its docstring; only a module needs no statement in its place
        lines[node.lineno - 1] = "" if node in tree.body else " " * node.col_offset + "0"
        for row in range(node.lineno, node.end_lineno):
            lines[row] = ""
    return "\n".join(line if row in inside else _dented(line) for row, line in enumerate(lines))


def _dented(line: str) -> str:
    text = line.lstrip(" ")
    return " " * ((len(line) - len(text)) // INDENT) + text


def _without_annotations(source: str) -> str:
    lines = [line.encode("utf-8") for line in source.split("\n")]
    for row, start, end in sorted(_annotations(ast.parse(source), lines), reverse=True):
        lines[row - 1] = lines[row - 1][:start] + lines[row - 1][end:]
    return b"\n".join(lines).decode("utf-8")


def _annotations(tree: ast.Module, lines: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield (line, from, to) of what may go: all within one line, and none that makes a field of a class."""
    fields = {id(item) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            yield from _span(node.lineno, node.col_offset + len(node.arg.encode("utf-8")), node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            arrow = lines[node.returns.lineno - 1].rfind(b"->", 0, node.returns.col_offset)
            if arrow >= 0:
                yield from _span(node.returns.lineno, arrow, node.returns)
        elif isinstance(node, ast.AnnAssign) and node.value is not None and id(node) not in fields:
            if node.simple or isinstance(node.target, ast.Attribute):
                assert node.target.end_lineno is not None and node.target.end_col_offset is not None
                yield from _span(node.target.end_lineno, node.target.end_col_offset, node.annotation)


def _span(row: int, start: int, annotation: ast.expr) -> Iterator[tuple[int, int, int]]:
    assert annotation.end_col_offset is not None
    if row == annotation.lineno == annotation.end_lineno:
        yield row, start, annotation.end_col_offset
