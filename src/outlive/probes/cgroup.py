"""Limits and counters of our own control group, in both layouts, mixed ones, and inside containers.

A limit set anywhere above us binds us too, so each limit is the smallest on the way up as far as we can
see, and usage and throttling are read where that limit is set. ``oom_kill`` is our own group's.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from outlive.wire.values import Value

_HUGE = 1 << 60
"""Version 1 writes "no limit" as the largest page-aligned number."""

_HOME = "/sys/fs/cgroup"


@dataclass(frozen=True)
class CgroupReading(Value):
    """What the control group says. A limit that is None and named in ``unlimited`` is known to be absent;
    any other None is unknown, and ``why_unknown`` has its name and reason."""

    version: int = 0
    """Layout that rules memory: 1, 2, or 0 for none found."""
    memory_limit_bytes: Optional[int] = None
    memory_used_bytes: Optional[int] = None
    memory_reclaimable_bytes: Optional[int] = None
    """Part of the used bytes that is file cache and goes before anything is killed."""
    memory_peak_bytes: Optional[int] = None
    oom_kill: Optional[int] = None
    """Processes of this group that the kernel killed for memory, since the group exists."""
    cpu_quota_cores: Optional[float] = None
    throttled_s: Optional[float] = None
    periods_throttled: Optional[int] = None
    periods: Optional[int] = None
    pids_limit: Optional[int] = None
    pids_used: Optional[int] = None
    unlimited: Tuple[str, ...] = ()
    paths: Dict[str, str] = field(default_factory=dict)
    """Directory that was read for ``memory``, ``cpu``, ``pids``."""
    why_unknown: Dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, data: Dict[str, Any]) -> "CgroupReading":
        clean = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        clean["unlimited"] = tuple(clean.get("unlimited") or ())
        return cls(**clean)


class _Home(NamedTuple):
    """Where a controller's files are: our directory first, then each one above, up to the mount."""

    version: int
    dirs: List[str]


def cgroup(root: str = _HOME, proc: str = "/proc") -> CgroupReading:
    """Read the control group of this process.

    ``root`` and ``proc`` name other trees for tests; mounts that ``proc`` places under /sys/fs/cgroup are
    looked for under ``root``.
    """
    homes = _homes(root, proc)
    facts: Dict[str, Any] = {"paths": {}, "why_unknown": {}}
    unlimited: List[str] = []
    for controller, read in (("memory", _memory), ("cpu", _cpu), ("pids", _pids)):
        home = homes.get(controller)
        if home is None:
            for name in _FIELDS[controller]:
                facts["why_unknown"][name] = "no %s controller is visible under %s" % (controller, root)
            continue
        found, free, path = read(home, proc)
        facts["paths"][controller] = path
        unlimited.extend(free)
        for name in _FIELDS[controller]:
            facts[name] = found.get(name)
            if facts[name] is None and name not in free:
                facts["why_unknown"][name] = "%s has no readable file for it" % path
    for controller in ("memory", "cpu", "pids"):
        if controller in homes:
            facts["version"] = homes[controller].version
            break
    return CgroupReading(unlimited=tuple(unlimited), **facts)


_FIELDS = {
    "memory": (
        "memory_limit_bytes",
        "memory_used_bytes",
        "memory_reclaimable_bytes",
        "memory_peak_bytes",
        "oom_kill",
    ),
    "cpu": ("cpu_quota_cores", "throttled_s", "periods_throttled", "periods"),
    "pids": ("pids_limit", "pids_used"),
}

_Found = Tuple[Dict[str, Any], List[str], str]


def _memory(home: _Home, proc: str) -> _Found:
    two = home.version == 2
    limit, path, known = _smallest(home, "memory.max" if two else "memory.limit_in_bytes", _limit)
    found: Dict[str, Any] = {"memory_limit_bytes": limit}
    found["memory_used_bytes"] = _number(path, "memory.current" if two else "memory.usage_in_bytes")
    found["memory_peak_bytes"] = _number(path, "memory.peak" if two else "memory.max_usage_in_bytes")
    stat = _table(path, "memory.stat")
    found["memory_reclaimable_bytes"] = stat.get("inactive_file" if two else "total_inactive_file")
    own = home.dirs[0]
    found["oom_kill"] = _table(own, "memory.events" if two else "memory.oom_control").get("oom_kill")
    if two and found["oom_kill"] is None and _is_true_root(home):
        # The real root has no counters of its own, but it is the whole machine, which has one.
        found["oom_kill"] = _table(proc, "vmstat").get("oom_kill")
    return found, ["memory_limit_bytes"] if known and limit is None else [], path


def _cpu(home: _Home, proc: str) -> _Found:
    if home.version == 2:
        quota, path, known = _smallest(home, "cpu.max", _quota_2)
    else:
        quota, path, known = _smallest(home, "cpu.cfs_quota_us", _quota_1)
    stat = _table(path, "cpu.stat")
    throttled = stat.get("throttled_usec", stat.get("throttled_time"))
    scale = 1e-6 if "throttled_usec" in stat else 1e-9
    found = {
        "cpu_quota_cores": quota,
        "throttled_s": None if throttled is None else throttled * scale,
        "periods_throttled": stat.get("nr_throttled"),
        "periods": stat.get("nr_periods"),
    }
    return found, ["cpu_quota_cores"] if known and quota is None else [], path


def _pids(home: _Home, proc: str) -> _Found:
    limit, path, known = _smallest(home, "pids.max", _limit)
    found = {"pids_limit": limit, "pids_used": _number(path, "pids.current")}
    return found, ["pids_limit"] if known and limit is None else [], path


def _smallest(home: _Home, name: str, read: Callable[[str, str], Optional[float]]) -> Tuple[Optional[Any], str, bool]:
    """Return the smallest limit on the way up, the directory that sets it, and whether anything is known.

    Known without a limit means that every file we could read says "none"; our own directory (or the
    first that has the file) is returned then.
    """
    best, where, known, first = None, "", False, ""
    for path in home.dirs:
        answer = read(path, name)
        if answer is None:
            continue
        known, first = True, first or path
        if answer != _NONE and (best is None or answer < best):
            best, where = answer, path
    if not known and _is_true_root(home):
        known = True
    return best, where or first or home.dirs[0], known


_NONE = -1.0


def _limit(path: str, name: str) -> Optional[float]:
    word = _text(path, name)
    if word is None:
        return None
    if word == "max":
        return _NONE
    try:
        value = int(word)
    except ValueError:
        return None
    return _NONE if value >= _HUGE or value < 0 else value


def _quota_2(path: str, name: str) -> Optional[float]:
    words = (_text(path, name) or "").split()
    if len(words) != 2:
        return None
    if words[0] == "max":
        return _NONE
    try:
        return int(words[0]) / int(words[1])
    except (ValueError, ZeroDivisionError):
        return None


def _quota_1(path: str, name: str) -> Optional[float]:
    quota, period = _number(path, name), _number(path, "cpu.cfs_period_us")
    if quota is None or not period:
        return None
    return _NONE if quota < 0 else quota / period


def _homes(root: str, proc: str) -> Dict[str, _Home]:
    """Find our directory for each controller from the mount table and our own membership."""
    own = _membership(proc)
    homes: Dict[str, _Home] = {}
    for version, point, mount_root, controllers in _cgroup_mounts(root, proc):
        if version == 2:
            path = own.get("", "/")
            controllers = (_text(point, "cgroup.controllers") or "").split()
        else:
            path = next((own[name] for name in controllers if name in own), "/")
        home = _Home(version, _upwards(point, mount_root, path))
        for name in controllers:
            # A controller belongs to one hierarchy at a time; version 1 mounts list theirs for certain.
            if name not in homes or version == 1:
                homes[name] = home
    return homes


def _membership(proc: str) -> Dict[str, str]:
    """Controller to our path; the unified hierarchy has the empty name."""
    result = {}
    for line in (_text(proc, "self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if colon and number.isdigit():
            for name in names.split(","):
                result[name] = path
    return result


def _cgroup_mounts(root: str, proc: str) -> List[Tuple[int, str, str, List[str]]]:
    """Mounted hierarchies as (version, where to read, root of the mount, controllers)."""
    result = []
    for line in (_text(proc, "self/mountinfo") or "").splitlines():
        left, dash, right = line.partition(" - ")
        here, there = left.split(" "), right.split(" ")
        if not dash or len(here) < 5 or there[0] not in ("cgroup", "cgroup2"):
            continue
        point = here[4]
        if point == _HOME or point.startswith(_HOME + "/"):
            point = root + point[len(_HOME) :]
        controllers = [] if there[0] == "cgroup2" else there[-1].split(",")
        result.append((2 if there[0] == "cgroup2" else 1, point, here[3], controllers))
    if result:
        return result
    # No mount table, or one that hides its cgroups: take the usual layout at its word.
    if os.path.exists(os.path.join(root, "cgroup.controllers")):
        return [(2, root, "/", [])]
    for names in ("memory", "cpu,cpuacct", "cpu", "pids"):
        if os.path.isdir(os.path.join(root, names)):
            result.append((1, os.path.join(root, names), "/", names.split(",")))
    return result


def _upwards(point: str, mount_root: str, path: str) -> List[str]:
    """Our directory and those above it, as far as they can be seen from this mount.

    Inside a container the mount's root is often our own group while our path is told from the host's
    root, or the path points outside (``/../..``): what is mounted is all that we can see, and ours.
    """
    inside = path
    if mount_root != "/":
        if path == mount_root or path.startswith(mount_root + "/"):
            inside = path[len(mount_root) :]
        else:
            inside = "/"
    parts = [part for part in inside.split("/") if part]
    if ".." in parts or not os.path.isdir(os.path.join(point, *parts)):
        parts = []
    return [os.path.join(point, *parts[:count]) for count in range(len(parts), -1, -1)]


def _is_true_root(home: _Home) -> bool:
    """Whether our only directory is the kernel's own root, which has controllers but no limit files."""
    top = home.dirs[0]
    if len(home.dirs) != 1:
        return False
    if home.version == 1:
        return os.path.exists(os.path.join(top, "release_agent"))
    # Every group but the real root has a type.
    typed = os.path.exists(os.path.join(top, "cgroup.type"))
    return os.path.exists(os.path.join(top, "cgroup.controllers")) and not typed


def _text(path: str, name: str) -> Optional[str]:
    try:
        with open(os.path.join(path, name), "rb") as file:
            return file.read().decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def _number(path: str, name: str) -> Optional[int]:
    try:
        return int(_text(path, name) or "")
    except ValueError:
        return None


def _table(path: str, name: str) -> Dict[str, int]:
    """Lines of a name and a number; others are passed over."""
    result = {}
    for line in (_text(path, name) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            result[words[0]] = int(words[1])
    return result
