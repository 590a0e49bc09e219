"""A checkpoint meets a disk without bytes or inodes: what was there stays whole, and the next save works."""

import os
import subprocess

import pytest

from outlive.checkpoints.errors import NoRoom
from outlive.checkpoints.index import read_index
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import Store

pytestmark = pytest.mark.root
PAGE = 4096
KEEP = Keep(latest=1, best=1)


@pytest.fixture
def disk(tmp_path):
    """``disk(bytes, inodes)``: an empty memory file system of that size."""
    made = []

    def make(size, inodes=1000):
        place = tmp_path / f"disk{len(made)}"
        place.mkdir()
        if os.geteuid():
            if os.environ.get("OUTLIVE_REQUIRE_ROOT"):
                pytest.fail("needs root to mount a small file system")
            pytest.skip("needs root to mount a small file system")
        options = f"size={size},nr_inodes={inodes}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True, timeout=60)
        made.append(place)
        return place

    yield make
    for place in made:
        subprocess.run(["umount", "-l", str(place)], check=True, timeout=60)


def content(step):
    return {"state.bin": bytes([step]) * (8 * PAGE), "part/weights.bin": bytes([step + 100]) * (5 * PAGE)}


def save(store, step):
    writing = store.begin(step, expect_bytes=1)  # the gate is told too little: the disk itself has to refuse
    try:
        for name, data in content(step).items():
            writing.add_bytes(name, data)
    except BaseException:
        writing.abandon()
        raise
    return store.publish(writing, metrics={"val_loss": 1.0 / step})


def whole(store, saved):
    for name, data in content(saved.record.step).items():
        with open(saved.file(name), "rb") as handle:
            assert handle.read() == data


@pytest.mark.parametrize("free_pages", range(0, 24))
def test_the_disk_is_full_at_each_page_of_a_save(disk, monkeypatch, free_pages):
    monkeypatch.setattr("outlive.checkpoints.room.SPARE_BYTES", 0)
    monkeypatch.setattr("outlive.checkpoints.store.need_room", lambda *words: None)
    place = disk(80 * PAGE)
    directory = str(place / "ckpt")
    with Store(directory, KEEP) as store:
        whole(store, save(store, 1))
        room = os.statvfs(place)
        with open(place / "filler", "wb") as handle:
            handle.write(b"x" * max(0, (room.f_bavail * room.f_frsize // PAGE - free_pages)) * PAGE)
        try:
            saved = save(store, 2)
        except NoRoom as error:
            saved = None
            assert error.path and "untouched" in error.safe
    assert read_index(directory)[0] is not None
    with Store(directory, KEEP) as store:  # still on the full disk
        newest = store.newest_good()
        assert newest.record.step == (2 if saved else 1)
        whole(store, newest)
        assert not [name for name in os.listdir(directory) if name.startswith(".writing")]
    (place / "filler").unlink()
    with Store(directory, KEEP) as store:
        whole(store, save(store, 3))
        assert store.newest_good().record.step == 3


@pytest.mark.parametrize("free_inodes", range(0, 9))
def test_the_inodes_run_out_at_each_file_of_a_save(disk, monkeypatch, free_inodes):
    monkeypatch.setattr("outlive.checkpoints.store.need_room", lambda *words: None)
    place = disk(400 * PAGE, inodes=60)
    directory = str(place / "ckpt")
    with Store(directory, KEEP) as store:
        save(store, 1)
        fillers = place / "fillers"
        fillers.mkdir()
        for number in range(os.statvfs(place).f_ffree - free_inodes):
            (fillers / str(number)).touch()
        try:
            saved = save(store, 2)
        except NoRoom:
            saved = None
    with Store(directory, KEEP) as store:
        newest = store.newest_good()
        assert newest.record.step == (2 if saved else 1)
        whole(store, newest)
    for name in os.listdir(fillers):
        (fillers / name).unlink()
    with Store(directory, KEEP) as store:
        whole(store, save(store, 3))


def test_the_gate_refuses_before_the_first_byte_and_says_the_numbers(disk):
    place = disk(20 << 20, inodes=100)
    with Store(str(place / "ckpt")) as store:
        with pytest.raises(NoRoom) as refused:
            store.begin(1, expect_bytes=30 << 20)
        assert refused.value.unit == "bytes" and refused.value.need > 30 << 20
        assert refused.value.free < 20 << 20 and str(refused.value.free) in str(refused.value)
        with pytest.raises(NoRoom) as refused:
            store.begin(1, expect_bytes=1, expect_files=200)
        assert refused.value.unit == "inodes" and refused.value.free < 100
        assert not [name for name in os.listdir(store.directory) if name.startswith(".writing")]


def test_old_checkpoints_make_room_where_the_rule_lets_them_go(disk, monkeypatch):
    monkeypatch.setattr("outlive.checkpoints.room.SPARE_BYTES", 0)
    place = disk(100 * PAGE)
    with Store(str(place / "ckpt"), KEEP) as store:
        for step in (3, 2, 1, 4):  # the first is the best
            saved = save(store, step)
        names = {entry.step for entry in store.entries}
        assert names == {3, 2, 1, 4}
        writing = store.begin(5, expect_bytes=45 * PAGE)
        assert {entry.step for entry in store.entries} == {4}  # the newest, and the best
        writing.abandon()
        whole(store, saved)
