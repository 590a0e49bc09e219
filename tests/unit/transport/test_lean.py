"""Lean source does what the whole source does, on the same lines."""

import ast
import copy
from importlib import resources

import pytest

from outlive.transport.lean import lean
from outlive.transport.pack import PACKAGES


def _sources():
    top = resources.files("outlive")
    for name in PACKAGES:
        yield from sorted((top / name).rglob("*.py"))


class _Bare(ast.NodeTransformer):
    """What may differ, taken out of a tree: docstrings and annotations."""

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node):
        fields = [copy.deepcopy(n) if isinstance(n, ast.AnnAssign) else None for n in node.body]
        node = self.generic_visit(node)
        made = ast.ClassDef(
            **dict(ast.iter_fields(node), body=[f or n for f, n in zip(fields, node.body, strict=True)])
        )
        return ast.copy_location(made, node)

    def visit_AnnAssign(self, node):
        if node.value is None:
            return node
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def visit_Expr(self, node):
        quiet = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | int)
        return ast.copy_location(ast.Pass(), node) if quiet else self.generic_visit(node)


def _does(text):
    tree = _Bare().visit(ast.parse(text))
    tree.body = [node for node in tree.body if not isinstance(node, ast.Pass)]
    return ast.dump(tree), [(type(n).__name__, n.lineno) for n in ast.walk(tree) if isinstance(n, ast.stmt)]


@pytest.mark.parametrize("path", list(_sources()), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_it_does_the_same_on_the_same_lines(path):
    source = path.read_text("utf-8")
    found = lean(source)
    assert found.count("\n") == source.count("\n")
    (whole, lines), (bare, same) = _does(source), _does(found)
    assert bare == whole
    assert sorted(n for k, n in same) == sorted(n for k, n in lines)
    assert not [line for line in found.splitlines() if line.lstrip().startswith("#")]


def test_strings_are_left_as_they_are():
    source = 'def f():\n    x = """a\n        b # c\n    """\n    y = f"{x}    #" + (\n        "d")\n    return x + y\n'
    before, after = {}, {}
    exec(source, before)
    exec(lean(source), after)
    assert before["f"]() == after["f"]()


def test_fields_of_a_class_stay_and_other_annotations_go():
    source = (
        "from typing import NamedTuple, Optional\n\n"
        "class P(NamedTuple):\n    x: int = 0\n    y: Optional[int] = None\n\n"
        "def é(ä: 'str', *b: int, c: int = 3, **d: int) -> 'Optional[P]':\n"
        "    e: int = c\n    f: int\n    return P(e)\n"
    )
    found = lean(source)
    assert "x: int = 0" in found and "y: Optional[int] = None" in found
    assert "def é(ä, *b, c = 3, **d) :" in found
    names = {}
    exec(found, names)
    assert names["é"]("") == (3, None)
