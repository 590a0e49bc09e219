"""Fixtures that start real servers. What they yield is documented in tests/servers/ and docs/guides/testbed.md.

Also loaded when the travelling packages are tested on Python 3.8 with pytest alone: nothing newer here.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for `servers`: importlib mode adds nothing

BOX_FIXTURES = {"box_factory", "ssh_box", "wan"}
_deselected: dict[str, int] = {}


def _can_box() -> str:
    """Why no boxes can run here; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "boxes need Linux"
    if os.geteuid() != 0:
        return "boxes need root: sudo testbed/install.sh, then run the tests as root"
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--boxes",
        choices=("auto", "require", "off"),
        default="auto",
        help="real sshd boxes: auto (require as root on Linux, else off), require (what is missing is a failure), off",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "box_python(version): the box gets this Python from a pyenv of this machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    why_off = {"auto": _can_box(), "require": "", "off": "--boxes=off"}[config.getoption("--boxes")]
    kept, dropped = [], []
    for item in items:
        if BOX_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.box)
        why = why_off if item.get_closest_marker("box") else ""
        wanted = item.get_closest_marker("box_python")
        if not why and wanted is not None and config.getoption("--boxes") != "require":
            from servers import boxes

            if boxes.python_prefix(wanted.args[0]) is None:
                why = f"no Python {wanted.args[0]} under a pyenv for the box"
        if why:
            dropped.append(item)
            _deselected[why] = _deselected.get(why, 0) + 1
        else:
            kept.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


# With xdist the workers select and the controller prints: the counts travel with the worker's farewell.


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["boxes_deselected"] = dict(_deselected)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    # Every worker selects from the same list, so their counts are equal, not to be added.
    for why, count in getattr(node, "workeroutput", {}).get("boxes_deselected", {}).items():
        _deselected[why] = max(count, _deselected.get(why, 0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for why, count in sorted(_deselected.items()):
        terminalreporter.write_line(f"{count} box tests not run: {why}", yellow=True)


@pytest.fixture(scope="session")
def _bed() -> Iterator[Any]:
    from servers import boxes

    bed = boxes.Bed()
    yield bed
    bed.close()


@pytest.fixture
def box_factory(_bed: Any) -> Iterator[Any]:
    """`box_factory(memory_mb=256, no_rsync=True, ...)` starts a box (servers.boxes.Bed.up); the test's end ends it."""
    made: list[Any] = []

    def up(name: Any = None, **options: Any) -> Any:
        box = _bed.up(name, **options)
        made.append(box)
        return box

    yield up
    for box in reversed(made):
        _bed.down(box)


@pytest.fixture
def ssh_box(box_factory: Any) -> Any:
    """One box with everything: root, 512 MiB, one core, 128 MB disk, 8000 inodes."""
    return box_factory()


@pytest.fixture
def cut_link() -> Iterator[Any]:
    """`cut_link(address, port, cut_down=1000)` makes a TCP link that fails on purpose (servers.links.CutLink)."""
    from servers import links

    made: list[Any] = []

    def make(address: str, port: int, **settings: Any) -> Any:
        link = links.CutLink(address, port, **settings)
        made.append(link)
        return link

    yield make
    for link in made:
        link.close()


@pytest.fixture
def wan() -> Iterator[Any]:
    """A line to a network namespace (servers.links.Wan), without delay until `wan.set(delay_ms=25)`."""
    from servers import links

    line = links.Wan()
    yield line
    line.close()


@pytest.fixture
def sink() -> Iterator[Any]:
    """A real web server that records requests (servers.sink.Sink)."""
    from servers import sink as module

    server = module.Sink()
    yield server
    server.close()


@pytest.fixture
def rclone_remote(tmp_path: pathlib.Path) -> Iterator[Any]:
    """Real rclone remotes `plain:` and `served:` in a configuration of their own (servers.remotes.RcloneRemotes)."""
    from servers import remotes

    home = tmp_path / "rclone"
    home.mkdir()
    pair = remotes.RcloneRemotes(home)
    yield pair
    pair.stop()
