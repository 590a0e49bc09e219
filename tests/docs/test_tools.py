"""The tools that guard the tree notice what they are there for."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "source",
    [
        "match x:\n    case 1: pass\n",
        "def f(a: list[int]): pass\n",
        "x = 'abc'.removeprefix('a')\n",
        "import functools\n@functools.cache\ndef f(): pass\n",
        "zip([], [], strict=True)\n",
        "with (open('a') as a, open('b') as b):\n    pass\n",
        "import tomllib\n",
        "from typing import Self\n",
        "if x := (y := 1): pass\ntry: pass\nexcept* ValueError: pass\n",
    ],
)
def test_newer_python_is_noticed(source):
    assert list(tool("check_py38").problems(source))


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations\ndef f(a: list[int]) -> dict[str, int] | None: pass\n",
        "with open('a') as a, open('b') as b:\n    pass\n",
        "with (open('a')) as a, open('b') as b:\n    pass\n",
        "import os\nos.readlink('x')\n",
        "def f(a, /, *, b): return a\n",
    ],
)
def test_python_38_is_left_alone(source):
    assert list(tool("check_py38").problems(source)) == []


def test_reference_pages_are_fresh():
    done = subprocess.run(
        [sys.executable, "tools/gen_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": "src", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_requirement_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    pins = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if "==" in line
    }
    names = {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in wanted}
    assert names <= pins


def test_interpreters_of_the_matrix_are_the_ones_the_travelling_half_promises():
    assert tool("travel_tests").VERSIONS == ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
    assert set(tool("travel_tests").PACKAGES) == set(tool("check_py38").PACKAGES)


def test_a_machine_without_a_new_python_is_told_what_to_install(tmp_path):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "with_python.sh"), "x.py"],
        env={"PATH": str(tmp_path), "OUTLIVE_PYTHON": "python3"}, capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert done.returncode == 2
    assert "apt-get install python3 python3-venv" in done.stderr
    assert "nothing was changed" in done.stderr
