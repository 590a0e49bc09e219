import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from outlive.checkpoints import index as index_module
from outlive.checkpoints.errors import CheckpointError, DurableUnavailable, Locked, NewerFormat, NoGoodCheckpoint
from outlive.checkpoints.index import load, read_index
from outlive.checkpoints.lock import describe, owner
from outlive.checkpoints.record import INDEX, LOCK, RECORD, read_record
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import RESTART_SEQ, Store
from outlive.wire.clock import set_clock

SRC = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(index_module.__file__))))


def save(store, step, size=2000, **more):
    writing = store.begin(step)
    writing.add_bytes("state.bin", bytes([step % 256]) * size)
    writing.add_bytes("part/a.bin", b"%d" % step)
    return store.publish(writing, **more)


def flip(path, at=0):
    with open(path, "r+b") as handle:
        handle.seek(at)
        byte = handle.read(1)
        handle.seek(at)
        handle.write(bytes([byte[0] ^ 4]))


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "ckpt")


@pytest.fixture(autouse=True)
def clocks():
    yield
    set_clock()


# ---- beginning ----


def test_nothing_was_ever_recorded(place):
    with Store(place) as store:
        assert store.newest_good() is None
    with Store(place) as store:
        assert store.newest_good() is None


def test_what_was_saved_comes_back(place):
    with Store(place) as store:
        saved = save(store, 12, epoch=1.5, tokens=99, metrics={"loss": 2.0}, made_by={"torch": "2.13"}, kind="weights")
        assert saved.name == "step-000000012"
    with Store(place) as store:
        found = store.newest_good()
        assert found == saved
        assert found.record.tokens == 99 and found.record.epoch == 1.5 and found.record.kind == "weights"
        with open(found.file("state.bin"), "rb") as handle:
            assert handle.read() == bytes([12]) * 2000


def test_a_stranger_reads_the_record_as_plain_json(place):
    with Store(place) as store:
        saved = save(store, 3, metrics={"loss": 1.0, "nan": float("nan"), "text": "no"}, config={"lr": 0.1, "f": print})
    with open(os.path.join(saved.path, RECORD)) as handle:
        data = json.load(handle)
    assert data["format"] == "outlive-checkpoint" and data["step"] == 3 and data["metrics"] == {"loss": 1.0}
    assert [one["path"] for one in data["files"]] == ["part/a.bin", "state.bin"]
    assert data["config"]["values"]["lr"] == 0.1


def test_the_same_step_twice_keeps_both_and_the_last_number_is_the_step(place):
    with Store(place, Keep(latest=5)) as store:
        names = [save(store, 7).name for _ in range(3)]
    assert names == ["step-000000007", "step-000000007-b", "step-000000007-c"]
    with Store(place) as store:
        assert store.newest_good().name == "step-000000007-c"


def test_the_clock_goes_backwards_and_the_newest_stays_the_newest(place):
    with Store(place, Keep(latest=5)) as store:
        for step, now in ((1, 1000.0), (2, 2000.0), (3, 5.0)):
            set_clock(wall=lambda now=now: now)
            save(store, step)
    with Store(place) as store:
        assert [entry.time for entry in store.entries] == [1000.0, 2000.0, 5.0]
        assert store.newest_good().record.step == 3


def test_the_store_is_refused_when_it_is_not_open(place):
    with pytest.raises(CheckpointError):
        Store(place).begin(1)


# ---- damage ----


def test_a_flipped_bit_in_the_newest(place):
    with Store(place) as store:
        save(store, 1)
        newest = save(store, 2)
    flip(newest.file("state.bin"), 77)
    with Store(place) as store:
        assert store.newest_good().record.step == 1
        assert [one.name for one in store.set_aside] == ["step-000000002"]
        assert "digest" in store.set_aside[0].why
        assert any("set aside" in note for note in store.notes)
        assert save(store, 2).name == "step-000000002"
        assert store.newest_good().record.step == 2


@pytest.mark.parametrize("keep_bytes", [0, 1, 1999])
def test_a_truncated_file_in_the_newest_two(place, keep_bytes):
    with Store(place, Keep(latest=3)) as store:
        saved = [save(store, step) for step in (1, 2, 3)]
    for one in saved[1:]:
        os.truncate(one.file("state.bin"), keep_bytes)
    with Store(place) as store:
        assert store.newest_good().record.step == 1
        assert sorted(one.name for one in store.set_aside) == ["step-000000002", "step-000000003"]


@pytest.mark.parametrize("at", range(0, 400, 23))
def test_a_flipped_bit_anywhere_in_the_record(place, at):
    with Store(place) as store:
        save(store, 1)
        newest = save(store, 2)
    flip(os.path.join(newest.path, RECORD), at)
    with Store(place) as store:
        assert store.newest_good().record.step == 1


def test_a_missing_record_and_a_missing_file(place):
    with Store(place, Keep(latest=3)) as store:
        saved = [save(store, step) for step in (1, 2, 3)]
    os.unlink(os.path.join(saved[2].path, RECORD))
    os.unlink(saved[1].file("part/a.bin"))
    with Store(place) as store:
        assert store.newest_good().record.step == 1
        assert len(store.set_aside) == 2


def test_all_bad_is_an_error_that_names_them_and_changes_nothing(place):
    with Store(place) as store:
        for step in (1, 2):
            flip(save(store, step).file("state.bin"))
    for _ in range(2):
        with Store(place) as store:
            with pytest.raises(NoGoodCheckpoint) as error:
                store.newest_good()
            assert {one.name for one in error.value.bad} == {"step-000000001", "step-000000002"}
            for word in ("step-000000001", place, "digest", "allow_restart"):
                assert word in str(error.value)
    assert os.path.isdir(os.path.join(place, "step-000000002"))


def test_a_restart_on_purpose_counts_on(place):
    with Store(place) as store:
        flip(save(store, 5).file("state.bin"))
        assert store.newest_good(allow_restart=True) is None
        assert store.set_aside
        assert save(store, 1).record.seq >= RESTART_SEQ
        assert store.newest_good().record.step == 1


def test_everything_vanished_but_the_index_remembers(place):
    with Store(place) as store:
        saved = save(store, 1)
    shutil.rmtree(saved.path)
    for _ in range(2):
        with Store(place) as store, pytest.raises(NoGoodCheckpoint, match="it is gone"):
            store.newest_good()


@pytest.mark.parametrize("ruin", ["lost", "empty", "garbage", "flipped", "cut"])
def test_the_index_is_rebuilt(place, ruin):
    with Store(place, Keep(latest=3)) as store:
        for step in (1, 2, 3):
            save(store, step, metrics={"val_loss": 1.0 / step}, milestone=step == 2)
        store.pin("step-000000001")
        before = store.entries
    path = os.path.join(place, INDEX)
    if ruin == "lost":
        os.unlink(path)
    elif ruin == "flipped":
        flip(path, 200)
    else:
        with open(path, "rb") as handle:
            raw = handle.read()
        with open(path, "wb") as handle:
            handle.write({"empty": b"", "garbage": b"\x00\xff{", "cut": raw[: len(raw) // 2]}[ruin])
    with Store(place) as store:
        assert store.entries == before
        assert store.newest_good().record.step == 3
    assert read_index(place)[0].entries[-1].name == "step-000000003"


def test_an_unreadable_index_without_checkpoints_is_not_a_fresh_start(place):
    os.makedirs(place)
    with open(os.path.join(place, INDEX), "wb") as handle:
        handle.write(b"{")
    with Store(place) as store, pytest.raises(NoGoodCheckpoint):
        store.newest_good()


def test_a_newer_format_is_not_passed_over(place):
    with Store(place) as store:
        save(store, 1)
        newest = save(store, 2)
    path = os.path.join(newest.path, RECORD)
    with open(path) as handle:
        data = json.load(handle)
    data["version"] = 7
    with open(path, "w") as handle:
        json.dump(data, handle)
    with pytest.raises(NewerFormat, match="7"):
        Store(place).open()
    shutil.rmtree(newest.path)
    with open(os.path.join(place, INDEX), "w") as handle:
        json.dump({"schema": "outlive-checkpoints-index/2"}, handle)
    with pytest.raises(NewerFormat):
        Store(place).open()


def test_a_checkpoint_that_could_not_be_loaded_is_rejected(place):
    with Store(place) as store:
        save(store, 1)
        newest = save(store, 2)
        store.reject(newest, "its optimizer state has another length")
        assert store.newest_good().record.step == 1
        assert store.set_aside[0].why == "its optimizer state has another length"


def test_a_further_check_is_asked(place):
    with Store(place) as store:
        save(store, 1)
        save(store, 2)
        found = store.newest_good(check=lambda saved: "no" if saved.record.step == 2 else "")
        assert found.record.step == 1


def test_only_two_damaged_ones_are_kept(place):
    with Store(place, Keep(latest=9)) as store:
        save(store, 1)
        for step in range(2, 6):
            flip(save(store, step).file("state.bin"))
        store.newest_good()
    assert len([name for name in os.listdir(place) if name.startswith(".bad-")]) == 2


def test_leftovers_are_cleared_and_confuse_nobody(place):
    with Store(place) as store:
        save(store, 1)
        writing = store.begin(2)
        writing.add_bytes("state.bin", b"half")
        os.makedirs(os.path.join(place, ".removing-step-000000000-abcd"))
        with open(os.path.join(place, "." + INDEX + "-abcd"), "w") as handle:
            handle.write("x")
    with Store(place) as store:
        assert store.newest_good().record.step == 1
        assert sorted(os.listdir(place)) == [LOCK, INDEX, "step-000000001"]


# ---- what a failing save leaves ----


def test_an_open_or_failed_file_is_never_published(place):
    with Store(place) as store:
        writing = store.begin(1)
        writing.open("a").write(b"x")
        with pytest.raises(CheckpointError, match="still open"):
            store.publish(writing)
        writing = store.begin(1)
        with pytest.raises(KeyError):
            with writing.open("a") as handle:
                handle.write(b"x")
                raise KeyError
        with pytest.raises(CheckpointError):
            store.publish(writing)
        assert store.entries == []
        assert not [name for name in os.listdir(place) if name.startswith(".writing")]


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "", ".", RECORD, "a/../b"])
def test_a_file_stays_inside(place, name):
    with Store(place) as store:
        writing = store.begin(1)
        with pytest.raises(ValueError):
            writing.open(name)


def test_other_ranks_write_into_the_same_save(place):
    from outlive.checkpoints.commit import Writing

    with Store(place) as store:
        writing = store.begin(1)
        other = Writing.join(writing.path)
        other.add_bytes("rank1.bin", b"1" * 300000)
        with open(os.path.join(writing.path, "foreign.bin"), "wb") as handle:
            handle.write(b"2")
        writing.include(other.files)
        assert [one.path for one in writing.adopt_all()] == ["foreign.bin"]
        saved = store.publish(writing, kind="sharded")
        assert [one.path for one in saved.record.files] == ["foreign.bin", "rank1.bin"]
        assert store.verify(saved).ok
        with pytest.raises(CheckpointError):
            Writing.join(place)


# ---- keeping ----


def test_retention_keeps_latest_best_milestones_and_pinned(place):
    losses = {1: 5.0, 2: 0.5, 3: 4.0, 4: 3.0, 5: 2.0, 6: 9.0}
    with Store(place, Keep(latest=2, best=1)) as store:
        for step, loss in losses.items():
            save(store, step, metrics={"val_loss": loss}, milestone=step == 3)
        store.pin("step-000000001")
        assert store.prune() == ["step-000000004"]
        assert [entry.step for entry in store.entries] == [1, 2, 3, 5, 6]
        store.pin("step-000000001", False)
        assert store.prune() == ["step-000000001"]
        with pytest.raises(CheckpointError):
            store.pin("step-000000001")
    assert sorted(name for name in os.listdir(place) if name.startswith("step")) == [
        "step-00000000%d" % step for step in (2, 3, 5, 6)
    ]


def test_what_somebody_reads_is_not_removed(place, tmp_path, monkeypatch):
    from outlive.wire.clock import boot_s

    leases = tmp_path / "leases"
    leases.mkdir()
    monkeypatch.setenv("OUTLIVE_LEASES", str(leases))
    monkeypatch.setenv("OUTLIVE_WORK", str(tmp_path))
    with Store(place, Keep(latest=1, best=0)) as store:
        for step in (1, 2, 3):
            save(store, step)
        paths = ["ckpt/step-000000002", "elsewhere"]
        (leases / "pull.json").write_text(json.dumps({"machine": "m", "until_b": boot_s() + 600, "paths": paths}))
        (leases / "old.json").write_text(json.dumps({"until_b": boot_s() - 1, "paths": ["ckpt/step-000000001"]}))
        (leases / "broken.json").write_text("{")
        assert store.prune() == ["step-000000001"]
        (leases / "pull.json").unlink()
        assert store.prune() == ["step-000000002"]


def test_a_bad_newest_does_not_let_the_last_good_go(place):
    with Store(place, Keep(latest=1, best=0)) as store:
        good = save(store, 1)
        assert store.verify(good).ok
        newest = save(store, 2)
        flip(newest.file("state.bin"))
        assert store.verify(newest).ok is False
        assert store.prune() == []
        assert store.newest_good().record.step == 1


def test_verify_by_structure_sees_what_a_digest_of_garbage_would_not(place):
    with Store(place) as store:
        writing = store.begin(1)
        writing.add_bytes("model.safetensors", b"\x10\0\0\0\0\0\0\0 not json at all")
        saved = store.publish(writing)
        assert store.verify(saved).ok
        verdict = store.verify(saved, "structure")
        assert verdict.ok is False and "model.safetensors" in verdict.why
        assert store.entries[-1].bad


# ---- two processes ----


def test_a_second_process_is_refused_by_name(place):
    code = (
        "import sys; sys.path.insert(0, %r)\n"
        "from outlive.checkpoints.store import Store\n"
        "Store(%r).open(); print('open', flush=True); sys.stdin.read()\n" % (SRC, place)
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(Locked, match=str(other.pid)):
            Store(place).open()
    finally:
        other.kill()
        other.communicate()
    with Store(place) as store:  # the dead one's lock is nobody's
        save(store, 1)


def test_a_second_store_in_this_process_is_refused(place):
    with Store(place):
        with pytest.raises(Locked, match="this same process"):
            Store(place).open()


def test_a_forked_child_does_not_hold_its_dead_parents_directory(place, tmp_path):
    """A loader's worker survives a killed training for a while."""
    child = str(tmp_path / "child")
    code = (
        "import os, sys, time; sys.path.insert(0, %r)\n"
        "from outlive.checkpoints.store import Store\n"
        "Store(%r).open()\n"
        "if os.fork() == 0:\n"
        "    open(%r, 'w').write(str(os.getpid())); os.rename(%r, %r); time.sleep(600)\n"
        "time.sleep(600)\n" % (SRC, place, child + ".new", child + ".new", child)
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    worker = None
    try:
        until = time.monotonic() + 120
        while not os.path.exists(child):
            assert time.monotonic() < until and parent.poll() is None
            time.sleep(0.01)
        with open(child) as handle:
            worker = int(handle.read())
        parent.kill()
        parent.wait()
        with Store(place) as store:
            save(store, 1)
    finally:
        parent.kill()
        parent.wait()
        if worker:
            os.kill(worker, signal.SIGKILL)


def test_a_lock_that_a_dead_owners_child_still_holds_is_taken_over(place):
    """Made by hand: a child that was forked from C code knows no Python hook."""
    import fcntl

    os.makedirs(place)
    held = os.open(os.path.join(place, LOCK), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        from outlive.checkpoints.lock import identity

        os.write(held, json.dumps(dict(identity(), pid=gone.pid, start_ticks=1)).encode())
        with Store(place) as store:
            save(store, 1)
            assert owner(place)["pid"] == os.getpid()
    finally:
        os.close(held)


def test_an_owner_in_words():
    assert "pid" in describe({"pid": os.getpid(), "machine": None}) or "process" in describe({"pid": 1})
    assert describe(None) == "it does not say which"
    assert "(run a-b)" in describe({"pid": 7, "host": "box", "run": "a-b"})


def _begin(place, answers):
    from outlive.checkpoints import lock

    lock.WAIT_S = 0.2
    try:
        with Store(place) as store:
            answers.put("open" if store.entries else "empty")
            time.sleep(0.2)
    except Locked:
        answers.put("locked")


def test_a_child_process_opens_its_own(place):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with Store(place) as store:
        save(store, 1)
        child = context.Process(target=_begin, args=(place, answers))
        child.start()
        assert answers.get(timeout=120) == "locked"
        child.join(120)


# ---- the durable place ----


@pytest.fixture
def away(tmp_path):
    return str(tmp_path / "mnt" / "durable")


@pytest.fixture
def both(place, away):
    os.makedirs(os.path.dirname(away))
    return lambda **more: Store(place, Keep(latest=9), durable=away, **more)


def test_either_side_can_be_the_source(both, place, away):
    with both() as store:
        for step in (1, 2):
            saved = save(store, step)
            assert store.copy_out(saved) in ("cache", "storage")
        local_only = save(store, 3)
        assert [one.name for one in store.uncopied()] == [local_only.name]
        assert store.entries[1].durable["place"] == away
    with both() as store:
        assert store.newest_good().record.step == 3
    shutil.rmtree(place)
    with both() as store:
        found = store.newest_good()
        assert found.record.step == 2 and found.path.startswith(place)
        assert store.uncopied() == []
        assert save(store, 3).record.seq == 3


def test_a_damaged_local_one_is_fetched_again(both):
    with both() as store:
        saved = save(store, 1)
        store.copy_out(saved)
        flip(saved.file("state.bin"))
    with both() as store:
        found = store.newest_good()
        assert found.record == saved.record and store.verify(found).ok


def test_a_damaged_copy_is_not_believed(both, place, away):
    with both() as store:
        first, second = save(store, 1), save(store, 2)
        store.copy_out(first)
        store.copy_out(second)
    flip(os.path.join(away, second.name, "state.bin"))
    shutil.rmtree(place)
    with both() as store:
        assert store.newest_good().record.step == 1


def test_a_copy_that_was_cut_short_goes_on(both, away):
    with both() as store:
        saved = save(store, 1)
        os.makedirs(os.path.join(away, saved.name))
        with open(os.path.join(away, saved.name, "state.bin"), "wb") as handle:
            handle.write(b"half")
        assert store.candidates()[0].durable is None
        store.copy_out(saved)
        assert store.candidates()[0].durable == saved.name
        store.copy_out(saved)  # again: nothing new
    assert sorted(os.listdir(os.path.join(away, saved.name))) == [RECORD, "part", "state.bin"]


def test_what_is_damaged_here_is_not_copied_there(both, away):
    from outlive.checkpoints.errors import Damaged

    with both() as store:
        saved = save(store, 1)
        flip(saved.file("state.bin"))
        with pytest.raises(Damaged):
            store.copy_out(saved)
    assert not os.path.exists(os.path.join(away, saved.name, RECORD))


def test_two_lines_with_the_same_step_share_a_durable_place(both, place, away):
    with both() as store:
        store.copy_out(save(store, 1))
    other = Store(place + "-other", durable=away)
    with other:
        writing = other.begin(1)
        writing.add_bytes("x", b"other")
        other.copy_out(other.publish(writing))
    assert sorted(os.listdir(away)) == ["step-000000001", "step-000000001-b"]


def test_the_mount_is_not_there(place, tmp_path):
    mount = str(tmp_path / "not-mounted")
    os.makedirs(os.path.join(mount, "ckpt"))
    with Store(place, durable=os.path.join(mount, "ckpt"), mount=mount) as store:
        with pytest.raises(NoGoodCheckpoint, match="not mounted") as error:
            store.newest_good()
        assert mount in str(error.value)
        saved = save(store, 1)
        with pytest.raises(DurableUnavailable, match="not mounted"):
            store.copy_out(saved)
        # what is here is enough to go on with, and the note says that nobody looked further
        assert store.newest_good().record.step == 1
        assert any("not mounted" in note for note in store.notes)
    with Store(place + "2", durable=str(tmp_path / "nowhere" / "ckpt")) as store:
        with pytest.raises(NoGoodCheckpoint, match="is it mounted"):
            store.newest_good()
        assert store.newest_good(allow_restart=True) is None
        assert save(store, 1).record.seq == RESTART_SEQ


def test_a_full_or_forbidden_durable_place_is_named(both, away, monkeypatch):
    import errno

    with both() as store:
        saved = save(store, 1)

        def refuse(*words, **more):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr("outlive.checkpoints.durable._copy_file", refuse)
        with pytest.raises(DurableUnavailable, match="read-only") as error:
            store.copy_out(saved)
        assert away in str(error.value)


def test_retention_at_the_durable_place(both, away):
    with both(durable_keep=Keep(latest=1, best=1)) as store:
        for step in (1, 2, 3, 4):
            store.copy_out(save(store, step, metrics={"val_loss": abs(step - 2)}))
            store.prune()
    assert sorted(os.listdir(away)) == ["step-000000002", "step-000000004"]


def test_loading_an_index_writes_nothing(place):
    with Store(place) as store:
        save(store, 1)
    os.unlink(os.path.join(place, INDEX))
    assert [entry.step for entry in load(place).entries] == [1]
    assert not os.path.exists(os.path.join(place, INDEX))
    assert read_record(os.path.join(place, "step-000000001")).step == 1
