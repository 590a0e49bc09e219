"""Several calls to one program on a box."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from outlive import errors
from outlive.transport.agent import Agent, Refused
from outlive.transport.base import Stream
from outlive.transport.local import LocalExec
from outlive.transport.talk import Talk


class Counting(LocalExec):
    """Counts the programs that were started."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[Any] = []

    def stream(self, argv: Any) -> Any:
        made: Stream = super().stream(argv)
        self.streams.append(made)
        return made


@pytest.fixture
def far(tmp_path: Path) -> Path:
    top = tmp_path / "far"
    top.mkdir()
    (top / "a").write_bytes(os.urandom(700_000))
    return top


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    import sys

    return Talk.of(Agent(Counting(), str(tmp_path), sys.executable))


def started(talk: Talk) -> int:
    assert isinstance(talk.exec, Counting)
    return len(talk.exec.streams)


def get(talk: Talk, far: Path) -> bytes:
    frames = talk.receive("tree_get", {"base": str(far), "files": [{"path": "a", "bytes": 700_000, "offset": 0}]})
    return b"".join(payload for _header, payload in frames)


def test_calls_share_one_program_also_after_a_refusal(talk: Talk, far: Path, tmp_path: Path) -> None:
    with talk:
        assert [e["path"] for e in talk.call("tree_list", {"base": str(far)})["entries"]] == ["a"]
        begun = started(talk)  # two: the first found no program there and brought it
        with pytest.raises(Refused):
            talk.call("tree_list", {"base": "relative"})
        assert get(talk, far) == (far / "a").read_bytes()
        talk.post("tree_list", {"base": "relative"})
        talk.post("tree_list", {"base": str(far)})
        assert get(talk, far) == (far / "a").read_bytes()
        assert started(talk) == begun == 2
    assert talk.call("tree_list", {"base": str(far)})["moving"] == []
    assert started(talk) == 3
    talk.close()


def test_what_was_posted_is_done_when_it_is_closed(talk: Talk, tmp_path: Path) -> None:
    box = tmp_path / "box"
    with talk:
        talk.call("tree_list", {"base": str(tmp_path)})
        talk.post("tree_list", {"base": str(tmp_path)})
        talk.post("hello", {"root": str(box)})
    assert stat.S_ISDIR((tmp_path / ".outlive").stat().st_mode) and (tmp_path / ".outlive/box-id").exists()


def test_an_answer_given_up_half_way_is_not_taken_for_the_next(talk: Talk, far: Path) -> None:
    with talk:
        frames = talk.receive("tree_get", {"base": str(far), "files": [{"path": "a", "bytes": 700_000, "offset": 0}]})
        assert next(frames)[0]["t"] == "file"
        frames.close()  # type: ignore[attr-defined]
        assert get(talk, far) == (far / "a").read_bytes()


def test_a_program_that_went_while_nothing_was_asked_is_started_again(talk: Talk, far: Path) -> None:
    assert isinstance(talk.exec, Counting)
    with talk:
        talk.call("tree_list", {"base": str(far)})
        talk.exec.streams[-1]._process.kill()
        assert get(talk, far) == (far / "a").read_bytes()


def test_a_far_end_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    with Talk.of(Agent(LocalExec(), str(tmp_path), str(fake))) as silent:
        with pytest.raises(errors.Unreachable, match="no byte passed"):
            list(silent.receive("tree_get", {}, stall_s=0.3))
        with pytest.raises(errors.TimeOver, match="did not answer tree_list"):
            silent.call("tree_list", {}, timeout_s=0.3)
