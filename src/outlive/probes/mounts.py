"""The mount table: what lies where, and whether its bytes are on this machine."""

import os
from typing import List, NamedTuple, Optional

_LOCAL = frozenset(
    "apfs bcachefs btrfs devtmpfs exfat ext2 ext3 ext4 f2fs hfs jfs nilfs2 overlay overlayfs aufs ramfs reiserfs "
    "rootfs squashfs tmpfs ufs vfat xfs zfs erofs iso9660 fuse.fuse-overlayfs fuse-overlayfs".split()
)
_OBJECT_STORE = frozenset(
    "fuse.s3fs fuse.gcsfuse fuse.goofys fuse.rclone fuse.ossfs fuse.cosfs fuse.obsfs fuse.blobfuse "
    "fuse.blobfuse2 fuse.mount-s3 fuse.geesefs".split()
)
_NETWORK = _OBJECT_STORE | frozenset(
    "nfs nfs4 cifs smb3 smbfs smb2 lustre ceph fuse.ceph glusterfs fuse.glusterfs fuse.sshfs fuse.juicefs "
    "fuse.seaweedfs fuse.dfs fuse.alluxio-fuse fuse.moosefs fuse.mfs beegfs gpfs wekafs afs afpfs orangefs pvfs2 "
    "ncpfs coda webdav davfs fuse.davfs fuse.hdfs nfsd panfs cvmfs2".split()
)


class Mount(NamedTuple):
    """One line of the mount table."""

    point: str
    fs_type: str
    source: str
    options: str
    """Of the mount itself; what lies below may be stricter."""


def is_network(fs_type: Optional[str]) -> Optional[bool]:
    """Whether a file system of this type lives on another machine; None if the type does not tell."""
    if fs_type in _NETWORK:
        return True
    return False if fs_type in _LOCAL else None


def is_object_store(fs_type: Optional[str]) -> bool:
    """Whether a file system of this type is a view of an object store: renames there copy, and are not atomic."""
    return fs_type in _OBJECT_STORE


def mounts(table: str = "/proc/self/mountinfo") -> List[Mount]:
    """Return the mount table in its order, later mounts over earlier; empty if it cannot be read."""
    try:
        with open(table, "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
    except OSError:
        return _mounts_by_command()
    result = []
    for line in lines:
        left, dash, right = line.partition(" - ")
        here, there = left.split(" "), right.split(" ")
        if not dash or len(here) < 6 or len(there) < 2:
            continue
        result.append(Mount(_unescape(here[4]), there[0], _unescape(there[1]), here[5]))
    return result


def mount_of(path: str, table: Optional[List[Mount]] = None) -> Optional[Mount]:
    """Return the mount that ``path`` (its real path) lies on; None if the table cannot be read."""
    real, best = os.path.realpath(path), None
    for mount in mounts() if table is None else table:
        point = mount.point
        if real == point or point == "/" or real.startswith(point.rstrip("/") + "/"):
            if best is None or len(point) >= len(best.point):
                best = mount
    return best


def _unescape(word: str) -> str:
    if "\\" not in word:
        return word
    import re

    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), word)


def _mounts_by_command() -> List[Mount]:
    """The table as macOS prints it: ``SOURCE on POINT (TYPE, option, ...)``."""
    import sys

    if sys.platform.startswith("linux"):
        return []
    from outlive.probes.bounded import run_bounded, text

    return parse_mount_lines(text(run_bounded(("mount",), 5.0).out))


def parse_mount_lines(printed: str) -> List[Mount]:
    """Read the output of BSD ``mount``."""
    result = []
    for line in printed.splitlines():
        source, on, rest = line.partition(" on ")
        point, paren, options = rest.rpartition(" (")
        words = [word.strip() for word in options.rstrip(")").split(",")]
        if on and paren and words[0]:
            flags = "ro" if "read-only" in words else "rw"
            result.append(Mount(point, words[0], source, flags))
    return result
