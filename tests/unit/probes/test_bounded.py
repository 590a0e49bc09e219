"""Commands that answer, fail, talk too much, hang, or leave something behind."""

import os
import sys
import time

from outlive.probes import bounded
from outlive.probes.bounded import run_bounded


def test_answer_status_and_both_streams():
    answer = run_bounded(["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
    assert (answer.rc, answer.out, answer.err, answer.why) == (3, b"out\n", b"err\n", "")


def test_missing_program_is_an_answer():
    answer = run_bounded(["/nope/nvidia-smi"], 1)
    assert answer.rc is None and "/nope/nvidia-smi" in answer.why and not answer.timed_out


def test_hanging_command_and_its_children_are_ended():
    script = "trap '' TERM; sleep 60 & echo $!; wait"
    begin_s = time.monotonic()
    answer = run_bounded(["sh", "-c", script], 0.3)
    assert time.monotonic() - begin_s < 3
    assert answer.rc is None and answer.timed_out and "0.3 s" in answer.why
    child = int(answer.out)
    for _ in range(100):
        try:
            with open("/proc/%d/stat" % child) as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    break
        except OSError:
            break
        time.sleep(0.01)
    else:
        raise AssertionError("the command's child still runs")


def test_a_background_child_that_keeps_the_output_open_does_not_hold_us():
    begin_s = time.monotonic()
    answer = run_bounded(["sh", "-c", "sleep 3 & echo done"], 30)
    assert answer.rc == 0 and answer.out == b"done\n"
    assert time.monotonic() - begin_s < 2.5


def test_endless_output_is_cut(monkeypatch):
    monkeypatch.setattr(bounded, "LIMIT_BYTES", 100000)
    answer = run_bounded([sys.executable, "-c", "while True: print('y' * 1000)"], 20)
    assert answer.rc is None and "more than" in answer.why and not answer.timed_out


def test_no_input_and_a_group_of_its_own():
    code = "import os,sys; print(repr(sys.stdin.read()), os.getpgrp() == os.getpid())"
    assert run_bounded([sys.executable, "-c", code], 10).out == b"'' True\n"


def test_output_after_closing_one_stream_is_still_taken():
    answer = run_bounded(["sh", "-c", "exec 2>&-; sleep 0.1; echo late"], 10)
    assert answer.out == b"late\n" and answer.rc == 0


def test_handles_do_not_leak():
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        run_bounded(["true"], 5)
        run_bounded(["sleep", "5"], 0.05)
    assert len(os.listdir("/dev/fd")) == before
