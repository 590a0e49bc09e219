"""Samples: the work's processor time is a sign of life, and looking for it must not cost a core."""

import os
import subprocess
import sys
import time

import pytest

from outlive.onbox import samples
from outlive.probes.gpu_feed import GpuFeed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

BURNS = "import sys\nfor line in sys.stdin:\n    sum(range(int(line)))\n    print(flush=True)\n"


class Context:
    limits = {"sample_s": 0.0}

    def __init__(self, folder):
        class Run:
            dir = str(folder)
            samples = str(folder / "samples.jsonl")

        self.run = Run


class Looks:
    """Stands for the look at every process."""

    def __init__(self, *pids):
        self.pids, self.count = list(pids), 0

    def __call__(self):
        self.count += 1
        return list(self.pids)


class Burner:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", BURNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.burn(1)

    def burn(self, count=10000000):
        self.process.stdin.write(b"%d\n" % count)
        self.process.stdin.flush()
        assert self.process.stdout.readline()

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def burners():
    made = [Burner(), Burner()]
    yield made
    for burner in made:
        burner.end()


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves."""
    now = [1000.0]
    monkeypatch.setattr(samples, "boot_s", lambda: now[0])
    return now


@pytest.fixture
def sampler(tmp_path, clock, monkeypatch):
    made = samples.Sampler(Context(tmp_path))
    monkeypatch.setattr(made, "next_gpu_b", float("inf"))
    return made


def test_busy_work_is_found_once_a_minute(sampler, clock, burners):
    looks = Looks(burners[0].pid)
    for _ in range(5):
        burners[0].burn()
        sample = sampler.tick(looks)
        assert sampler.cpu_advanced_b == clock[0]
        assert sample["processes"] == 1 and sample["cpu_s"] > 0
        clock[0] += 10.0
    assert looks.count == 1
    clock[0] += 20.0
    sampler.tick(looks)
    assert looks.count == 2


def test_a_new_process_is_found_before_the_work_is_called_idle(sampler, clock, burners):
    looks = Looks(burners[0].pid)
    sampler.tick(looks)
    looks.pids.append(burners[1].pid)
    burners[1].burn(30000000)
    clock[0] += samples.DOUBT_S
    assert sampler.tick(looks)["processes"] == 2
    assert sampler.cpu_advanced_b == clock[0] and looks.count == 2


def test_a_process_that_ended_is_not_counted_and_a_new_attempt_is_looked_for(sampler, clock, burners):
    looks = Looks(*[b.pid for b in burners])
    assert sampler.tick(looks)["processes"] == 2
    burners[1].end()
    burners[0].burn()
    clock[0] += 1.0
    assert sampler.tick(looks)["processes"] == 1
    sampler.new_attempt()
    looks.pids = [burners[0].pid]
    clock[0] += 1.0
    sampler.tick(looks)
    assert looks.count == 2


def test_without_work_nobody_looks(sampler, clock):
    sample = sampler.tick(None)
    assert sample["processes"] == 0 and sample["cpu_s"] is None
    assert os.path.getsize(sampler.context.run.samples) > 0


@pytest.fixture
def with_gpus(sampler):
    replay = os.path.join(os.path.dirname(__file__), "..", "..", "recorded", "nvidia-smi", "replay")
    case = os.path.join(os.path.dirname(replay), "a100x8.txt")
    sampler.feed = GpuFeed([sys.executable, replay, case], 0.05)
    sampler.crew = Asked()
    yield sampler
    sampler.stop()


class Asked:
    """Stands for the children."""

    def __init__(self):
        self.count = 0

    def tick(self):
        pass

    def add(self, _key, _name, _request, _limit_s, done):
        self.count += 1
        self.done = done

    def pids(self):
        return []

    def kill(self):
        pass


def _until(condition, limit_s=120.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_while_a_gpu_is_well_readings_come_from_the_looping_tool(with_gpus, clock):
    sampler, looks = with_gpus, Looks(os.getpid())
    sampler.next_gpu_b = 0.0
    sampler.tick(looks)
    assert sampler.crew.count == 1 and sampler.pids() == []
    sampler.crew.done({"state": "ok", "devices": [], "cuda": "12.2", "driver": "1", "why": ""})
    pid = sampler.feed.pid
    assert sampler.pids() == [pid]
    _until(lambda: len(sampler.tick(looks)["gpu"]["devices"]) == 8)
    assert sampler.gpu["cuda"] == "12.2" and sampler.gpu["devices"][2]["utilisation_mean"] == 0.98
    clock[0] += 100.0
    sampler.tick(looks)
    assert sampler.crew.count == 1, "nobody is started for a reading"
    # it dies: a child finds out what that means, and what follows goes on from there
    os.kill(pid, 9)
    _until(lambda: sampler.tick(looks) and sampler.feed.pid is None)
    _until(lambda: sampler.tick(looks) and sampler.crew.count == 2)
    sampler.crew.done({"state": "ok", "devices": []})
    assert sampler.feed.pid not in (None, pid)
    sampler.tick(None)
    assert sampler.feed.pid is None, "without work nobody is watched"


def test_a_tool_that_does_not_loop_is_not_tried_for_ever(with_gpus, clock):
    sampler, looks = with_gpus, Looks(os.getpid())
    sampler.feed = GpuFeed(["false"])
    sampler.next_gpu_b = 0.0
    for tries in range(1, samples.FEED_TRIES + 1):
        _until(lambda tries=tries: sampler.tick(looks) and sampler.crew.count == tries)
        sampler.crew.done({"state": "ok", "devices": []})
        assert sampler.feed.pid is not None
        _until(lambda: sampler.tick(looks) and sampler.feed.pid is None)
    _until(lambda: sampler.tick(looks) and sampler.crew.count == samples.FEED_TRIES + 1)
    sampler.crew.done({"state": "ok", "devices": []})
    assert sampler.feed.pid is None
