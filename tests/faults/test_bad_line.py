"""A whole life over a line of 50 ms, 3 % loss and 100 Mbit: up, push, run, watch, pull, down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from servers import ran
from servers.clients import Client, work_of

from outlive import errors
from outlive.runs.down import STILL_RUNNING, down
from outlive.runs.look import Mirror
from outlive.runs.pull import pull
from outlive.runs.watch import follow


def again(verb: Any, *words: Any, **options: Any) -> Any:
    """Type it until it is done, as a person on such a line; what it says meanwhile is about the line alone."""
    for _ in range(20):
        try:
            return verb(*words, **options)
        except errors.PlaceError as error:
            assert error.exit_code == 4
            assert not any(word in error.sentence() for word in ("is gone", "run is lost", "run failed"))
    raise AssertionError("twenty tries were not enough")


def test_from_up_to_down(
    box_factory: Any, wan: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box = box_factory(netns=wan.netns, address=wan.far_ip, port=22)
    wan.set(delay_ms=25, loss=0.03, rate_mbit=100)
    for number in range(40):
        (client.project / f"module_{number}.py").write_bytes(os.urandom(300).hex().encode())
    (client.project / "data.bin").write_bytes(os.urandom(3 << 20))
    name = again(client.up, box, price=(2.0, "USD")).place.name
    job = client.job(env={"LAST": "40", "STEP_S": "0.1"}, roster=("result.json", "data.bin"))
    run = again(client.run, job).run
    assert again(client.run, job).run == run, "asked again, it is the same run"
    seen = list(follow(client.home, client.record(run), every_s=0.2, timeout_s=240))
    final = seen[-1].status
    assert final is not None and final["state"] == "succeeded" and final["step"] == 40 and final["attempt"] == 1
    for look in seen:
        assert look.state in ("starting", "running", "finishing", "succeeded", "unknown"), look.state
        assert look.reachable or look.state == "unknown"
    again(client.once, run)
    work = work_of(box, client, run)
    mirror = Mirror(client.home, run, client.box().box_id)
    assert mirror.path("log").read_bytes() == (work.parent / "log").read_bytes(), "no line lost or doubled"
    got = again(pull, client.home, run)
    assert got.delivery == "proved" and got.exit_code == 0
    assert (got.dir / "data.bin").read_bytes() == (client.project / "data.bin").read_bytes()
    result = again(down, client.home, name, terminal=ran.Person(name))
    assert result.exit_code == 6 and result.sentence.startswith(STILL_RUNNING)
    assert client.home.state().boxes[name].state == "unconfirmed"
