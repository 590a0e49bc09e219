"""The line to a real sshd box is cut, drops what it carries, or goes silent; words and bytes stay right."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client, work_of

from outlive import errors
from outlive.runs.look import Mirror
from outlive.runs.pull import pull

TALKS = """
import json, os, time
os.makedirs("ckpt")
n = 0
while not os.path.exists("../../../../stop-talking"):
    for _ in range(40):
        n += 1
        print("step %d loss %.4f %s" % (n, 1 / n, "x" * 60), flush=False)
    print(end="", flush=True)
    time.sleep(0.05)
with open("ckpt/step-%d.json" % n, "w") as f:
    json.dump({"step": n, "w": list(range(120000))}, f)
with open("result.json", "w") as f:
    json.dump({"lines": n}, f)
"""


def test_log_and_result_over_a_line_that_breaks_everywhere(
    box_factory: Any, client: Client, cut_link: Any, tmp_path: Path
) -> None:
    box = box_factory()
    link = cut_link(box.address, box.port)
    client.use_key(box.key)
    client.up(box, f"ssh://{box.user}@{link.address}:{link.port}")
    (client.project / "talk.py").write_text(TALKS)
    run = client.run(client.job("talk", "python3", "talk.py", roster=("result.json",))).run
    dice = random.Random(11)
    mirror = Mirror(client.home, run, client.box().box_id)
    cuts = looks = 0
    while looks < 6 or cuts < 6:
        words: dict[str, Any] = {"cut_down": 0, "cut_up": 0}
        if dice.random() < 0.7:
            words[dice.choice(["cut_down", "cut_up"])] = dice.randrange(500, 40_000)
        link.cut()
        link.set(**words)
        try:
            seen = client.once(run)
            assert seen.status is not None and seen.status["attempt"] == 1
            looks += 1
        except errors.PlaceError as error:
            assert not any(word in error.sentence() for word in ("is gone", "run is lost", "run failed"))
            cuts += 1
        assert cuts + looks < 200, "the line was cut too early, or never"
    link.cut()
    link.set(cut_down=0, cut_up=0)
    Path(work_of(box, client, run).parents[3], "stop-talking").write_text("")
    client.until(run, lambda s: s["ended"], 180)
    before = -1
    while mirror.offsets()["log"] != before:
        before = mirror.offsets()["log"]
        client.once(run)
    log = work_of(box, client, run).parent / "log"
    assert mirror.path("log").read_bytes() == log.read_bytes(), "no line is lost, none is doubled"
    target = tmp_path / "result"
    for size in (200_000, 400_000, 50_000):
        link.set(cut_down=size)
        try:
            got = pull(client.home, run, to=target)
            break
        except errors.PlaceError as error:
            assert any("here" in why for why in error.why)
            assert not list(target.glob("ckpt/*")), "nothing half has its name"
        link.cut()
    link.set(cut_down=0)
    got = pull(client.home, run, to=target)
    assert got.delivery == "proved" and got.exit_code == 0


@pytest.mark.parametrize("way", ["drop_up", "drop_down"])
def test_what_is_thrown_away_on_the_line_says_nothing_about_the_run(
    box_factory: Any, client: Client, cut_link: Any, way: str
) -> None:
    """A dead gateway takes every byte and passes none on: the other end believes that all was sent."""
    box = box_factory()
    link = cut_link(box.address, box.port)
    client.use_key(box.key)
    client.up(box, f"ssh://{box.user}@{link.address}:{link.port}")
    run = client.run(client.job(env={"LAST": "100000"})).run
    client.until(run, lambda s: s["state"] == "running", 120)
    link.set(**{way: 1})
    seen = client.look(timeout_s=4)
    assert seen.state == "unreachable" and seen.error is not None and seen.error["exit_code"] in (4, 7)
    assert not any(word in seen.why for word in ("lost", "gone", "failed"))
    assert client.record(run).state == "running"
    link.set(**{way: 0})
    link.cut()
    end = time.monotonic() + 120
    while client.look(timeout_s=20).state == "unreachable":
        assert time.monotonic() < end
    status = client.status(run)
    assert status["attempt"] == 1 and status["work_alive"]
    client.stop(run)
