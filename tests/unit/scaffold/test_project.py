"""Writing a project: whole or not at all, never over anything, every file parses, the launcher is clean."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from outlive import errors
from outlive.runs import job
from outlive.scaffold import project

KINDS = sorted(project.KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_is_whole(tmp_path: Path, kind: str) -> None:
    names = project.write(kind, tmp_path / "训练 一", "first")
    written = tmp_path / "训练 一"
    wanted = {
        "train.py",
        "train.sh",
        "training_config.yaml",
        "outlive.toml",
        "README.md",
        "requirements.txt",
        ".gitignore",
    }
    assert wanted <= set(names)
    for name in names:
        text = (written / name).read_text("utf-8")
        assert "{{" not in text.replace("{{}}", ""), name
        if name.endswith(".py"):
            ast.parse(text)
    read = job.read(written / "outlive.toml")
    assert (read.name, read.checkpoints) == ("first", "out/ckpt")
    assert tomllib.loads((written / "outlive.toml").read_text("utf-8"))["job"]["run"] == "sh train.sh"
    assert [path.name for path in tmp_path.iterdir()] == ["训练 一"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_module_that_a_project_imports_is_in_it(tmp_path: Path, kind: str) -> None:
    names = set(project.write(kind, tmp_path / "p", "p"))
    own = {name[:-3] for name in names if name.endswith(".py")}
    used = set()
    for name in names:
        if name.endswith(".py"):
            for node in ast.walk(ast.parse((tmp_path / "p" / name).read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    used |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    used.add(str(node.module).split(".")[0])
    theirs = {path.stem for path in project.TEMPLATES.rglob("*.py")}
    assert used & theirs <= own
    assert own - used == {"train"}, "a file that nothing uses"


def test_the_launcher_is_clean() -> None:
    tool = shutil.which("shellcheck")
    assert tool, "shellcheck is missing: apt-get install -y shellcheck"
    done = subprocess.run([tool, str(project.TEMPLATES / "common" / "train.sh")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_nothing_that_exists_is_touched(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "mine.txt").write_text("mine")
    with pytest.raises(errors.UsageError, match="not empty"):
        project.write("nanogpt", tmp_path / "p", "p")
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["mine.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UsageError):
        project.write("nanogpt", tmp_path / "file", "p")


def test_an_empty_directory_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    assert "train.py" in project.write("nanogpt", tmp_path / "p", "p")


def test_an_unknown_kind_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(errors.UnknownName, match="did you mean `nanogpt`"):
        project.write("nanogtp", tmp_path / "p", "p")
    assert list(tmp_path.iterdir()) == []


def test_the_sample_text_is_the_same_each_time() -> None:
    assert project.sample_text(1, 5000) == project.sample_text(1, 5000) != project.sample_text(2, 5000)


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_lint_finds_nothing_in_it(tmp_path: Path, kind: str) -> None:
    project.write(kind, tmp_path / "p", "p")
    done = subprocess.run(
        [sys.executable, "-m", "outlive", "lint-train", *map(str, sorted((tmp_path / "p").glob("*.py")))],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
