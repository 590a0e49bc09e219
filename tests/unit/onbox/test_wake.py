"""The supervisor's sleep ends with the work."""

import os
import subprocess
import sys
import time

import pytest

from outlive.onbox.wake import Wake
from outlive.probes.process import start_ticks

LONG_S = 600.0
needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this Python cannot wait for a process")


@pytest.fixture
def work():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@needs_pidfd
def test_a_sleep_ends_when_the_work_does(work):
    wake = Wake()
    wake.watch(1, work.pid, start_ticks(work.pid))
    wake.sleep(0.01)
    assert not wake.fresh
    work.kill()
    wake.sleep(LONG_S)
    assert wake.fresh
    wake.sleep(0.01)  # an ordinary sleep again: nothing spins
    wake.forget()
    assert not wake.fresh and wake.watched is None


@needs_pidfd
def test_a_work_that_is_dead_already_is_not_slept_for(work):
    ticks = start_ticks(work.pid)
    work.kill()
    os.waitid(os.P_PID, work.pid, os.WEXITED | os.WNOWAIT)
    wake = Wake()
    wake.watch(7, work.pid, ticks)
    assert wake.fresh and wake.watched == 7


@needs_pidfd
def test_another_process_under_the_number_is_not_the_work(work):
    wake = Wake()
    wake.watch(1, work.pid, (start_ticks(work.pid) or 0) + 1)
    assert wake.fresh


def test_where_nothing_can_be_watched_it_sleeps(work, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    wake = Wake()
    wake.watch(1, work.pid, None)
    wake.sleep(5.0)
    assert slept == [5.0] and not wake.fresh and wake.watched == 1


@needs_pidfd
def test_no_file_stays_open(work):
    wake = Wake()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(10):
        wake.watch(number, work.pid, start_ticks(work.pid))
    wake.forget()
    assert len(os.listdir("/proc/self/fd")) == before
