"""The looping tool, replayed (tests/recorded/nvidia-smi; reconstructions, no real GPU)."""

import sys
import time
from pathlib import Path

import pytest

from outlive.probes import gpu_feed, process
from outlive.probes.gpu import parse_query
from outlive.probes.gpu_feed import GpuFeed

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "nvidia-smi"
LIMIT_S = 120.0


def replay(case):
    return [sys.executable, str(RECORDED / "replay"), str(RECORDED / (case + ".txt"))]


@pytest.fixture
def feed():
    made = []

    def make(argv, every_s=0.05):
        made.append(GpuFeed(argv, every_s))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def until(condition):
    end = time.monotonic() + LIMIT_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end
        time.sleep(0.02)


def next_reading(one):
    return until(lambda: one.tick() and one.reading())


def test_readings_come_again_and_again_from_one_process(feed):
    one = feed(replay("a100x8"))
    assert one.start()
    pid = one.pid
    for _ in range(3):
        found = next_reading(one)
        assert found.state == "ok" and [d.index for d in found.devices] == list(range(8))
        assert found.devices[2].utilisation == found.devices[2].utilisation_mean == 0.98
    assert one.pid == pid and one.given == 3
    one.stop()
    until(lambda: not process.is_alive(pid, None))
    assert one.pid is None and not one.tick()


def test_a_field_that_the_driver_lost_is_asked_for_by_its_new_name(feed):
    one = feed(replay("h100-renamed-fields"))
    assert one.start()
    found = next_reading(one)
    assert found.devices and found.devices[0].throttle is not None


def test_a_reading_that_is_still_printed_waits(feed):
    one = feed(["cat"])
    lines = [b"0, A, GPU-0, 98", b"1, A, GPU-1, 10", b"0, A, GPU-0, 50", b"1, A, GPU-1, 30"]
    one._asked = ["index", "name", "uuid", "utilization.gpu"]
    one._held = b"\n".join(lines[:2]) + b"\n"
    assert one.reading() is None, "how many devices there are is known with the second"
    one._held += lines[2] + b"\n" + lines[3][:6]
    first = one.reading()
    assert [d.utilisation for d in first.devices] == [0.98, 0.1]
    one._held += lines[3][6:] + b"\n"
    second = one.reading()
    assert [d.utilisation for d in second.devices] == [0.5, 0.3]
    one._held += b"\n".join(lines) + b"\n"
    third = one.reading()
    assert [d.utilisation_mean for d in third.devices] == [0.74, 0.2]
    assert one._held == b"" and one.reading() is None


def test_one_device_alone_is_a_reading_a_line(feed):
    one = feed(["cat"])
    one._asked = ["index", "utilization.gpu"]
    one._held = b"0, 10\n0, 20\n0, 30\n"
    found = one.reading()
    assert found.devices[0].utilisation == 0.3 and found.devices[0].utilisation_mean == 0.2


def test_a_device_that_fell_off_is_sick(feed):
    one = feed(["cat"])
    one._asked = ["index", "utilization.gpu"]
    one._held = b"0, 10\n1, 10\n0, 10\n1, [Unknown Error]\n"
    found = one.reading()
    assert found.state == "sick" and "GPU 1" in found.why


def test_a_tool_that_ends_or_falls_silent_is_stopped(feed, monkeypatch):
    one = feed(["false"])
    assert one.start()
    until(lambda: not one.tick())
    assert one.pid is None and one.given == 0
    monkeypatch.setattr(gpu_feed, "SILENT_S", 0.2)
    two = feed(replay("hang"))
    assert two.start()
    pid = two.pid
    until(lambda: not two.tick())
    assert not process.is_alive(pid, None)


def test_no_tool_is_no_feed(feed):
    assert not feed(["/nonexistent/nvidia-smi"]).start()


def test_endless_words_do_not_fill_the_memory(feed):
    one = feed(["sh", "-c", "yes words"])
    assert one.start()
    until(lambda: one.tick() and len(one._held) == gpu_feed.KEEP_BYTES)


def test_the_answer_of_one_call_reads_as_before():
    line = (RECORDED / "a100x8.txt").read_text().splitlines()[2]
    assert parse_query(line)[0].utilisation_mean is None
