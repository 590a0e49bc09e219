"""A run's whole life through real processes: ends of every kind, and every one of ours killed on the way."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

SAVES = """
import json, os, sys, time
os.makedirs("ckpt", exist_ok=True)
done = sorted(n for n in os.listdir("ckpt") if n.endswith(".json"))
first = json.load(open("ckpt/" + done[-1]))["step"] if done else 0
total = int(sys.argv[1])
for step in range(first, total):
    print("step %d/%d loss %.3f" % (step, total, 3.0 / (step + 1)))
    if step % 5 == 4:
        name = "ckpt/ck-%06d.json" % (step + 1)
        with open(name + ".tmp", "w") as f:
            json.dump({"step": step + 1}, f)
        os.replace(name + ".tmp", name)
    if "hold" in sys.argv and first == 0 and step == 10:
        until = time.monotonic() + 120
        while not os.path.exists("go") and time.monotonic() < until:
            time.sleep(0.05)
    time.sleep(float(sys.argv[2]))
with open("final.json", "w") as f:
    json.dump({"steps": total, "resumed_at": first}, f)
"""
SAVING = {"artifacts": {"roster": ["final.json"], "checkpoints": "ckpt"}}


def saves(box, total=30, pause_s=0.1, hold=False, **keys):
    """``hold``: the first attempt waits at step 10 for ``go``, so that a test kills it there on any machine."""
    words = ["python", "-c", SAVES, str(total), str(pause_s)] + (["hold"] if hold else [])
    return box.start(words, **dict(SAVING, **keys))


def go(run):
    with open(run.path("go"), "w"):
        pass


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_success_is_said_after_the_artifacts_were_looked_at(box):
    run = saves(box, 10, 0.05)
    assert run.how == "created"
    end = run.ended()
    assert end["state"] == "succeeded"
    assert end["outcome"]["cls"] == "succeeded"
    found = box.call("run_manifest", run=run.id)
    assert [e["path"] for e in found["manifest"]["entries"] if e["role"] == "artifact"] == ["final.json"]
    assert all(e["sha256"] in found["proofs"] for e in found["manifest"]["entries"])
    assert not found["changed"]
    deadline = time.monotonic() + 5
    while not os.path.exists(run.files.done) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert os.path.exists(run.files.done)
    assert not os.path.exists(run.files.reserve)


@pytest.mark.parametrize(
    "code, cls, said",
    [
        ("import sys; sys.exit(3)", "unknown", "exit status 3"),
        ("raise ValueError('wrong shape')", "code", "ValueError"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--no'])", "config", "exit status 2"),
        ("import os; os.abort()", "code", "signal 6"),
        ("raise MemoryError('CUDA out of memory. Tried to allocate 2 GiB')", "oom_gpu", "memory"),
    ],
)
def test_an_error_fails_with_its_class(box, code, cls, said):
    end = box.python(code).ended()
    assert (end["state"], end["outcome"]["cls"]) == ("failed", cls)
    assert said in end["outcome"]["sentence"]


def test_a_command_that_is_not_there(box):
    run = box.start(["no-such-command-here", "x"])
    end = run.ended()
    assert (end["state"], end["outcome"]["cls"]) == ("failed", "command_missing")
    assert b"no command 'no-such-command-here'" in run.log()


def test_a_killed_work_is_resumed_from_its_checkpoint(box):
    run = saves(box, 30, 0.1, hold=True)
    run.until_journal("checkpoint")
    kill(run.work_pid(1))
    assert run.ended()["state"] == "succeeded"
    first = run.journal("attempt_ended")[0]
    assert first["outcome"]["cls"] == "killed_unexplained"
    assert first["evidence"]["signal"] == 9
    with open(run.path("final.json")) as handle:
        assert json.load(handle)["resumed_at"] >= 5


def test_a_killed_supervisor_is_restarted_by_the_keeper(box):
    run = saves(box, 60, 0.1, hold=True)
    run.until_journal("checkpoint")
    work = run.work_pid()
    kill(run.supervisor_pid())
    run.until(lambda s: s["supervised"] and len(run.journal("supervisor")) == 2)
    assert run.work_pid() == work
    go(run)
    assert run.ended()["state"] == "succeeded"
    assert len(run.journal("attempt")) == 1
    assert run.journal("attempt_ended")[0]["evidence"]["exit_code"] == 0


def test_the_status_survives_a_killed_keeper(box):
    run = saves(box, 40, 0.1, hold=True)
    run.until_journal("checkpoint")
    kill(run.keeper_pid())
    go(run)
    assert run.ended()["state"] == "succeeded"
    end = run.journal("attempt_ended")[0]
    assert end["evidence"]["exit_seen"] is True, "the supervisor is a subreaper and saw it"
    with open(run.files.attempt(1).exit) as handle:
        assert json.load(handle)["by"] == "supervisor"


def test_keeper_and_work_killed_together(box):
    run = saves(box, 30, 0.1, hold=True)
    run.until_journal("checkpoint")
    for pid in run.keepers() + [run.work_pid()]:
        kill(pid)
    assert run.ended()["state"] == "succeeded"
    assert run.journal("attempt_ended")[0]["outcome"]["cls"] == "killed_unexplained"


def test_supervisor_and_work_killed_together(box):
    run = saves(box, 30, 0.1, hold=True)
    run.until_journal("checkpoint")
    kill(run.supervisor_pid())
    kill(run.work_pid())
    assert run.ended()["state"] == "succeeded"
    assert run.journal("attempt_ended")[0]["evidence"]["exit_code"] == 137


def test_supervisor_and_keepers_killed_the_work_goes_on_alone(box):
    run = saves(box, 60, 0.1, hold=True)
    run.until_journal("checkpoint")
    work = run.work_pid()
    for pid in [run.supervisor_pid()] + run.keepers():
        kill(pid)
    status = run.until(lambda s: not s["supervised"])
    assert status["work_alive"] and status["needs_wake"]
    assert status["state"] in ("running", "starting")
    run.wake()
    assert run.until(lambda s: s["supervised"])["work_alive"]
    assert run.work_pid() == work
    go(run)
    assert run.ended()["state"] == "succeeded"
    end = run.journal("attempt_ended")[0]
    assert end["evidence"]["exit_seen"] is False, "nobody was there to see it: the artifacts decided"


def test_all_of_them_killed_then_woken(box):
    run = saves(box, 30, 0.1, hold=True)
    run.until_journal("checkpoint")
    for pid in [run.supervisor_pid()] + run.keepers() + [run.work_pid()]:
        kill(pid)
    status = run.until(lambda s: not s["supervised"] and not s["work_alive"])
    assert status["needs_wake"] and status["state"] == "unknown"
    run.wake()
    end = run.journal("attempt_ended") or [run.until_journal("attempt_ended")]
    assert end[0]["evidence"]["exit_seen"] is False
    assert end[0]["evidence"]["exit_code"] is None
    assert run.ended()["state"] == "succeeded", "it went on from its newest checkpoint"
    with open(run.path("final.json")) as handle:
        assert json.load(handle)["resumed_at"] >= 5


def test_another_machine_means_dead_whatever_the_pid_says(box):
    """The disk of a stopped box under a new boot: the recorded pid may belong to anybody."""
    run = saves(box, 30, 0.1, hold=True)
    run.until_journal("checkpoint")
    for pid in [run.supervisor_pid()] + run.keepers() + [run.work_pid()]:
        kill(pid)
    run.until(lambda s: not s["supervised"])
    decoy = subprocess.Popen(["sleep", "60"])
    try:
        for name in ("work", "keeper"):
            path = getattr(run.files.attempt(1), name)
            if name == "work":
                with open(path) as handle:
                    identity = json.load(handle)
                with open(path, "w") as handle:
                    json.dump(dict(identity, pid=decoy.pid), handle)
            else:
                with open(path, "w") as handle:
                    handle.write("%d 1\n" % decoy.pid)
        status = run.status()
        assert status["work_alive"] is False and status["keeper_alive"] is False
        run.wake()
        run.until_journal("attempt_ended")
        assert decoy.poll() is None, "a stranger with the same number was not touched"
    finally:
        decoy.kill()
        decoy.wait()


def test_a_budget_without_progress_ends(box):
    run = box.start("kill -9 $$", retry={"max": 2})
    end = run.ended()
    assert end["state"] == "failed"
    assert len(run.journal("attempt")) == 3
    assert "without a new checkpoint" in end["why"]


def test_progress_gives_the_budget_back(box):
    code = """
import json, os
n = len(os.listdir("ckpt")) if os.path.isdir("ckpt") else 0
os.makedirs("ckpt", exist_ok=True)
if n == 4:
    json.dump(1, open("final.json", "w"))
else:
    json.dump({"n": n}, open("ckpt/ck-%d.json" % (n + 1), "w"))
    os.kill(os.getpid(), 9)
"""
    run = box.python(code, retry={"max": 1}, **SAVING)
    assert run.ended()["state"] == "succeeded"
    assert len(run.journal("attempt")) == 5


def test_two_ends_at_the_same_step_stop(box):
    code = "import os; print('step 7/100 loss 1.0', flush=True); os.kill(os.getpid(), 9)"
    run = box.python(code, retry={"max": 10})
    end = run.ended()
    assert end["state"] == "failed" and "same step 7" in end["why"]
    assert len(run.journal("attempt")) == 2


def test_stages_follow_each_other_and_a_failure_ends_them(box):
    run = box.start(
        [
            {"name": "one", "run": "echo 1 > one.txt", "produces": ["one.txt"]},
            {"name": "two", "run": "exit 4"},
            {"name": "three", "run": "echo 3 > three.txt"},
            {"name": "tidy", "run": "echo t >> tidy.txt", "always": True},
            {"name": "bad", "run": "exit 5", "always": True},
            {"name": "more", "run": "echo m >> more.txt; exit 6", "always": True},
        ]
    )
    end = run.ended()
    assert end["state"] == "failed"
    assert end["stages_done"] == ["one", "tidy"]
    assert "exit status 4" in end["why"], "the first failure is the reason, not what an `always` stage did"
    assert not os.path.exists(run.path("three.txt"))
    for name in ("tidy.txt", "more.txt"):
        with open(run.path(name)) as handle:
            assert len(handle.readlines()) == 1


def test_a_smoke_stage_may_end_long_before_the_last_step(box):
    said = "for s in 1 2; do echo step $s/500 loss 3.0; sleep 0.3; done"
    run = box.start([{"name": "smoke", "run": said}, {"name": "main", "run": "echo 1 > a.txt"}])
    end = run.ended()
    assert (end["state"], end["stages_done"]) == ("succeeded", ["smoke", "main"])
    other = box.start([{"name": "short", "run": said}, {"name": "main", "run": "echo 1 > a.txt"}])
    assert other.ended()["state"] == "suspect", "only a smoke stage is meant to"


def test_set_up_runs_once_for_a_box_and_a_digest(box):
    setup = {"run": "echo x >> ../../../setups", "digest": "d1"}
    box.start("echo 1 > a.txt", setup=setup).ended()
    again = box.start("echo 2 > a.txt", setup=setup)
    again.ended()
    assert [a["stage"] for a in again.journal("attempt")] == ["main"]
    box.start("echo 3 > a.txt", setup=dict(setup, digest="d2")).ended()
    with open(os.path.join(box.files.dir, "setups")) as handle:
        assert len(handle.readlines()) == 2


@pytest.mark.parametrize(
    "command, artifacts, produces, said",
    [
        ("true", {}, ["model.bin"], "model.bin"),
        ("true", {"roster": ["out/*.pt"]}, [], "out/*.pt"),
        ("true", {}, [], "no file"),
        ("printf '{\"a\": ' > result.json", {"roster": ["result.json"]}, [], "result.json"),
        ("printf '{\"a\": ' > result.json", {}, [], "result.json"),
        (": > model.pt", {}, [], "model.pt"),
        (": > result.dat", {"roster": ["result.dat"]}, [], "result.dat"),
    ],
    ids=[
        "produces",
        "roster",
        "zero-files",
        "corrupt-declared",
        "corrupt-inferred",
        "empty-container",
        "empty-declared",
    ],
)
def test_status_zero_without_the_artifacts_is_suspect(box, command, artifacts, produces, said):
    end = box.start([{"name": "main", "run": command, "produces": produces}], artifacts=artifacts).ended()
    assert end["state"] == "suspect"
    assert said in end["why"]


def test_an_empty_file_that_nobody_declared_is_no_reason_for_doubt(box):
    assert box.start("echo 1 > result.txt; : > .done; : > stderr").ended()["state"] == "succeeded"


def test_daemons_that_stay_behind_are_ended(box):
    code = """
import os, signal, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("daemon.pid", "w").write(str(os.getpid()))
        time.sleep(120)
    os._exit(0)
while not os.path.exists("daemon.pid"):
    time.sleep(0.02)
"""
    run = box.python(code)
    assert run.ended()["state"] == "succeeded"
    with open(run.path("daemon.pid")) as handle:
        pid = int(handle.read())
    assert not os.path.exists("/proc/%d" % pid), "it ignored TERM and got KILL"


def test_a_work_that_closes_its_output_and_forks_away(box):
    code = "import os, time; os.close(1); os.close(2); time.sleep(0.5); open('x.txt', 'w').write('x')"
    end = box.python(code).ended()
    assert end["state"] == "succeeded"


def test_words_arrive_exactly(box):
    words = ["a b", "", "quote'\"$HOME`ls`", "two\nlines", "tab\t", "中文 é", "*", "--", "\\n"]
    code = "import json, sys; json.dump(sys.argv[1:], open('argv.json', 'w'))"
    run = box.start(["python", "-c", code] + words)
    assert run.ended()["state"] == "succeeded"
    with open(run.path("argv.json")) as handle:
        assert json.load(handle) == words


def test_a_string_goes_through_a_shell(box):
    run = box.start(
        "for i in 1 2 3; do echo line$i; done | tee out.txt | cat; [[ $OUTLIVE_STAGE == main ]] && echo bash > b"
    )
    assert run.ended()["state"] == "succeeded"
    assert run.log().split() == [b"line1", b"line2", b"line3"]


def test_the_environment_is_the_boxs_not_the_clients(box):
    box.environment.update(LEAK_ME="client", PYTHONHOME="/nowhere", OUTLIVE_ATTEMPT="f" * 32)
    box.call(
        "record_box",
        box={"environment": {"PATH": os.environ["PATH"], "FROM_LOGIN": "1"}, "defaults": {"D": "2"}, "thread_cap": 3},
    )
    code = "import json, os; json.dump(dict(os.environ), open('env.json', 'w'))"
    run = box.python(code, env={"LR": "0.1", "OMP_NUM_THREADS": "5"})
    assert run.ended()["state"] == "succeeded"
    with open(run.path("env.json")) as handle:
        env = json.load(handle)
    assert "LEAK_ME" not in env and "PYTHONHOME" not in env
    assert (env["FROM_LOGIN"], env["D"], env["LR"]) == ("1", "2", "0.1")
    assert env["PYTHONUNBUFFERED"] == "1"
    assert (env["MKL_NUM_THREADS"], env["OMP_NUM_THREADS"]) == ("3", "5")
    assert env["OUTLIVE_RUN"] == run.id and env["OUTLIVE_ATTEMPT"] != "f" * 32
    assert env["PYTHONPYCACHEPREFIX"].startswith(box.files.dir)
    assert os.path.dirname(sys.executable) in env["PATH"].split(":")[:2], "a string command finds it as well"


def test_what_a_log_may_hold(box):
    code = r"""
import sys, os
out = sys.stdout.buffer
out.write(b"first\n\x00\x00NUL \xff\xfe not utf-8 \xed\xa0\x80\n")
for i in range(100):
    out.write(b"\rstep %d/100 loss 0.%d" % (i, i + 1))
out.write(b"\n" + b"x" * 300000 + b"\n")
out.flush()
open("done.txt", "w").write("ok")
"""
    run = box.python(code)
    end = run.ended()
    assert end["state"] == "succeeded"
    assert end["first_line"] == "first"
    assert end["step"] == 99
    frames = box.frames("poll", runs={run.id: {"log": 0}})
    assert b"".join(p for h, p in frames if h["t"] == "log") == run.log()


@pytest.mark.parametrize("name", ["数据 盘", 'it\'s "quoted" $HOME', "two\nlines", "-dash"])
def test_a_root_may_have_any_name(box_at, tmp_path, name):
    box = box_at(tmp_path / name)
    run = saves(box, 12, 0.1)
    run.until_journal("checkpoint")
    kill(run.supervisor_pid())
    assert run.ended()["state"] == "succeeded"
    assert len(run.journal("supervisor")) == 2
