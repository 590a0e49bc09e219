"""Whole scripts with planted mistakes: all that were planted are found, and nothing else that is more than advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.advice.lint.run import findings_of, parse

PLANTED = sorted((Path(__file__).parent / "planted").glob("*.py.txt"))


@pytest.mark.parametrize("path", PLANTED, ids=lambda path: path.name.partition(".")[0])
def test_all_that_was_planted_and_nothing_else(path: Path) -> None:
    text = path.read_text("utf-8")
    head = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    expected = set(" ".join(head).removeprefix("expects:").split())
    assert {one.check for one in findings_of(parse(text, path.name)) if one.severity != "info"} == expected


def test_there_are_some() -> None:
    assert len(PLANTED) >= 6
