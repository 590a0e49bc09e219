"""Every place keeps its contract: twins of a box and of a queue, and boxes of platforms that differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from outlive.errors import NotHere
from outlive.ledger import Box
from outlive.runs.home import Home
from outlive.runs.place import open_place
from outlive.schedulers.place import Place
from outlive.testing import place as suite

BOXES: dict[str, Box] = {
    "own machine": Box("mine", "a" * 32, "local", address="local:", root="/nowhere"),
    "rented": Box("pod-1", "b" * 32, "runpod", address="root@192.0.2.7:22", root="/workspace"),
    "by hand": Box("vm-1", "c" * 32, "hengyuanyun", address="root@192.0.2.8:22", root="/root"),
    "with a volume": Box("v", "d" * 32, "ssh", address="me@192.0.2.9:22", root="/r", facts={"durable": "/mnt/v"}),
}
"""None of them answers: a place knows what it is without asking."""

TWINS: dict[str, Callable[[], Place]] = {
    "memory box": suite.MemoryBoxPlace,
    "memory box with all": lambda: suite.MemoryBoxPlace(meter=True, durable=True),
    "memory queue": suite.MemoryQueuePlace,
}


@pytest.mark.parametrize("check", suite.PLACE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", [*TWINS, *BOXES])
def test_place(kind: str, check: Callable[[Place], None], tmp_path: Path) -> None:
    check(TWINS[kind]() if kind in TWINS else open_place(Home(tmp_path), BOXES[kind]))


def test_a_box_says_why_its_meter_cannot_be_stopped_from_here(tmp_path: Path) -> None:
    own = open_place(Home(tmp_path), BOXES["own machine"])
    assert "nothing bills" in own.why_not("meter")
    with pytest.raises(NotHere, match=r"down: not here \(mine\), because nothing bills"):
        own.need("meter", "down")
    assert "durable" in open_place(Home(tmp_path), BOXES["with a volume"]).capabilities


def test_a_queue_says_what_it_cannot_do() -> None:
    queue = suite.MemoryQueuePlace()
    assert queue.capabilities == {"files"}
    with pytest.raises(NotHere, match="ssh: not here .* no shell") as caught:
        queue.need("exec", "ssh")
    assert caught.value.to_json()["capability"] == "exec"


def test_run_all_names_what_fails() -> None:
    class Mute(suite.MemoryQueuePlace):
        def why_not(self, capability: str) -> str:
            return ""

    failed = {name for name, problem in suite.run_all_places(Mute).items() if problem}
    assert failed == {"check_each_lack_has_a_reason", "check_need"}
    assert not any(suite.run_all_places(suite.MemoryQueuePlace).values())
