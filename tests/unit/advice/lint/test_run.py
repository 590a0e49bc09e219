"""Files and directories in, findings out; what cannot be read is said by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from outlive import errors
from outlive.advice.lint.run import MAX_BYTES, lint
from outlive.cli.main import main

TRAIN = """import torch

for x, y in loader:
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x).softmax(1), y)
    loss.backward()
    opt.step()
"""


def written(where: Path, **files: str) -> Path:
    for name, text in files.items():
        (where / f"{name}.py").write_text(text)
    return where


def test_a_directory_is_walked_and_findings_are_in_order(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".venv").mkdir()
    for at in (tmp_path / "b" / "train.py", tmp_path / "a.py", tmp_path / ".venv" / "no.py"):
        at.write_text(TRAIN)
    report = lint([str(tmp_path)])
    errors_in = [finding for finding in report.findings if finding.severity == "error"]
    assert [os.path.relpath(one.path, tmp_path) for one in errors_in] == ["a.py", "b/train.py"]
    assert {(one.id, one.line) for one in errors_in} == {("O12", 5)}
    assert (report.files, report.training) == (2, 2)


def test_a_file_given_twice_is_looked_at_once(tmp_path: Path) -> None:
    path = str(written(tmp_path, train=TRAIN) / "train.py")
    assert lint([path, path, str(tmp_path)]).files == 1


def test_a_comment_answers_a_finding(tmp_path: Path) -> None:
    for answer in ("# outlive: ok O12", "# outlive: ok softmax-then-ce", "#outlive: ok", "# outlive: ok C2, O12"):
        written(tmp_path, train=TRAIN.replace("softmax(1), y)", f"softmax(1), y)  {answer}"))
        report = lint([str(tmp_path)])
        assert not report.bad
        assert report.silenced == 1
    written(tmp_path, train=TRAIN.replace("softmax(1), y)", "softmax(1), y)  # outlive: ok C2"))
    assert lint([str(tmp_path)]).bad
    written(tmp_path, train=TRAIN.replace("    loss = torch", "    # outlive: ok O12\n    loss = torch"))
    assert not lint([str(tmp_path)]).bad


def test_what_a_neighbour_does_counts(tmp_path: Path) -> None:
    train = TRAIN.replace("opt.zero_grad()", "clear(opt)").replace(".softmax(1)", "")
    written(tmp_path, train="from helper import clear\n" + train, helper="def clear(opt):\n    opt.zero_grad()\n")
    assert not lint([str(tmp_path / "train.py")]).bad
    written(tmp_path, helper="def clear(opt):\n    pass\n")
    assert [one.id for one in lint([str(tmp_path / "train.py")]).findings if one.severity == "error"] == ["O4"]


def test_a_test_file_and_a_file_that_trains_nothing_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path, test_it="import pytest\n" + TRAIN, plain="import json\nprint(softmax(1))\n")
    assert not lint([str(tmp_path)]).findings


def test_broken_python_is_a_finding_with_its_place(tmp_path: Path) -> None:
    written(tmp_path, train="import torch\nfor x in\n", nul="x = 1")
    found = lint([str(tmp_path)]).findings
    assert [(one.id, one.line, one.severity) for one in found] == [("syntax", 2, "error")]


@pytest.mark.parametrize(
    ("name", "data"),
    [("gone.py", None), ("image.py", b"\0\1\2"), ("big.py", b"#" * (MAX_BYTES + 1))],
)
def test_what_cannot_be_looked_at_is_named(tmp_path: Path, name: str, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(errors.UsageError, match=name):
        lint([str(tmp_path / name)])


def test_hostile_text_ends_in_findings_or_silence(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("(" * 5000)
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\nimport torch\n")
    (tmp_path / "wide.py").write_text("x = " + "+".join("1" for _ in range(3000)))
    (tmp_path / "empty.py").write_text("")
    assert {one.id for one in lint([str(tmp_path)]).findings} == {"syntax"}


def test_one_line_a_finding_and_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, train=TRAIN) / "train.py")
    assert main(["lint-train", path]) == 1
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.startswith(f"{path}:5:12: error O12 ")]
    assert "1 error" in err
    assert main(["lint-train", path, "--severity", "error", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "outlive/lint-train/1"
    assert [(one["id"], one["source_ids"], one["line"], one["column"]) for one in data["findings"]] == [
        ("O12", ["O12"], 5, 12)
    ]
    written(tmp_path, train=TRAIN.replace(".softmax(1)", ""))
    assert main(["lint-train", path]) == 0
    assert main(["lint-train", str(tmp_path / "gone.py")]) == 2


def test_scripts_and_settings(tmp_path: Path) -> None:
    (tmp_path / "go.sh").write_text("#!/bin/sh\npython train.py; touch DONE\n")
    (tmp_path / "Dockerfile").write_text("FROM pytorch/pytorch:latest\n")
    (tmp_path / "requirements.txt").write_text("torch\n")
    found = {(os.path.basename(one.path), one.id) for one in lint([str(tmp_path)]).findings}
    assert found == {("go.sh", "MO3"), ("Dockerfile", "U30"), ("requirements.txt", "U29")}
