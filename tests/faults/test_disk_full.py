"""The disk fills up at every moment that matters: a small file system of its own, real writes that are refused."""

import errno
import json
import os
import subprocess
import time

import pytest
from servers.onbox import Box, pack

from outlive.onbox.context import Context
from outlive.wire.journal import read_all

pytestmark = pytest.mark.root

WORKS = """
import json, os, sys, time
os.makedirs("ckpt", exist_ok=True)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
json.dump({"ok": 1}, open("final.json", "w"))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("program") / "supervisor-test.pyz")


@pytest.fixture
def small(program, tmp_path):
    """``small(size_mb, inodes)``: a box on a file system of that size; ``fill`` and ``free`` are its own."""
    made = []

    def make(size_mb, inodes=2000):
        reason = "" if os.geteuid() == 0 else "needs root to mount a small file system"
        place = tmp_path / (f"disk{len(made)}")
        place.mkdir()
        if not reason:
            options = f"size={size_mb}m,nr_inodes={inodes}"
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], stderr=subprocess.PIPE)
            reason = done.stderr.decode() if done.returncode else ""
        if reason:
            if os.environ.get("OUTLIVE_REQUIRE_ROOT"):
                pytest.fail(reason)
            pytest.skip(reason)
        box = Box(program, place)
        made.append((box, place))
        return box

    yield make
    for box, place in made:
        box.end()
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(box):
    """Take every byte that is left."""
    with open(os.path.join(box.root, "filler"), "ab", buffering=0) as handle:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    handle.write(b"x" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC


def use_up_page(path):
    """The last page of a file has room on a full disk as well: fill it with empty lines, which readers skip."""
    with open(path, "ab") as handle:
        handle.write(b"\n" * (-os.path.getsize(path) % 4096))


def free(box):
    os.unlink(os.path.join(box.root, "filler"))


def test_the_reserve_carries_the_journal_over_a_full_disk(small, tmp_path):
    box = small(24)
    go = tmp_path / "go"
    run = box.start(["python", "-c", WORKS, str(go)], limits={"reserve_bytes": 1 << 16})
    run.until_journal("first_line")
    assert os.path.getsize(run.files.reserve) == 1 << 16
    fill(box)
    use_up_page(run.files.journal)
    answer = run.ask("extend", max_s=600)
    assert answer["ok"], "asked through the pipe, answered from the reserve"
    subprocess.run(["kill", "-9", str(run.work_pid())], check=True)
    run.until_journal("attempt_ended", 20)
    status = run.until(lambda s: s["state"] == "waiting")
    assert "disk" in status["why"]
    assert not os.path.exists(run.files.reserve)
    assert len(run.journal("attempt")) == 1
    go.write_text("")
    free(box)
    run.until(lambda s: s["state"] == "succeeded", 40)
    assert len(run.journal("attempt")) == 2
    numbers = [r["n"] for r in read_all(run.files.journal)]
    assert numbers == sorted(set(numbers))


LAST_WORDS = {
    "none": "",
    "torn": 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nobject refcount : 2\n',
}


@pytest.mark.parametrize("words", list(LAST_WORDS))
def test_work_that_dies_on_a_full_disk_with_hardly_a_word_waits_for_room(small, tmp_path, words):
    """Its traceback has no room either; and our own reserve, just given up for the journal, is no room for it."""
    box = small(24)
    go = tmp_path / "go"
    code = (
        "import os, sys, time\nprint('ready', flush=True)\n"
        "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.05)\n"
        "if os.path.exists(sys.argv[1] + '-room'):\n    open('result', 'w').write('x')\n    sys.exit(0)\n"
        "print(sys.argv[2], end='', flush=True)\nsys.exit(1)"
    )
    run = box.start(["python", "-c", code, str(go), LAST_WORDS[words]], limits={"reserve_bytes": 4 << 20})
    run.until_journal("first_line")
    fill(box)
    use_up_page(run.files.journal)
    assert run.ask("extend", max_s=600)["ok"]
    assert not os.path.exists(run.files.reserve)
    go.write_text("")
    run.until_journal("attempt_ended", 60)
    assert run.journal("attempt_ended")[0]["outcome"]["cls"] == "disk_bytes"
    status = run.until(lambda s: s["state"] == "waiting" or s["ended"], 60)
    assert status["state"] == "waiting" and "disk" in status["why"]
    (tmp_path / "go-room").write_text("")
    free(box)
    run.until(lambda s: s["state"] == "succeeded", 60)


def test_without_a_reserve_nothing_is_lost_either(small, tmp_path):
    """What cannot be journaled is kept in memory, in order, and written when there is room."""
    box = small(24)
    go = tmp_path / "go"
    run = box.start(["python", "-c", WORKS, str(go)], limits={"reserve_bytes": 0})
    run.until_journal("first_line")
    fill(box)
    work = run.work_pid()
    use_up_page(run.files.journal)
    subprocess.run(["kill", "-9", str(work)], check=True)
    time.sleep(4)
    assert run.status()["supervised"], run.told()
    assert len(run.journal("attempt")) == 1, "nothing is started that could not be written down"
    go.write_text("")
    free(box)
    run.until(lambda s: s["state"] == "succeeded", 40)
    kinds = [r["k"] for r in run.journal()]
    assert kinds.index("attempt_ended") < len(kinds) - 1 - kinds[::-1].index("attempt")


def test_a_status_finds_room_on_a_full_disk(small, tmp_path):
    """The keeper writes it into blocks that exist; the supervisor is dead at that moment."""
    box = small(24)
    go = tmp_path / "go"
    run = box.start(
        [
            "python",
            "-c",
            "import os, sys, time\nprint('ready', flush=True)\n"
            "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.05)\nsys.exit(7)",
            str(go),
        ]
    )
    run.until_journal("first_line")
    subprocess.run(["kill", "-9", str(run.supervisor_pid())], check=True)
    fill(box)
    go.write_text("")
    deadline = time.monotonic() + 20
    while not os.path.exists(run.files.attempt(1).exit) and time.monotonic() < deadline:
        time.sleep(0.05)
    with open(run.files.attempt(1).exit) as handle:
        assert json.load(handle)["status"] == 7
    free(box)
    run.wake()
    end = run.ended()
    assert end["state"] == "failed" and "exit status 7" in end["why"]


def test_work_that_fills_the_disk_waits_for_room_and_goes_on(small):
    box = small(24)
    code = """
import os, sys
if os.path.exists("../../../../go"):
    open("final.txt", "w").write("x")
    sys.exit(0)
with open("../../../../filler", "ab") as f:
    while True:
        f.write(b"x" * 65536)
        f.flush()
"""
    run = box.start(["python", "-c", code])
    status = run.until(lambda s: s["state"] == "waiting", 40)
    assert "disk" in status["why"]
    assert run.journal("attempt_ended")[0]["outcome"]["cls"] == "disk_bytes"
    with open(os.path.join(box.root, "go"), "w"):
        free(box)
    run.until(lambda s: s["state"] == "succeeded", 40)


def test_a_full_disk_is_no_reason_to_ignore_a_stop(small, tmp_path):
    box = small(24)
    run = box.start(["python", "-c", WORKS, str(tmp_path / "never")])
    run.until_journal("first_line")
    fill(box)
    work = run.work_pid()
    run.ask("stop", wait_s=2, grace_s=0.5)
    deadline = time.monotonic() + 15
    while os.path.exists(f"/proc/{work}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{work}")
    free(box)
    assert run.until(lambda s: s["ended"], 40)["state"] == "stopped"


def test_inodes_run_out(small):
    box = small(64, inodes=400)
    code = """
import os, sys
if os.path.exists("../../../../go"):
    open("final.txt", "w").write("x")
    sys.exit(0)
os.makedirs("many", exist_ok=True)
for i in range(1000):
    open("many/%d" % i, "w").close()
"""
    run = box.start(["python", "-c", code])
    status = run.until(lambda s: s["state"] == "waiting", 40)
    assert "inodes" in status["why"]
    assert run.journal("attempt_ended")[0]["outcome"]["cls"] == "disk_inodes"
    subprocess.run(["rm", "-r", run.path("many")], check=True)
    with open(os.path.join(box.root, "go"), "w"):
        pass
    run.until(lambda s: s["state"] == "succeeded", 40)


def test_a_record_that_must_be_on_disk_is_refused_and_others_wait(small):
    box = small(24)
    answer = box.call("run_start", token="t", spec=box.spec("true", limits={"reserve_bytes": 0}), payload={}, hold=True)
    context = Context(box.files.run(answer["run"]).dir, {})
    fill(box)
    use_up_page(context.run.journal)
    context.record("state", state="waiting", why="in memory")
    assert context.view.state == "waiting" and context.unwritten
    with pytest.raises(OSError):
        context.commit("attempt", attempt=1, stage="main", uuid="u", machine="m")
    assert context.view.attempts == []
    free(box)
    assert context.flush()
    context.record("state", state="starting", why="room again")
    told = [r["why"] for r in read_all(context.run.journal) if r["k"] == "state"]
    assert told == ["in memory", "room again"]
