"""Boxes in a directory, each with the packed program (tests/servers/onbox.py)."""

import pytest
from servers.onbox import Box, pack


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """Path of the packed program."""
    return pack(tmp_path_factory.mktemp("program") / "supervisor-test.pyz")


@pytest.fixture
def box(program, tmp_path):
    made = Box(program, tmp_path / "root")
    yield made
    made.end()


@pytest.fixture
def box_at(program):
    """``box_at(root)`` makes a box at a place of the test's choice."""
    made = []

    def make(root):
        made.append(Box(program, root))
        return made[-1]

    yield make
    for item in made:
        item.end()
