"""The packed program: small, the same each time, and its lines are those of the sources."""

import ast
import io
import subprocess
import sys
import zipfile
from importlib import resources

import pytest

from outlive.transport import pack

LIMIT_BYTES = 240_000
"""It goes over every slow line and into every small disk once. A sixth of it are the patterns of `diagnose`."""


def _sources():
    top = resources.files("outlive")
    for name in pack.PACKAGES:
        yield from sorted((top / name).rglob("*.py"))


def test_it_stays_small():
    assert len(pack.supervisor_pyz()[1]) < LIMIT_BYTES


def test_packing_twice_gives_the_same_bytes():
    first = pack.supervisor_pyz()
    pack.supervisor_pyz.cache_clear()
    assert pack.supervisor_pyz() == first


@pytest.mark.parametrize("path", list(_sources()), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_lean_source_does_the_same_on_the_same_lines(path):
    source = path.read_text("utf-8")
    lean = pack.lean(source)

    def code(text):
        tree = ast.parse(text)
        found = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            if isinstance(node, ast.stmt):
                found.append((node.lineno, type(node).__name__))
        return found

    assert code(lean) == code(source)
    assert "#" not in "".join(line for line in lean.splitlines() if line.lstrip().startswith("#"))
    assert lean.count("\n") == source.count("\n")


def test_it_starts_and_says_how_to_use_it(tmp_path):
    program = tmp_path / "supervisor.pyz"
    program.write_bytes(pack.supervisor_pyz()[1])
    done = subprocess.run([sys.executable, "-I", "-S", str(program)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_it_holds_no_client_code():
    names = zipfile.ZipFile(io.BytesIO(pack.supervisor_pyz()[1])).namelist()
    assert {n.split("/")[1] for n in names if n.count("/") > 1} == set(pack.PACKAGES)
