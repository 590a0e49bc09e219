"""The list of capabilities: each row is well formed, and the code and tests that it names exist."""

import functools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coverage.md"
STATES = ("done", "part", "by design", "later")
ID = re.compile(r"S\d{3}-\d{3}")
QUOTED = re.compile(r"`([^`]*)`")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def lines() -> list[str]:
    return PAGE.read_text("utf-8").splitlines()


def rows() -> list[list[str]]:
    return [cells(line) for line in lines() if line.startswith("| S") and re.match(r"\| S\d+-", line)]


def state(row: list[str]) -> str:
    return row[2].partition(":")[0]


@functools.cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of a file's tests as pytest takes them: `test_x`, or `TestClass::test_x`."""
    found, group = set(), ""
    for indent, kind, name in re.findall(r"^( *)(class|def) (\w+)", path.read_text("utf-8"), re.MULTILINE):
        if not indent:
            group = f"{name}::" if kind == "class" else ""
        if kind == "def" and name.startswith("test_") and len(indent) == (4 if group else 0):
            found.add(group + name)
    return frozenset(found)


def missing(row: list[str]) -> list[str]:
    """Return what a row names and nobody can open."""
    where, tests = QUOTED.findall(row[3]), QUOTED.findall(row[4])
    lost = [name for name in where if not (ROOT / "src" / "outlive" / name).exists() and not (ROOT / name).exists()]
    for name in tests:
        file, _, function = name.partition("::")
        path = ROOT / "tests" / file
        if not path.is_file() or not path.name.startswith("test_") or not functions(path):
            lost.append(file)
        elif function and function not in functions(path):
            lost.append(name)
    return lost


def test_every_row_is_well_formed():
    for row in rows():
        assert len(row) == 5, row
        assert ID.fullmatch(row[0]) and row[1], row
        assert state(row) in STATES, row
        for cell in row[3:]:
            assert not re.sub(r"`[^`]+`", "", cell).strip(), f"{row[0]}: only quoted names belong in {cell!r}"


def test_ids_are_unique_in_order_and_none_of_the_first_list_is_lost():
    ids = [row[0] for row in rows()]
    assert ids == sorted(set(ids))
    assert [id for id in ids if id.startswith("S000-")] == [f"S000-{n:03}" for n in range(1, 117)]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_what_a_row_names_exists(row):
    assert missing(row) == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_state_says_what_it_has_to(row):
    more = row[2].partition(":")[2].strip()
    if state(row) == "later":
        assert more, "which part of the product?"
        assert not row[4], "what a test shows is not later"
    else:
        assert QUOTED.search(row[3]) and QUOTED.search(row[4]), "place and test"
        assert bool(more) is (state(row) != "done"), "done needs no word, the others do"
    if state(row) == "part":
        assert "missing:" in more


def test_the_numbers_at_the_top_are_right():
    head = [cells(line) for line in lines() if re.match(r"\| (rows|S\d{3}) \|", line)]
    assert head[0] == ["rows", *STATES, "all"]
    counted = {group: Counter(state(r) for r in rows() if r[0].startswith(group)) for group, *_ in head[1:]}
    assert {row[0].partition("-")[0] for row in rows()} == set(counted)
    for group, *numbers in head[1:]:
        found = [counted[group][word] for word in STATES]
        assert [int(n) for n in numbers] == [*found, sum(found)], group


def test_a_name_that_is_not_there_is_found():
    bad = ["S000-001", "x", "done", "`no/such.py` `runs/down.py`", "`docs/test_coverage.py::test_no` `docs/none.py`"]
    assert missing(bad) == ["no/such.py", "docs/test_coverage.py::test_no", "docs/none.py"]
