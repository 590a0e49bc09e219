"""A client dies at any instant of any verb; the next one types the same and finds everything."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import ran
from servers.clients import Client, on_this_machine

from outlive.runs.adopt import adopt
from outlive.runs.home import Home
from outlive.runs.look import Mirror
from outlive.runs.pull import pull
from outlive.runs.watch import once
from outlive.wire.journal import read_all
from outlive.wire.names import BoxFiles


def die(verb: Callable[[], object], after_s: float) -> None:
    """Do it in a client of its own that is killed after a while, or ends before."""
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            verb()
        finally:
            os._exit(0)
    end = time.monotonic() + after_s
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    yield from on_this_machine(tmp_path)


def test_killed_in_run_it_is_the_same_run(client: Client) -> None:
    for n in range(40):
        (client.project / f"data-{n}.bin").write_bytes(os.urandom(50_000))
    job = client.job(env={"LAST": "5", "STEP_S": "0.02"})
    dice = random.Random(3)
    for _ in range(5):
        die(lambda: client.run(job), dice.uniform(0.05, 0.8))
    started = client.run(job)
    client.until(started.run, lambda s: s["ended"], 120)
    box = BoxFiles(client.box().root)
    assert box.run_ids() == [started.run], "however often it was typed"
    assert client.status(started.run)["state"] == "succeeded"


def test_killed_in_a_pull_nothing_half_has_a_name_and_the_next_goes_on(client: Client, tmp_path: Path) -> None:
    code = (
        "import json, os\nos.makedirs('out/parts')\n"
        "for n in range(60):\n"
        "    with open('out/parts/%d.json' % n, 'w') as f: json.dump({'step': n, 'w': [n] * 20000}, f)\n"
        "with open('out/best.json', 'w') as f: json.dump({'loss': 1}, f)\n"
    )
    place = client.place()
    run = ran.start(place, code, artifacts={"roster": ["out/**"], "checkpoints": ""})
    ran.until(place, run, lambda s: s["ended"] and not s["supervised"], 180)
    target = tmp_path / "result"
    dice = random.Random(4)
    work = ran.work_of(place, run)
    for _ in range(5):
        die(lambda: pull(client.home, run, to=target), dice.uniform(0.1, 0.8))
        for here in target.rglob("*.json") if target.exists() else ():
            relative = here.relative_to(target)
            if relative.parts[0] != ".outlive":
                assert here.read_bytes() == (work / relative).read_bytes(), f"{relative} has its name and is not whole"
    got = pull(client.home, run, to=target)
    assert got.delivery == "proved" and got.exit_code == 0
    assert [p.name for p in target.parent.iterdir() if "result" in p.name] == ["result"], "nothing is left beside it"


def test_killed_in_an_adopt_the_box_is_adopted_by_the_next(client: Client, tmp_path: Path) -> None:
    run = client.run(client.job(env={"LAST": "5", "STEP_S": "0.02"})).run
    home = Home(tmp_path / "other")
    dice = random.Random(5)
    words = [f"local:{client.box().root}"]
    for _ in range(4):
        die(lambda: adopt(home, words, budget_s=2.0), dice.uniform(0.1, 1.5))
    taken = adopt(home, words, budget_s=2.0)
    assert [s["run"] for s in taken.runs] == [run] and list(home.state().runs) == [run]
    assert len(home.state().boxes) == 1
    client.until(run, lambda s: s["ended"], 120)


def test_killed_while_they_follow_the_log_no_line_is_lost_or_doubled(client: Client) -> None:
    run = client.run(client.job(env={"LAST": "60", "STEP_S": "0.05"})).run
    dice = random.Random(6)
    while not client.status(run)["ended"]:
        for _ in range(3):
            die(lambda: once(client.home, client.record(run)), dice.uniform(0.05, 0.4))
    client.once(run)
    files = BoxFiles(client.box().root).run(run)
    mirror = Mirror(client.home, run, client.box().box_id)
    for part, path in (("log", files.log), ("journal", files.journal), ("metrics", files.metrics)):
        assert mirror.path(part).read_bytes() == Path(path).read_bytes()[: mirror.offsets()[part]], part
    assert mirror.offsets()["log"] == os.path.getsize(files.log)
    assert len([r for r in read_all(files.journal) if r["k"] == "ended"]) == 1
