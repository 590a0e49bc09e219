"""Polls that are the same again: what is asked, what is believed, and when the whole answer is asked for."""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import pytest

from outlive.transport import again, packed
from outlive.transport.again import Memory
from outlive.transport.agent import Agent, Refused
from outlive.transport.base import Completed

RUN = "count-260101-abcd"
MARK = {
    "t": "mark",
    "mark": "a" * 64,
    "pids": "12:34 56:78",
    "runs": f"{RUN}/1",
    "script": "quick-0123456789abcdef.sh",
    "up": "100.5",
}
HEAD = {
    "t": "box",
    "boot_s": 1000.0,
    "wall_s": 5000.25,
    "disk_free_bytes": 1,
    "disk_total_bytes": 9000,
    "disk_free_inodes": None,
}
STATUS = {
    "run": RUN,
    "work_alive": True,
    "attempt_age_s": 10.0,
    "lease_used_s": 20.0,
    "log_age_s": 3.0,
    "metrics_age_s": None,
}
SAME = {"t": "same", "up": 130.5, "wall": 5030, "space": "10 900 77 500 400"}
OFFSETS = {"journal": 40, "log": 7, "metrics": 0}


class Box:
    """An ``Exec`` that answers like a box. ``said`` lists what was started: "quick" or "full"."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.quick: list[Any] | bytes | None = [SAME]
        self.full: list[Any] = self.answer()

    def answer(self, **changes: Any) -> list[Any]:
        parts = [{"t": part, "run": RUN, "from": at, "to": at, "size": at} for part, at in OFFSETS.items() if at]
        return [HEAD, {"t": "run", "run": RUN, "status": {**STATUS, **changes}}, *parts, MARK]

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        request = json.loads(stdin)
        self.requests.append(request)
        if argv[0] != "sh":
            self.said.append("full")
            return self._reply(self.full, request["nonce"])
        self.said.append("quick")
        assert list(argv[1:6]) == [
            f"/r/.outlive/{MARK['script']}",
            request["nonce"],
            "a" * 64,
            "12:34 56:78",
            f"{RUN}/1",
        ]
        assert argv[6] == "python3" and argv[-1] == "call", "what answers in full stands behind"
        if self.quick is None:
            return Completed(2, b"", b"sh: 0: cannot open")
        if isinstance(self.quick, bytes):
            return Completed(0, self.quick, b"")
        return self._reply(self.quick, request["nonce"])

    @staticmethod
    def _reply(frames: list[Any], nonce: str) -> Completed:
        lines = [{**f, "nonce": nonce} if f["t"] == "box" else f for f in frames] + [{"t": "end"}]
        text = f"\noutlive-reply {nonce}\n" + "".join(json.dumps(line) + "\n" for line in lines)
        return Completed(0, text.encode(), b"")

    def describe(self) -> str:
        return "box"


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def agent(box: Box, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setattr(packed, "program_digest", lambda: "d" * 16)
    return Agent(box, "/r", "python3", memory=Memory(tmp_path / "polls", "id", "/r"))  # type: ignore[arg-type]


def poll(agent: Agent, nonce: str = "beef", runs: Any = "one") -> list[Any]:
    asked = {RUN: dict(OFFSETS)} if runs == "one" else runs
    return [header for header, _ in agent.frames("poll", {"nonce": nonce, "runs": asked})]


def test_the_second_time_it_is_the_same_and_its_clocks_go_on(agent: Agent, box: Box) -> None:
    first = poll(agent)
    assert [f["t"] for f in first] == ["box", "run", "journal", "log"], "the mark is nobody else's business"
    second = poll(agent, "cafe")
    assert box.said == ["full", "quick"]
    assert [f["t"] for f in second] == ["box", "run", "journal", "log"]
    assert second[0] == {
        **HEAD,
        "nonce": "cafe",
        "boot_s": 1030.0,
        "wall_s": 5030.25,
        "disk_free_bytes": 770,
    }
    assert second[1]["status"] == {**STATUS, "attempt_age_s": 40.0, "lease_used_s": 50.0, "log_age_s": 33.0}
    assert second[2:] == first[2:]
    assert all(request["mark"] is True for request in box.requests)


def test_what_is_new_comes_in_the_same_exchange_and_is_kept(agent: Agent, box: Box) -> None:
    poll(agent)
    news = box.answer(attempt_age_s=99.0)
    box.quick = news
    assert poll(agent)[1]["status"]["attempt_age_s"] == 99.0
    box.quick = [SAME]
    assert poll(agent)[1]["status"]["attempt_age_s"] == 129.0
    assert box.said == ["full", "quick", "quick"]


def test_an_answer_without_a_mark_is_not_kept(agent: Agent, box: Box) -> None:
    poll(agent)
    box.quick = box.full[:-1]
    poll(agent)
    poll(agent)
    assert box.said == ["full", "quick", "full"]


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(None, id="no such script any more"),
        pytest.param(b"", id="silence"),
        pytest.param(b"\noutlive-reply 0000\n" + json.dumps(SAME).encode() + b'\n{"t":"end"}\n', id="another's answer"),
        pytest.param([{**SAME, "space": "what"}], id="room that is none"),
        pytest.param([{**SAME, "up": 3.0}], id="a clock before the answer"),
        pytest.param([{"t": "same"}], id="nothing along"),
    ],
)
def test_what_makes_no_sense_is_asked_again_in_full(agent: Agent, box: Box, reply: Any) -> None:
    poll(agent)
    box.quick = reply
    assert poll(agent)[1]["status"] == STATUS
    assert box.said == ["full", "quick", "full"]


def test_a_cut_reply_is_no_answer(agent: Agent, box: Box) -> None:
    poll(agent)
    whole = box._reply([SAME], "beef").stdout
    for end in range(0, len(whole) - 1, 7):
        box.quick = whole[:end]
        assert poll(agent)[1]["status"] == STATUS


def test_a_refusal_is_one(agent: Agent, box: Box) -> None:
    poll(agent)
    box.quick = [{"t": "refused", "code": "other_box", "text": "this is not the box"}]
    with pytest.raises(Refused):
        poll(agent)


def test_a_wall_clock_that_jumped_makes_ages_unknown_and_nothing_else(agent: Agent, box: Box) -> None:
    poll(agent)
    box.quick = [{**SAME, "wall": 100}]
    head, run = poll(agent)[:2]
    assert head["wall_s"] == 100.25 and head["boot_s"] == 1030.0
    assert run["status"]["log_age_s"] is None and run["status"]["attempt_age_s"] == 40.0


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param({RUN: {**OFFSETS, "log": 5}}, id="another offset"),
        pytest.param({RUN: {**OFFSETS, "samples": 1}}, id="a part that was not asked"),
        pytest.param({"other-260101-abcd": {}}, id="another run"),
        pytest.param(None, id="all runs"),
    ],
)
def test_another_question_is_another_answer(agent: Agent, box: Box, runs: Any) -> None:
    poll(agent)
    poll(agent, runs=runs)
    assert box.said == ["full", "full"]


def test_what_was_not_read_to_its_end_is_not_kept(agent: Agent, box: Box) -> None:
    box.full[2] = {**box.full[2], "size": 4000}
    poll(agent)
    poll(agent)
    assert box.said == ["full", "full"]


def test_after_a_while_the_whole_answer_is_asked_for(agent: Agent, box: Box, tmp_path: pathlib.Path) -> None:
    poll(agent)
    (kept,) = (tmp_path / "polls").iterdir()
    for by_s in (-again.FULL_EVERY_S - 5, 3600.0):
        os.utime(kept, (time.time() + by_s,) * 2)
        poll(agent)
    assert box.said == ["full"] * 3, "too old, or from the future"


@pytest.mark.parametrize(
    "damage", ["", "[]", "{", json.dumps({"mark": {**MARK, "script": "../../x.sh"}, "frames": []})]
)
def test_a_damaged_memory_is_none(agent: Agent, box: Box, tmp_path: pathlib.Path, damage: str) -> None:
    poll(agent)
    (kept,) = (tmp_path / "polls").iterdir()
    kept.write_text(damage)
    poll(agent)
    assert box.said == ["full", "full"]


def test_without_a_place_to_remember_every_answer_is_full(agent: Agent, box: Box, tmp_path: pathlib.Path) -> None:
    (tmp_path / "polls").write_text("in the way")
    poll(agent)
    poll(agent)
    assert box.said == ["full", "full"]
