"""Storage as a run meets it: bytes, inodes, what kind of mount, how a commit behaves there, real usage."""

import os
from dataclasses import dataclass
from typing import Any, Dict, NamedTuple, Optional, Tuple

from outlive.probes.commit import commit_behaviour, commit_mode
from outlive.probes.mounts import is_network, mount_of, mounts
from outlive.wire.clock import boot_s
from outlive.wire.values import Value

__all__ = ["Disk", "Usage", "commit_behaviour", "commit_mode", "disk", "real_usage", "shm"]


@dataclass(frozen=True)
class Disk(Value):
    """Space below one path. Every number is None when unknown; ``why_unknown`` says why.

    ``free_bytes`` is what an ordinary user may still write. It knows nothing of quotas that the file
    system does not report. Inode counts are None with ``inodes`` in ``unlimited`` where the file system
    has no fixed number of them.
    """

    path: str
    mount: Optional[str] = None
    fs_type: Optional[str] = None
    free_bytes: Optional[int] = None
    total_bytes: Optional[int] = None
    free_inodes: Optional[int] = None
    total_inodes: Optional[int] = None
    network: Optional[bool] = None
    """The bytes live on another machine; None for kinds that may or may not (9p, virtiofs, unknown FUSE)."""
    read_only: Optional[bool] = None
    source: str = ""
    """Device or export behind the mount."""
    unlimited: Tuple[str, ...] = ()
    why_unknown: str = ""


def disk(path: str) -> Disk:
    """Read the file system that holds ``path``, or would hold it: missing parts are looked up above.

    May block as long as the file system does (a network mount whose server is gone).
    """
    there = _existing(path)
    mount = mount_of(there)
    facts: Dict[str, Any] = {"path": path}
    if mount is not None:
        facts.update(mount=mount.point, fs_type=mount.fs_type, source=mount.source, network=is_network(mount.fs_type))
        facts["read_only"] = "ro" in mount.options.split(",")
    try:
        found = os.statvfs(there)
    except OSError as error:
        facts["why_unknown"] = "statvfs %s: %s" % (there, error.strerror or error)
        return Disk(**facts)
    unit = found.f_frsize or found.f_bsize
    facts.update(free_bytes=found.f_bavail * unit, total_bytes=found.f_blocks * unit)
    facts["read_only"] = bool(found.f_flag & os.ST_RDONLY)
    if found.f_blocks == 0:
        # proc, some FUSE: nothing is counted, and 0 free would be believed.
        facts.update(free_bytes=None, total_bytes=None, why_unknown="the file system reports no size")
    if found.f_files == 0:
        facts["unlimited"] = ("inodes",)
    else:
        facts.update(free_inodes=min(found.f_favail, found.f_ffree), total_inodes=found.f_files)
    if mount is None and not facts.get("why_unknown"):
        facts["why_unknown"] = "the mount table could not be read"
    return Disk(**facts)


def shm() -> Disk:
    """Read shared memory (/dev/shm), which data loaders' workers fill; unknown where there is none."""
    if not os.path.isdir("/dev/shm"):
        return Disk("/dev/shm", why_unknown="there is no /dev/shm here")
    return disk("/dev/shm")


class Usage(NamedTuple):
    """What lies below a directory; ``complete`` is False when the figures are a lower bound."""

    bytes: int
    files: int
    complete: bool


def real_usage(dir: str, budget_s: float) -> Usage:
    """Count allocated bytes and directory entries below ``dir`` on its own mount.

    ``dir`` itself is resolved, so a symlinked cache is counted where it really lies; links inside are
    counted as links and never followed; other mounts below are left out; a file with several names counts
    once. Not complete when ``budget_s`` ran out or something could not be read.
    """
    top = os.path.realpath(dir)
    end_s = boot_s() + budget_s
    others = {mount.point for mount in mounts()}
    total_bytes, files, complete = 0, 0, True
    seen = set()
    todo = [top]
    try:
        device = os.stat(top).st_dev
    except OSError:
        return Usage(0, 0, False)
    while todo:
        if boot_s() >= end_s:
            return Usage(total_bytes, files, False)
        try:
            entries = os.scandir(todo.pop())
        except OSError:
            complete = False
            continue
        with entries:
            for number, entry in enumerate(entries):
                if number % 256 == 255 and boot_s() >= end_s:
                    return Usage(total_bytes, files, False)
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    # Removed while we looked: it uses nothing now.
                    continue
                except OSError:
                    complete = False
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.path in others or (not others and found.st_dev != device):
                        continue
                    todo.append(entry.path)
                elif found.st_nlink > 1:
                    if (found.st_dev, found.st_ino) in seen:
                        continue
                    seen.add((found.st_dev, found.st_ino))
                total_bytes += found.st_blocks * 512
                files += 1
    return Usage(total_bytes, files, complete)


def _existing(path: str) -> str:
    there = os.path.abspath(os.path.expanduser(path))
    while not os.path.exists(there):
        above = os.path.dirname(there)
        if above == there:
            break
        there = above
    return there
