"""Data goes to a real program of ours on this machine, framed; rsync needs ssh and is tried on real servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlive import errors
from outlive.sync.data import push_data
from outlive.sync.patience import Patience
from outlive.transport.agent import Agent, Frame


@pytest.fixture
def src(tmp_path: Path) -> Path:
    top = tmp_path / "src"
    (top / "sub/.hidden").mkdir(parents=True)
    (top / "big").write_bytes(os.urandom(1_500_001))
    (top / "sub/.hidden/中文 '\n").write_text("x")
    (top / "twin1").write_bytes(b"t" * 300_000)
    (top / "twin2").write_bytes(b"t" * 300_000)
    (top / "empty").touch()
    (top / "tmp.tmp").write_text("data, whatever it is called")
    (top / "link").symlink_to("big")
    (top / "big").chmod(0o640)
    return top


def same(one: Path, two: Path) -> bool:
    def all_of(top: Path) -> dict[str, object]:
        return {
            str(p.relative_to(top)): os.readlink(p) if p.is_symlink() else (p.read_bytes(), p.stat().st_mode)
            for p in top.rglob("*")
            if p.is_symlink() or p.is_file()
        }

    return all_of(one) == all_of(two)


class Cutting(Agent):
    cuts: list[int]

    def send(self, name: str, request: dict[str, Any], frames: Any, **limits: Any) -> dict[str, Any]:
        def cut(after: int) -> Iterator[Frame]:
            for header, payload in frames:
                after -= len(payload)
                if after < 0:
                    raise errors.Unreachable("cut on purpose")
                yield header, payload

        return super().send(name, request, cut(self.cuts.pop(0)) if self.cuts else frames, **limits)


def test_a_directory_and_then_nothing(agent: Agent, src: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst"
    seen: list[tuple[int, int, str]] = []
    done = push_data(agent, src, str(dst), lambda *at: seen.append(at))
    assert same(src, dst) and done.by == "framed" and done.files == 7
    assert seen[-1][0] == seen[-1][1] == done.bytes == done.sent_bytes
    again = push_data(agent, src, str(dst))
    assert (again.sent_bytes, again.by, again.already_files) == (0, "nothing", 7)
    (src / "big").write_bytes(b"other")
    (dst / "theirs").write_text("stays")
    assert push_data(agent, src, str(dst)).sent_bytes == 5
    assert (dst / "big").read_bytes() == b"other" and (dst / "theirs").exists()


def test_a_file_to_a_name_or_into_a_directory(agent: Agent, src: Path, tmp_path: Path) -> None:
    push_data(agent, src / "big", str(tmp_path / "d/new-name"))
    assert (tmp_path / "d/new-name").read_bytes() == (src / "big").read_bytes()
    assert push_data(agent, src / "big", str(tmp_path / "e") + "/").base == str(tmp_path / "e")
    push_data(agent, src / "empty", str(tmp_path / "e"))
    assert sorted(os.listdir(tmp_path / "e")) == ["big", "empty"]


def test_cuts_cost_little(agent: Agent, src: Path, tmp_path: Path) -> None:
    bad = Cutting(agent.exec, agent.root, agent.python)
    bad.cuts = [400_000, 900_000, 600_000]
    done = push_data(bad, src, str(tmp_path / "dst"), patience=Patience(retries=3, wait=lambda s: None))
    assert same(src, tmp_path / "dst") and done.cuts == 3
    # the box keeps what it read; what was on the way when the line broke is sent again
    assert done.sent_bytes <= done.bytes + 3 * 512 * 1024
    assert not list((tmp_path / "dst").rglob(".outlive-part*"))


def test_a_half_file_is_continued_by_the_next_command(agent: Agent, src: Path, tmp_path: Path) -> None:
    bad = Cutting(agent.exec, agent.root, agent.python)
    bad.cuts = [1_000_000]
    with pytest.raises(errors.Unreachable):
        push_data(bad, src / "big", str(tmp_path / "big"), patience=Patience(retries=0))
    assert not (tmp_path / "big").exists()
    done = push_data(agent, src / "big", str(tmp_path / "big"))
    assert done.resumed_from > 500_000 and done.sent_bytes == done.bytes - done.resumed_from


def test_a_source_that_changes_is_named(agent: Agent, src: Path, tmp_path: Path) -> None:
    def change(done: int, total: int, path: str) -> None:
        (src / "twin2").write_bytes(b"changed")

    with pytest.raises(errors.Corrupt) as error:
        push_data(agent, src, str(tmp_path / "dst"), change)
    assert error.value.path == "twin2" and not (tmp_path / "dst/twin2").exists()


def test_bad_words(agent: Agent, src: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="absolute"):
        push_data(agent, src, "relative/path")
    with pytest.raises(errors.UsageError, match="there is no"):
        push_data(agent, src / "nothing", "/tmp/x")
    with pytest.raises(errors.BoxLacks, match="rsync"):
        push_data(agent, src, str(tmp_path / "d"), prefer="rsync")


def test_too_little_room(agent: Agent, src: Path, tmp_path: Path) -> None:
    class Small(Agent):
        def call(self, name: str, request: Any = None, **limits: Any) -> dict[str, Any]:
            return dict(super().call(name, request, **limits), free_bytes=2_000_000, free_inodes=8)

    with pytest.raises(errors.NoSpace) as error:
        push_data(Small(agent.exec, agent.root, agent.python), src, str(tmp_path / "dst"))
    assert (error.value.bytes_needed or 0) > 2_000_000 and error.value.inodes_free == 8
    assert not (tmp_path / "dst").exists()
