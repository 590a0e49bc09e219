"""This client's copy of a run's log, continued by whoever looks."""

from __future__ import annotations

import os
from pathlib import Path

from outlive.runs.home import Home
from outlive.runs.look import Mirror


def mirror(tmp_path: Path) -> Mirror:
    return Mirror(Home(tmp_path), "job-260101-abcd", "b" * 32)


def test_two_processes_that_follow_one_log_double_no_line(tmp_path: Path) -> None:
    """`watch` in one terminal and `logs --follow` in another read the same piece and both want to write it."""
    lines = [f"step {n}\n".encode() for n in range(400)]
    starts = [sum(map(len, lines[:n])) for n in range(400)]
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                mine = mirror(tmp_path)
                for start, line in zip(starts, lines, strict=True):
                    mine.add("log", start, line)
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    got = mirror(tmp_path).path("log").read_bytes()
    assert got == b"".join(lines)[: len(got)] and len(got) > 0
    assert got == b"".join(lines), "whoever is behind drops what is there; nobody leaves a gap"


def test_a_piece_that_does_not_continue_is_asked_for_again(tmp_path: Path) -> None:
    mine = mirror(tmp_path)
    mine.add("log", 0, b"one\n")
    mine.add("log", 9, b"late\n")
    mine.add("log", 0, b"one\n")
    assert mine.path("log").read_bytes() == b"one\n" and mine.offsets()["log"] == 4


def test_a_box_that_lost_the_end_of_its_log_is_read_anew(tmp_path: Path) -> None:
    """It lost its power: what we had read and it had not synced is kept aside, and nothing is spliced."""
    mine = mirror(tmp_path)
    assert not mine.other_machine("first") and not mine.other_machine("first")
    mine.add("log", 0, b"step 1\nstep 2\nstep 3\n")
    mine.add("journal", 0, b"a\nb\n")
    assert mine.other_machine("second")
    # the box has "step 1" and then what the next attempt wrote, which is longer than what we hold
    mine.rejoin("second", {"log": (0, b"step 1\nbegins at 0\nstep 1\n"), "journal": (0, b"a\nb\nc\n")})
    assert mine.path("log.lost-1").read_bytes() == b"step 1\nstep 2\nstep 3\n"
    assert mine.offsets()["log"] == 0, "it is asked for from its beginning"
    assert mine.path("journal").read_bytes() == b"a\nb\nc\n"
    assert not mine.other_machine("second")
    mine.add("log", 0, b"step 1\n")
    mine.rejoin("third", {"log": (0, b"")})
    assert mine.path("log.lost-2").read_bytes() == b"step 1\n"
