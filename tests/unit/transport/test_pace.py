"""Streams that must keep moving."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest

from outlive import errors
from outlive.transport.agent import Agent, Frame
from outlive.transport.local import LocalExec
from outlive.transport.pace import Pace, PacedReader, PacedWriter


class Short(io.RawIOBase):
    """A pipe that takes a little less than it is given, as a raw pipe may."""

    def __init__(self) -> None:
        self.got = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        taken = max(1, len(data) // 2)
        self.got += bytes(data[:taken])
        return taken


def test_a_short_write_loses_nothing() -> None:
    sink, data = Short(), os.urandom(100_000)
    with Pace(60.0, lambda: None) as pace:
        assert PacedWriter(cast(IO[bytes], sink), pace).write(data) == len(data)
    assert bytes(sink.got) == data


def test_standing_still_gives_up_once_and_moving_does_not() -> None:
    given_up = threading.Event()
    with Pace(0.2, given_up.set) as pace:
        for _ in range(5):
            assert not given_up.wait(0.08)
            pace.moved()
        assert given_up.wait(2.0) and pace.stalled


def test_a_closed_stream_reads_as_ended_and_writes_as_broken() -> None:
    closed = io.BytesIO()
    closed.close()
    with Pace(60.0, lambda: None) as pace:
        assert PacedReader(closed, pace).read(10) == b"" == PacedReader(closed, pace).readline()
        with pytest.raises(BrokenPipeError):
            PacedWriter(closed, pace).write(b"x")


def silent(tmp_path: Path) -> Agent:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    return Agent(LocalExec(), str(tmp_path), str(fake))


def test_an_agent_gives_up_on_a_far_end_that_reads_nothing(tmp_path: Path) -> None:
    def endless() -> Iterator[Frame]:
        while True:
            yield {"t": "data"}, b"x" * 65536

    with pytest.raises(errors.Unreachable, match="no byte passed"):
        silent(tmp_path).send("tree_put", {}, endless(), stall_s=0.3)


def test_an_agent_gives_up_on_a_far_end_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(errors.Unreachable, match="no byte passed"):
        list(silent(tmp_path).receive("tree_get", {}, stall_s=0.3))
    with pytest.raises(errors.Unreachable, match="no byte passed"):
        silent(tmp_path).send("tree_put", {}, [], timeout_s=0.3)


def test_an_agent_that_answers_is_left_alone(tmp_path: Path) -> None:
    agent = Agent(LocalExec(), str(tmp_path), sys.executable)
    agent.install()
    assert agent.send("hello", {}, [], stall_s=5.0)["root"] == str(tmp_path)
