"""Ending a run on purpose, giving it more time, asking it to save."""

import json
import os
import time

import pytest

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *a: print("term", flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""
POLITE = """
import signal, sys, time
def end(*a):
    open("saved.txt", "w").write("x")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""


def test_work_that_ignores_the_stop_is_killed_after_its_grace(box):
    run = box.python(STUBBORN)
    run.until_journal("first_line")
    answer = run.ask("stop", grace_s=1.0, by="test")
    assert answer["ok"]
    end = run.ended()
    assert end["state"] == "stopped" and "asked by test" in end["why"]
    assert b"term" in run.log(), "TERM came first"
    kinds = [r["k"] for r in run.journal()]
    assert kinds.index("stop_asked") < kinds.index("attempt_ended")
    assert run.journal("attempt_ended")[0]["outcome"]["cls"] == "stopped"


def test_a_stop_lets_the_work_save(box):
    run = box.python(POLITE)
    run.until_journal("first_line")
    run.ask("stop", grace_s=10.0)
    assert run.ended()["state"] == "stopped"
    assert os.path.exists(run.path("saved.txt"))


def test_a_stop_is_repeatable_and_answered_after_the_end(box):
    run = box.python(POLITE)
    run.until_journal("first_line")
    run.ask("stop", grace_s=10.0)
    run.ended()
    again = run.ask("stop")
    assert again["ok"] and "already ended" in again["text"]
    assert len(run.journal("stop_asked")) == 1


def test_always_stages_run_after_a_stop_and_can_be_stopped_too(box):
    run = box.start(
        [
            {"name": "main", "run": "echo ready; sleep 60"},
            {"name": "next", "run": "echo n > next.txt"},
            {"name": "tidy", "run": "sleep 1; echo t > tidy.txt", "always": True},
            {"name": "hangs", "run": "echo hanging; sleep 60", "always": True},
        ]
    )
    run.until_journal("first_line")
    run.ask("stop", grace_s=1.0)
    run.until_journal("attempt", stage="hangs")
    assert os.path.exists(run.path("tidy.txt")), "the stop of the run was not held against its `always` stage"
    run.work_pid(3)
    run.ask("stop", grace_s=1.0)
    end = run.ended()
    assert end["state"] == "stopped"
    assert not os.path.exists(run.path("next.txt"))
    assert end["stages_done"] == ["tidy"]


def test_a_stop_while_waiting(box):
    run = box.start("true", secrets={"names": ["TOKEN"]})
    assert run.first["state"] == "waiting"
    run.ask("stop")
    assert run.ended()["state"] == "stopped"
    assert run.journal("attempt") == []


def test_the_lease_ends_the_work_and_says_so(box):
    run = box.python(STUBBORN, lease={"max_s": 3.0, "reserve_s": 1.0})
    end = run.ended()
    assert end["state"] == "stopped" and "lease of 3 s is used up" in end["why"]
    assert end["lease_used_s"] >= 2.0
    assert run.journal("attempt_ended")[0]["outcome"]["cls"] == "lease"


def test_a_lease_can_be_extended(box):
    run = box.python(
        "import time; print('x', flush=True); time.sleep(13); open('x', 'w').write('x')", lease={"max_s": 12.0}
    )
    run.until_journal("first_line")
    answer = run.ask("extend", add_s=30.0)
    assert answer["ok"] and "42" in answer["text"]
    assert run.ended()["state"] == "succeeded"


def test_a_run_without_a_lease_has_nothing_to_extend(box):
    run = box.python("import time; print('x', flush=True); time.sleep(3)")
    run.until_journal("first_line")
    assert run.ask("extend", add_s=30.0)["ok"] is False
    run.ask("stop", grace_s=0.0)
    run.ended()


def test_a_stopped_run_goes_on_when_asked_again(box):
    code = """
import os, time
print("x", flush=True)
time.sleep(0 if os.path.exists("again") else 60)
open("x", "w").write("x")
"""
    run = box.python(code)
    run.until_journal("first_line")
    run.ask("stop", grace_s=0.0)
    run.ended()
    with open(run.path("again"), "w"):
        pass
    resumed = box.python(code)
    assert (resumed.id, resumed.how) == (run.id, "resumed")
    run.until(lambda s: s["state"] == "succeeded")


def test_a_save_is_asked_for_by_signal_only_where_it_is_caught(box):
    code = """
import os, signal, time
def save(*ignored):
    asked = open(os.environ["OUTLIVE_CONTROL_DIR"] + "/checkpoint").read()
    open("saved.txt", "w").write(asked)
signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
while not os.path.exists("saved.txt"):
    time.sleep(0.05)
time.sleep(0.5)
"""
    run = box.python(code, artifacts={"signal": "USR1"})
    run.until_journal("first_line")
    answer = run.ask("checkpoint")
    assert answer["ok"] and "USR1 sent to 1 process" in answer["text"]
    assert run.ended()["state"] == "succeeded"
    with open(run.path("saved.txt")) as handle:
        assert handle.read() == answer["id"]


def test_a_signal_that_would_kill_is_never_sent(box):
    run = box.python(
        "import time; print('ready', flush=True); time.sleep(3); open('x', 'w').write('x')",
        artifacts={"signal": "USR1"},
    )
    run.until_journal("first_line")
    answer = run.ask("checkpoint")
    assert answer["ok"] is False and "would kill" in answer["text"]
    assert run.ended()["state"] == "succeeded"


@pytest.mark.parametrize("bad", [{"kind": "stop", "grace_s": "soon"}, {"kind": "extend", "max_s": []}])
def test_a_request_that_makes_no_sense_is_answered_and_forgotten(box, bad):
    run = box.python("import time; print('ready', flush=True); time.sleep(2); open('x', 'w').write('x')")
    run.until_journal("first_line")
    answer = run.ask(**bad)
    assert answer["ok"] is False
    assert run.ended()["state"] == "succeeded"
    assert [n for n in os.listdir(run.files.inbox) if n.endswith(".json")] == []


def test_a_fence_stops_the_old_run_for_good(box):
    run = box.python(STUBBORN)
    run.until_journal("first_line")
    by = {"box": "newer", "run": "job-260101-abcd", "attempt": 1}
    status = box.call("fence", run=run.id, by=by)["status"]
    assert status["fenced"] == by
    end = run.ended()
    assert end["state"] == "stopped" and "newer" in end["why"]
    assert run.ask("retry")["ok"] is False
    fresh = box.python("open('x', 'w').write('x')")
    assert fresh.id != run.id, "a run that moved away is not attached to"


def test_a_fence_on_an_ended_run_is_seen(box):
    run = box.python("raise SystemExit(3)")
    run.ended()
    box.call("fence", run=run.id, by={"box": "newer"})
    assert run.status()["fenced"] == {"box": "newer"}


def test_a_hung_process_is_let_go_and_the_run_succeeds(box):
    code = """
import json, time
print("step 10/10 loss 0.1", flush=True)
json.dump({"a": 1}, open("final.json", "w"))
time.sleep(600)
"""
    run = box.start(
        [
            {"name": "main", "run": ["python", "-c", code], "produces": ["final.json"]},
            {"name": "after", "run": "echo a > after.txt"},
        ],
        limits={"hung_s": 1.0},
    )
    run.until_journal("first_line")
    deadline = time.monotonic() + 20
    while run.status()["state"] != "hung":
        assert time.monotonic() < deadline, run.told()
        time.sleep(0.2)
    assert run.ask("release")["ok"]
    end = run.ended()
    assert end["state"] == "succeeded", json.dumps(end["outcome"])
    assert end["stages_done"] == ["main", "after"]
    assert run.journal("attempt_ended")[0]["outcome"]["cls"] == "hung_exit"
