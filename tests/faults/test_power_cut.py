"""The power goes: what was not synced is gone. What was called saved, proved, copied or here is still there.

The disk is a real ext4 that is ordered to take no byte more (the order with which file systems are tested), is
unmounted, and repairs itself from its own journal.
"""

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from servers.boxes import PowerDisk

from outlive.checkpoints.index import survey
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import Store
from outlive.onbox.durable import copy
from outlive.wire.journal import JournalWriter, read_all

pytestmark = pytest.mark.root

CUTS = 12


@pytest.fixture
def disk(tmp_path):
    if os.geteuid():
        if os.environ.get("OUTLIVE_REQUIRE_ROOT"):
            pytest.fail("needs root to mount a disk")
        pytest.skip("needs root to mount a disk")
    made = PowerDisk(tmp_path / "image", tmp_path / "disk")
    yield made
    made.close()


def cut_during(disk, writes, dice):
    """Let ``writes(say)`` work in a child until the power goes at a random moment; return what it had said by then."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            writes(lambda word: os.write(write, f"{word}\n".encode("ascii")))
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb", buffering=0) as told:
        os.set_blocking(read, True)
        said = told.readline()  # it has begun
        time.sleep(dice.uniform(0.0, 0.15))
        os.set_blocking(read, False)
        said += told.read() or b""  # what is said later may not have been true when the power went
        disk.cut()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    disk.boot()
    return said.decode("ascii").split("\n")[:-1]


def content(step):
    return hashlib.sha256(b"%d" % step).digest() * 3000


def test_a_save_that_returned_is_there_and_no_half_one_is_taken_for_good(disk):
    home = str(disk.place / "ckpt")
    dice = random.Random(11)

    def saves(say):
        with Store(home, Keep(latest=2)) as store:
            newest = store.newest_good()
            step = newest.record.step if newest is not None else 0
            say(step)
            while True:
                step += 1
                writing = store.begin(step)
                writing.add_bytes("state.bin", content(step))
                writing.add_bytes("part/more.bin", content(step)[:5000])
                store.publish(writing)
                say(step)
                store.prune()

    seen = 0
    for _ in range(CUTS):
        said = [int(word) for word in cut_during(disk, saves, dice)]
        if not os.path.isdir(home):
            assert not said[1:]
            continue
        found, bad, _trace = survey(home)
        assert not bad
        newest = max((record.step for _name, record, _pinned in found), default=0)
        assert newest >= max(said), "a save that had returned is gone"
        for name, record, _pinned in found:
            assert Path(home, name, "state.bin").read_bytes() == content(record.step), name
        with Store(home, Keep(latest=2)) as store:
            good = store.newest_good()
            assert not store.set_aside and (good.record.step if good else 0) == newest
        seen = newest
    assert seen > CUTS


def test_what_the_journal_was_given_is_there_in_order(disk):
    path = str(disk.place / "journal.jsonl")
    dice = random.Random(12)

    def writes(say):
        journal = JournalWriter(path)
        say(-1)
        while True:
            record = journal.make("state", why="x" * random.randrange(3000))
            journal.write(record)
            say(record["n"])

    total = -1
    for _ in range(CUTS):
        said = [int(word) for word in cut_during(disk, writes, dice)]
        numbers = [r["n"] for r in read_all(path)]
        assert numbers == sorted(set(numbers))
        assert set(range(max([total, *said]) + 1)) <= set(numbers), "a record that was synced is gone"
        total = max([total, *numbers])
    assert total > CUTS


def test_a_durable_copy_that_was_proved_is_whole(disk, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    to = disk.place / "durable"
    to.mkdir()
    os.sync()
    dice = random.Random(13)
    entries = []
    for number in range(200):
        (work / f"{number}.bin").write_bytes(content(number))
        entries.append({"path": f"{number}.bin", "sha256": hashlib.sha256(content(number)).hexdigest(), "bytes": 96000})

    def copies(say):
        say("begin")
        for entry in entries:
            (result,) = copy({"work": str(work), "to": str(to), "run": "run", "entries": [entry]})["results"]
            if result["ok"]:
                say(entry["path"])

    count = 0
    for _ in range(CUTS):
        for name in cut_during(disk, copies, dice)[1:]:
            count += 1
            assert (to / "run" / name).read_bytes() == (work / name).read_bytes(), name
    assert count > CUTS


def test_code_is_on_the_disk_before_it_runs_and_older_checkpoints_go_after_the_newer_are(disk, tmp_path):
    """Work that syncs nothing, as `torch.save`. An empty script would end with exit status 0."""
    if sys.version_info < (3, 11):
        pytest.skip("needs a client")
    from servers.clients import Client

    from outlive.runs import demo_work
    from outlive.runs.pull import pull
    from outlive.runs.up import up
    from outlive.wire.names import BoxFiles

    client = Client(tmp_path / "client")
    root = disk.place / "box"
    up(client.home, ["local:"], root=str(root), budget_s=2.0)
    (client.project / "train.py").write_text(TRAINS)
    (client.project / "lib").mkdir()
    for number in range(30):
        (client.project / "lib" / f"m{number}.py").write_text(f"NUMBER = {number}\n")
    job = client.job("saves", "python", "train.py", roster=("result.json",), keep={"latest": 1}, env={"LAST": "120"})
    run = client.run(job).run
    files = BoxFiles(str(root)).run(run)
    dice = random.Random(14)
    try:
        for _ in range(3):
            before = len([r for r in read_all(files.journal) if r["k"] == "pruned"])
            end = time.monotonic() + 120
            while len([r for r in read_all(files.journal) if r["k"] == "pruned"]) <= before:
                assert time.monotonic() < end, Path(files.log).read_text()[-500:]
                time.sleep(0.05)
            time.sleep(dice.uniform(0.0, 0.5))
            disk.cut()
            disk.boot()
            assert (Path(files.work) / "train.py").read_text() == TRAINS
            assert (Path(files.work) / "lib/m29.py").read_text() == "NUMBER = 29\n"
            good = good_of(files)
            assert good, "the newest that was called proved is there, and its digest"
            client.once(run)
        status = client.until(run, lambda s: s["ended"], 180, wake_it=True)
        assert status["state"] == "succeeded", status["why"]
        assert status["attempt"] >= 2
        assert int(Path(files.log).read_text().rpartition("begins at ")[2].split()[0]) >= 5, "it went on, not anew"
        assert pull(client.home, run, to=tmp_path / "result").delivery == "proved"
    finally:
        demo_work.end_processes(BoxFiles(str(root)))


def test_what_was_read_and_then_lost_is_kept_aside_and_the_log_is_read_anew(box_factory, client):
    """The log is nobody's to sync. The copy here had more of it than the box has after the cut."""
    from servers.clients import work_of

    from outlive.runs.look import Mirror

    box = box_factory(disk="ext4:96:8000")
    client.up(box)
    run = client.run(client.job("says", "sh", "-c", SAYS)).run
    mirror = Mirror(client.home, run, client.box().box_id)
    end = time.monotonic() + 120
    while mirror.offsets()["log"] < 200:
        assert time.monotonic() < end
        client.once(run)
    box.power_cut()
    log = work_of(box, client, run).parent / "log"
    assert log.stat().st_size < mirror.offsets()["log"], "nothing was lost: this cut shows nothing"
    before = mirror.path("log").read_bytes()
    final = client.until(run, lambda s: s["ended"], 180, wake_it=True)
    client.once(run)
    assert final["state"] == "succeeded" and final["attempt"] == 2, final["why"]
    assert mirror.path("log.lost-1").read_bytes() == before
    assert mirror.path("log").read_bytes() == log.read_bytes()


SAYS = """
echo done >result.txt; n=0
while [ $n -lt 60 ]; do n=$((n + 1)); echo "step $n loss 0.$n"; sleep 0.1; done
"""

TRAINS = """
import json, os, time
from lib.m29 import NUMBER
os.makedirs("ckpt", exist_ok=True)
step = 0
for name in sorted(os.listdir("ckpt"), key=lambda n: int(n[5:-5]) if n[5:-5].isdigit() else -1):
    try:
        step = json.load(open("ckpt/" + name))["step"]
    except ValueError:
        pass
print("begins at", step, NUMBER, flush=True)
while step < int(os.environ["LAST"]):
    step += 1
    time.sleep(0.1)
    print("step", step, flush=True)
    if step % 5 == 0:
        with open("ckpt/.aside", "w") as out:
            json.dump({"step": step, "w": [step] * 20000}, out)
        os.rename("ckpt/.aside", "ckpt/step-%d.json" % step)
json.dump({"step": step}, open("result.json", "w"))
"""


def good_of(files):
    """Checkpoints that the journal calls proved and does not call gone; each must have the bytes it was proved with."""
    from outlive.wire.runview import RunView

    view = RunView().add_all(read_all(files.journal))
    for checkpoint in view.checkpoints.values():
        for entry in checkpoint["files"]:
            path = os.path.join(files.work, entry["path"])
            with open(path, "rb") as handle:
                assert hashlib.sha256(handle.read()).hexdigest() == entry["sha256"], entry["path"]
    return list(view.checkpoints)
