"""The durable place of a checkpoint directory misbehaves: read-only, full, gone, cut short, a remote that fails."""

import os
import shutil
import subprocess

import pytest

from outlive.checkpoints.errors import Damaged, DurableUnavailable, NoGoodCheckpoint
from outlive.checkpoints.record import RECORD
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import Store

PAGE = 4096


def save(store, step, pages=6):
    writing = store.begin(step)
    writing.add_bytes("state.bin", bytes([step]) * (pages * PAGE))
    writing.add_bytes("part/weights.bin", bytes([step + 100]) * PAGE)
    return store.publish(writing)


@pytest.fixture
def mounted(tmp_path):
    """``mounted(size)``: an empty memory file system, its own mount point."""
    made = []

    def make(size="64m"):
        if os.geteuid():
            if os.environ.get("OUTLIVE_REQUIRE_ROOT"):
                pytest.fail("needs root to mount a small file system")
            pytest.skip("needs root to mount a small file system")
        place = tmp_path / f"mnt{len(made)}"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True, timeout=60)
        made.append(place)
        return place

    yield make
    for place in made:
        subprocess.run(["umount", "-l", str(place)], check=False, timeout=60)


@pytest.mark.root
def test_it_turns_read_only_and_back(tmp_path, mounted):
    mount = mounted()
    with Store(str(tmp_path / "ckpt"), Keep(latest=5), str(mount / "ckpt"), str(mount)) as store:
        store.copy_out(save(store, 1))
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True, timeout=60)
        second = save(store, 2)
        with pytest.raises(DurableUnavailable, match="read-only") as error:
            store.copy_out(second)
        assert str(mount) in str(error.value) and "only copies" in str(error.value)
        assert [one.name for one in store.uncopied()] == [second.name]
        assert store.newest_good().record.step == 2
        subprocess.run(["mount", "-o", "remount,rw", str(mount)], check=True, timeout=60)
        store.copy_out(second)
        assert store.uncopied() == []


@pytest.mark.root
def test_it_is_unmounted_while_the_box_is_new(tmp_path, mounted):
    mount = mounted()
    words = (Keep(latest=5), str(mount / "ckpt"), str(mount))
    with Store(str(tmp_path / "ckpt"), *words) as store:
        store.copy_out(save(store, 7))
    subprocess.run(["umount", str(mount)], check=True, timeout=60)
    with Store(str(tmp_path / "new"), *words) as store:
        with pytest.raises(NoGoodCheckpoint, match="is not mounted"):
            store.newest_good()
        assert not os.path.exists(mount / "ckpt"), "nothing is written into the empty mount point"


@pytest.mark.root
@pytest.mark.parametrize("free_pages", range(0, 13, 2))
def test_it_is_full_at_each_part_of_a_copy(tmp_path, mounted, monkeypatch, free_pages):
    monkeypatch.setattr("outlive.checkpoints.durable.need_room", lambda *words: None)
    mount = mounted(f"{64 * PAGE}")
    with Store(str(tmp_path / "ckpt"), Keep(latest=5), str(mount / "ckpt"), str(mount)) as store:
        first = save(store, 1)
        store.copy_out(first)
        room = os.statvfs(mount)
        with open(mount / "filler", "wb") as handle:
            handle.write(b"x" * max(0, room.f_bavail * room.f_frsize // PAGE - free_pages) * PAGE)
        second = save(store, 2)
        try:
            store.copy_out(second)
            copied = True
        except DurableUnavailable as error:
            copied = False
            assert "no room" in str(error)
        assert (second.name in [one.durable for one in store.candidates()]) == copied
    shutil.rmtree(tmp_path / "ckpt")
    with Store(str(tmp_path / "ckpt"), Keep(latest=5), str(mount / "ckpt"), str(mount)) as store:
        assert store.newest_good().record.step == (2 if copied else 1)


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """Folder of a remote `plain:` that rclone knows."""
    if shutil.which("rclone") is None:
        pytest.fail("rclone is missing: apt-get install rclone")
    folder = tmp_path / "remote"
    folder.mkdir()
    config = tmp_path / "rclone.conf"
    config.write_text(f"[plain]\ntype = alias\nremote = {folder}\n")
    monkeypatch.setenv("RCLONE_CONFIG", str(config))
    return folder


def test_a_remote_holds_what_a_new_box_resumes_from(tmp_path, remote):
    words = (Keep(latest=5), "rclone:plain:bucket/job")
    with Store(str(tmp_path / "ckpt"), *words, durable_keep=Keep(latest=1, best=0)) as store:
        assert store.newest_good() is None, "an empty remote is a fresh start"
        first, second = save(store, 1), save(store, 2)
        assert store.copy_out(first) == "remote_hash"
        assert store.copy_out(second) == "remote_hash"
        assert store.copy_out(second) == "remote_hash", "again is nothing new"
        store.prune()
    job = remote / "bucket" / "job"
    assert [path.name for path in job.iterdir()] == [second.name]
    shutil.rmtree(tmp_path / "ckpt")
    with Store(str(tmp_path / "ckpt"), *words) as store:
        found = store.newest_good()
        assert found.record == second.record and store.verify(found).ok
    # a bit turns on the remote: what arrives is not what was saved
    shutil.rmtree(tmp_path / "ckpt")
    raw = bytearray((job / second.name / "state.bin").read_bytes())
    raw[17] ^= 1
    (job / second.name / "state.bin").write_bytes(bytes(raw))
    with Store(str(tmp_path / "ckpt"), *words) as store:
        with pytest.raises(NoGoodCheckpoint, match="digest"):
            store.newest_good()
        assert os.listdir(store.directory) != [], "its lock and index"
        assert not [name for name in os.listdir(store.directory) if name.startswith("step")]


def test_a_copy_without_its_record_or_cut_short_does_not_count(tmp_path, remote):
    with Store(str(tmp_path / "ckpt"), Keep(latest=5), "rclone:plain:job") as store:
        for step in (1, 2, 3):
            store.copy_out(save(store, step))
    os.unlink(remote / "job" / "step-000000003" / RECORD)
    os.truncate(remote / "job" / "step-000000002" / "state.bin", 100)
    with Store(str(tmp_path / "new"), Keep(latest=5), "rclone:plain:job") as store:
        assert store.newest_good().record.step == 1


def test_a_remote_that_does_not_answer_is_named(tmp_path, remote, monkeypatch):
    with Store(str(tmp_path / "ckpt"), Keep(latest=5), "rclone:nowhere:job") as store:
        with pytest.raises(NoGoodCheckpoint, match="rclone:nowhere:job"):
            store.newest_good()
        with pytest.raises(DurableUnavailable, match="rclone"):
            store.copy_out(save(store, 1))
    monkeypatch.setenv("PATH", "/nonexistent")
    with Store(str(tmp_path / "other"), Keep(latest=5), "rclone:plain:job") as store:
        with pytest.raises(NoGoodCheckpoint, match="rclone is not installed here"):
            store.newest_good()


def test_what_rotted_here_does_not_reach_the_remote_as_good(tmp_path, remote):
    with Store(str(tmp_path / "ckpt"), Keep(latest=5), "rclone:plain:job") as store:
        saved = save(store, 1)
        raw = bytearray(b"")
        with open(saved.file("state.bin"), "rb") as handle:
            raw += handle.read()
        raw[5] ^= 8
        with open(saved.file("state.bin"), "wb") as handle:
            handle.write(raw)
        with pytest.raises(Damaged):
            store.copy_out(saved)
    assert not (remote / "job" / saved.name / RECORD).exists()
