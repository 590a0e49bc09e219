"""The box's wall clock is set forward and back by a day under a living run; ages and decisions do not follow it.

Boxes share this machine's clock, so the jump is made where our half asks for the time: the program under test begins
with a `time.time` that adds what a file says. The boot clock is left alone, as a real jump leaves it. Times of files
stay real.
"""

import json
import os
import subprocess
import time

import pytest
from servers import onbox
from servers.onbox import Box, pack

from outlive.wire.journal import read_all

DAY_S = 86400

JUMPS = """
import time
def jumped(real=time.time):
    with open({path!r}) as text:
        return real() + float(text.read())
time.time = jumped
"""


class Clock:
    """The wall clock of everything of ours on the box."""

    def __init__(self, path):
        self.path = str(path)
        self.set(0)

    def set(self, seconds):
        """Put the clock so far ahead of the real one, or behind it."""
        with open(self.path + ".new", "w") as out:
            out.write(str(seconds))
        os.replace(self.path + ".new", self.path)


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path / "clock")


@pytest.fixture
def box(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(onbox, "MAIN", JUMPS.format(path=clock.path) + onbox.MAIN)
    root = tmp_path / "box"
    root.mkdir()
    made = Box(pack(tmp_path / "supervisor-test.pyz"), root)
    yield made
    made.end()


WORKS = """
import json, os, time
os.makedirs("ckpt", exist_ok=True)
step = max([int(n[5:-5]) for n in os.listdir("ckpt") if n.startswith("step-")] or [0])
print("begins at", step, flush=True)
while not os.path.exists("go"):
    step += 1
    time.sleep(0.1)
    print("step %d loss %.3f" % (step, 3 / step), flush=True)
    if step % 10 == 0:
        with open("ckpt/.aside", "w") as out:
            json.dump({"step": step}, out)
        os.rename("ckpt/.aside", "ckpt/step-%d.json" % step)
json.dump({"step": step}, open("final.json", "w"))
"""


def test_a_run_lives_through_jumps_both_ways(box, clock):
    box.call("lease_set", idle_s=3600, look_s=0.2)
    run = box.python(
        WORKS,
        lease={"max_s": 7200, "reserve_s": 10},
        artifacts={"roster": ["final.json"], "checkpoints": "ckpt", "keep": {"latest": 2}},
    )
    run.until(lambda s: s["checkpoint"])
    for ahead in (DAY_S, -DAY_S, 0):
        clock.set(ahead)
        before = len(run.journal("checkpoint"))
        end = time.monotonic() + 120
        while len(run.journal("checkpoint")) < before + 2:  # it goes on: judged, pruned and journaled
            assert time.monotonic() < end, run.told()
            time.sleep(0.05)
        said = run.journal()[-1]["w"] - time.time()
        assert abs(said - ahead) < 3600, "the jump reached the supervisor"
        status = run.status()
        assert status["state"] == "running" and status["attempt"] == 1 and status["alarms"] == []
        assert status["lease_used_s"] < 3600 and 0 <= status["attempt_age_s"] < 3600
        assert status["log_age_s"] is None or status["log_age_s"] >= 0
    clock.set(-DAY_S)  # and the next attempt comes at once, not a day later
    subprocess.run(["kill", "-9", str(run.work_pid())], check=True)
    run.until_journal("attempt", 120, attempt=2)
    run.until(lambda s: s["work_alive"])
    with open(run.path("go"), "w"):
        pass
    final = run.until(lambda s: s["ended"])
    assert final["state"] == "succeeded", final["why"]
    numbers = [r["n"] for r in run.journal()]
    assert numbers == sorted(set(numbers))
    newest = max(r["step"] for r in run.journal("checkpoint"))
    assert os.path.exists(run.path("ckpt", f"step-{newest}.json")), "the newest is not what retention took"
    for record in read_all(box.files.lease_journal):
        assert record["k"] != "lease_over", "a jump is not a day of idling"


def test_a_live_run_is_found_again_after_the_clock_was_set_back(box, clock):
    """An older run of the job bears a later date. The same command must find the one that lives, not start another."""
    clock.set(DAY_S)
    old = box.start(["python", "-c", "print('old')"])
    old.until(lambda s: s["ended"])
    clock.set(0)
    live = box.python(WORKS)
    assert live.how == "created" and live.id != old.id
    again = box.python(WORKS)
    assert (again.id, again.how) == (live.id, "attached")
    assert len(box.files.run_ids()) == 2
    live.ask("stop", wait_s=10, grace_s=0.2)


def test_work_that_was_made_after_the_clock_was_set_back_is_still_somebodys(box, clock, tmp_path):
    """`up` met a clock that was a day ahead: what is made since then bears times before `up`."""
    clock.set(DAY_S)
    os.unlink(box.files.box)
    box.call("record_box", box={})
    (tmp_path / "box" / "thesis.tex").write_text("mine")
    clock.set(0)
    with open(box.files.box) as text:
        up_wall_s = json.load(text)["up_wall_s"]
    assert up_wall_s > time.time() + DAY_S / 2
    request = {"tiers": [str(tmp_path / "box")], "since_wall_s": up_wall_s, "known": []}
    found = box.call("gate_scan", **request)["unclaimed"]["files"]
    assert [os.path.basename(f["path"]) for f in found] == ["thesis.tex"]
