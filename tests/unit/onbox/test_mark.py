"""A poll that finds nothing new is answered by a shell, and only if nothing is new."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from outlive.onbox import mark, poll
from outlive.probes import process
from outlive.wire.clock import wall_s
from outlive.wire.names import BoxFiles, write_aside

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="marks need /proc")

RUN = "count-260101-abcd"


class Place:
    """A box with one run, a supervisor, a keeper and work, none of which is ours."""

    def __init__(self, root):
        self.box = BoxFiles(str(root))
        self.run = self.box.run(RUN)
        attempt = self.run.attempt(1)
        os.makedirs(attempt.dir)
        self.processes = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
        ticks = [(p.pid, process.start_ticks(p.pid)) for p in self.processes]
        files = {
            self.box.box_id: "0123456789abcdef\n",
            self.run.journal: '{"n":0}\n',
            self.run.log: "step 1\n",
            self.run.spec: "{}",
            self.run.supervisor: "%d %d\n" % ticks[0],
            attempt.keeper: "%d %d\n" % ticks[1],
            attempt.work: json.dumps({"machine": "m", "pid": ticks[2][0], "start_ticks": ticks[2][1]}),
        }
        for path, text in files.items():
            with open(path, "w") as out:
                out.write(text)
        self.status = {
            "run": RUN,
            "attempt": 1,
            "state": "running",
            "needs_wake": False,
            "supervised": True,
            "keeper_alive": True,
            "work_alive": True,
        }

    def mark(self):
        return mark.Marker(self.box, [RUN]).mark([self.status])

    def asked(self, made, env=None, nonce="abcd", shell="sh"):
        """What the shell answers: "same" or the word of the program that would have answered in full."""
        words = [shell, os.path.join(self.box.dir, made["script"]), nonce, made["mark"], made["pids"], made["runs"]]
        done = subprocess.run(
            words + ["/bin/echo", "in full"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, timeout=60
        )
        lines = done.stdout.decode("ascii").splitlines()
        if lines == ["in full"]:
            return "in full", {}
        assert lines[:2] == ["", "outlive-reply " + nonce] and lines[3:] == ['{"t":"end"}'], done
        answer = json.loads(lines[2])
        return answer["t"], answer

    def close(self):
        for each in self.processes:
            each.kill()
            each.wait()


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(tmp_path)
    monkeypatch.setattr(mark, "wall_s", lambda: wall_s() + 60)  # as if the files had rested for a minute
    yield made
    made.close()


SHELLS = [found for found in ("sh", "bash", "dash") if shutil.which(found)]


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_new_is_the_same_with_clocks_and_room(place, shell):
    made = place.mark()
    word, answer = place.asked(made, shell=shell)
    assert word == "same"
    assert float(answer["up"]) >= float(made["up"]) and abs(answer["wall"] - time.time()) < 3600
    unit, total, _, inodes, _ = (int(w) for w in answer["space"].split())
    room = poll.space(place.box.dir)
    assert unit * total == room["disk_total_bytes"]
    assert inodes == (room["disk_total_inodes"] or 0)


def append(path):
    with open(path, "a") as out:
        out.write("x")


CHANGES = {
    "the journal grows": lambda p: append(p.run.journal),
    "the log grows": lambda p: append(p.run.log),
    "metrics begin": lambda p: append(p.run.metrics),
    "samples begin": lambda p: append(p.run.samples),
    "it is fenced": lambda p: write_aside(p.run.fence, b"{}"),
    "its spec is replaced by one of the same size": lambda p: write_aside(p.run.spec, b"[]"),
    "another supervisor": lambda p: append(p.run.supervisor),
    "the attempt ends": lambda p: append(p.run.attempt(1).exit),
    "its log is gone": lambda p: os.unlink(p.run.log),
    "the run is gone": lambda p: shutil.rmtree(p.run.dir),
    "another run": lambda p: in_another_second(p.box.run("other-260101-abcd").dir),
    "a box lease": lambda p: append(p.box.lease),
    "another box": lambda p: write_aside(p.box.box_id, b"fedcba9876543210\n"),
    "no box id": lambda p: os.unlink(p.box.box_id),
    "the supervisor is killed": lambda p: end(p.processes[0]),
    "the supervisor is killed and not reaped": lambda p: zombie(p.processes[0]),
    "the supervisor stands still": lambda p: stop(p.processes[0]),
    "the keeper is killed": lambda p: end(p.processes[1]),
    "the work is killed": lambda p: end(p.processes[2]),
    "the work stands still": lambda p: stop(p.processes[2]),
}


def in_another_second(folder):
    """Times are compared by the second; that files have rested for longer is only pretended here."""
    time.sleep(1.1)
    os.mkdir(folder)


def end(child):
    child.kill()
    child.wait()


def zombie(child):
    child.kill()
    wait_for(child.pid, "Z")


def stop(child):
    child.send_signal(signal.SIGSTOP)
    wait_for(child.pid, "T")


def wait_for(pid, state):
    until = time.monotonic() + 60
    while process.stat(pid).state != state:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_whatever_is_new_is_answered_in_full(place, change):
    made = place.mark()
    assert place.asked(made)[0] == "same"
    CHANGES[change](place)
    assert place.asked(made)[0] == "in full"


def test_another_boot_or_first_process_is_answered_in_full(place, monkeypatch):
    real = process.boot_id
    monkeypatch.setattr(process, "boot_id", lambda: "another boot")
    assert place.asked(place.mark())[0] == "in full"
    monkeypatch.setattr(process, "boot_id", real)
    first = process.start_ticks
    monkeypatch.setattr(process, "start_ticks", lambda pid: first(pid) + 1)
    assert place.asked(place.mark())[0] == "in full"


def test_a_number_that_came_round_again_is_answered_in_full(place):
    made = place.mark()
    pid, ticks = made["pids"].split()[0].split(":")
    made["pids"] = made["pids"].replace(pid + ":" + ticks, "%s:%d" % (pid, int(ticks) + 1))
    assert place.asked(made)[0] == "in full"


def test_without_the_tools_it_is_answered_in_full(place, tmp_path):
    made = place.mark()
    for name in ("stat", "sha256sum", "date"):
        tools = tmp_path / ("no-" + name)
        tools.mkdir()
        for other in {"stat", "sha256sum", "date"} - {name}:
            os.symlink(shutil.which(other), str(tools / other))
        assert place.asked(made, env={"PATH": str(tools)}, shell=shutil.which("sh"))[0] == "in full"


def test_what_cannot_be_told_again_has_no_mark(place, monkeypatch):
    assert place.mark() is not None
    for change in ({"needs_wake": True}, {"state": "unknown"}, {"attempt": 2}):
        before = dict(place.status)
        place.status.update(change)
        assert place.mark() is None, change
        place.status = before
    place.processes[0].send_signal(signal.SIGSTOP)
    wait_for(place.processes[0].pid, "T")
    assert place.mark() is None, "a supervisor that stands still is looked at in full"
    place.processes[0].send_signal(signal.SIGCONT)
    wait_for(place.processes[0].pid, "S")
    assert place.mark() is not None
    append(place.box.lease)
    assert place.mark() is None
    os.unlink(place.box.lease)
    monkeypatch.setattr(mark, "wall_s", wall_s)
    write_aside(place.run.fence, b"{}")
    assert place.mark() is None, "what has just changed may change again within its clock's grain"


def test_what_changes_while_it_is_answered_is_seen_the_next_time(place):
    marker = mark.Marker(place.box, [RUN])
    append(place.run.journal)
    assert place.asked(marker.mark([place.status]))[0] == "in full"


def test_a_disk_that_takes_no_script_has_no_mark(place):
    name = place.mark()["script"]
    path = os.path.join(place.box.dir, name)
    os.unlink(path)
    os.mkdir(path)  # root may write anywhere: what stands in its way stands for a disk that takes nothing
    assert place.mark() is None
    os.rmdir(path)
    assert place.mark()["script"] == name and os.path.isfile(path)
