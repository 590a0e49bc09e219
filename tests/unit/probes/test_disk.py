"""Storage readings on the real file systems of this machine, and on mount tables of others."""

import os

from outlive.probes import disk as disk_module
from outlive.probes import mounts
from outlive.probes.disk import Disk, disk, real_usage, shm
from outlive.wire import clock


def test_disk_agrees_with_the_system(tmp_path):
    found = disk(str(tmp_path))
    said = os.statvfs(str(tmp_path))
    assert found.total_bytes == said.f_blocks * said.f_frsize
    assert 0 <= found.free_bytes <= found.total_bytes
    assert found.mount and str(tmp_path).startswith(found.mount)
    assert found.read_only is False and found.network in (False, None)
    assert (found.total_inodes is None) == ("inodes" in found.unlimited)
    assert Disk.from_wire(found.to_wire()).free_bytes == found.free_bytes


def test_a_path_that_is_not_there_yet_is_judged_by_what_will_hold_it(tmp_path):
    assert disk(str(tmp_path / "a/b/c")).total_bytes == disk(str(tmp_path)).total_bytes
    assert disk(str(tmp_path / "a/b/c")).path.endswith("a/b/c")


def statvfs(monkeypatch, **fields):
    real = os.statvfs("/")

    class Answer:
        def __getattr__(self, name):
            return fields.get(name, getattr(real, name))

    monkeypatch.setattr(disk_module.os, "statvfs", lambda path: Answer())


def test_no_inode_limit_is_not_zero_free(monkeypatch):
    statvfs(monkeypatch, f_files=0, f_ffree=0, f_favail=0)
    found = disk("/")
    assert found.free_inodes is None and found.total_inodes is None
    assert found.unlimited == ("inodes",) and not found.why_unknown


def test_a_file_system_without_a_size_is_unknown_not_full(monkeypatch):
    statvfs(monkeypatch, f_blocks=0, f_bavail=0, f_bfree=0)
    found = disk("/")
    assert found.free_bytes is None and found.total_bytes is None and found.why_unknown


def test_what_cannot_be_asked_has_its_reason(monkeypatch):
    def refuse(path):
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(disk_module.os, "statvfs", refuse)
    found = disk("/")
    assert found.free_bytes is None and "Stale file handle" in found.why_unknown


def test_shared_memory():
    found = shm()
    assert found.path == "/dev/shm"
    assert (found.total_bytes is None) == bool(found.why_unknown)


TABLE = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /mnt/a\040b rw - nfs4 server:/export rw,vers=4.2
31 22 0:41 / /mnt rw - tmpfs tmpfs rw
32 22 0:42 / /data ro,nosuid - fuse.gcsfuse bucket rw
33 22 0:43 / /data rw - xfs /dev/sdb rw
34 22 0:44 / /host rw - 9p host rw
broken line
35 22 0:45 / /short -
"""


def test_mount_table_with_blanks_overmounts_and_broken_lines(tmp_path):
    file = tmp_path / "mountinfo"
    file.write_text(TABLE)
    table = mounts.mounts(str(file))
    assert [mount.point for mount in table] == ["/", "/mnt/a b", "/mnt", "/data", "/data", "/host"]
    assert mounts.mount_of("/mnt/a b/c", table).fs_type == "nfs4"
    assert mounts.mount_of("/mnt/a bc", table).fs_type == "tmpfs"
    assert mounts.mount_of("/data/x", table).fs_type == "xfs", "the later mount covers the earlier"
    assert mounts.mount_of("/database", table).fs_type == "ext4"
    assert table[3].options == "ro,nosuid"


def test_network_is_known_unknown_or_not():
    assert mounts.is_network("nfs4") and mounts.is_network("fuse.s3fs") and mounts.is_network("lustre")
    assert mounts.is_network("ext4") is False and mounts.is_network("overlay") is False
    assert mounts.is_network("9p") is None and mounts.is_network("fuse.something") is None
    assert mounts.is_network(None) is None
    assert mounts.is_object_store("fuse.gcsfuse") and not mounts.is_object_store("nfs4")


def test_mount_lines_as_macos_prints_them():
    printed = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "//me@nas/share on /Volumes/my share (1) (smbfs, nodev, nosuid, mounted by me)\n"
        "map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)\n"
        "nonsense\n"
    )
    table = mounts.parse_mount_lines(printed)
    assert table[0] == mounts.Mount("/", "apfs", "/dev/disk3s1s1", "ro")
    assert table[1].point == "/Volumes/my share (1)" and mounts.is_network(table[1].fs_type)
    assert len(table) == 3


def test_usage_counts_blocks_once_and_does_not_follow_links(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "big").write_bytes(b"x" * 3000000)
    (inside / "one").write_bytes(b"x" * 100000)
    os.link(str(inside / "one"), str(inside / "sub/two"))
    os.symlink(str(outside), str(inside / "away"))
    with open(str(inside / "sparse"), "wb") as file:
        file.truncate(50000000)
    used = real_usage(str(inside), 10)
    assert used.complete and used.files == 4, "one (with two names), sub, sparse, away"
    assert 100000 <= used.bytes < 300000
    os.symlink(str(inside), str(tmp_path / "cache"))
    assert real_usage(str(tmp_path / "cache"), 10) == used, "a symlinked cache is counted where it lies"


def test_usage_out_of_budget_or_unreadable_is_a_lower_bound(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    ticks = iter(range(1000))
    clock.set_clock(boot=lambda: float(next(ticks)))
    try:
        used = real_usage(str(tmp_path), 3)
    finally:
        clock.set_clock()
    assert not used.complete
    assert real_usage(str(tmp_path / "nope"), 1) == (0, 0, False)


def test_usage_stays_on_its_mount(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_bytes(b"x" * 100000)
    point = str(tmp_path / "other")
    monkeypatch.setattr(disk_module, "mounts", lambda: [mounts.Mount(point, "tmpfs", "tmpfs", "rw")])
    used = real_usage(str(tmp_path), 10)
    assert used == (0, 0, True)
