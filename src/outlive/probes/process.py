"""Processes that cannot be confused: who is alive, who belongs together, on which machine.

A pid alone names nothing, since numbers come round again. A process is (machine, pid, start ticks). Ticks
are counts since boot on Linux and epoch seconds where there is no /proc; they are only ever compared for
equality, on the machine they were read on.
"""

import os
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

PROC = "/proc"


class Stat(NamedTuple):
    """The few fields of a process's stat line that we use."""

    pid: int
    ppid: int
    state: str
    ticks: int
    cpu_ticks: int
    """User and system time of the process and of the children that it has reaped."""
    threads: int
    kernel: bool
    comm: str


def has_proc() -> bool:
    """Return whether this system has a Linux-like /proc; without it ``ps`` is asked."""
    return os.path.exists(PROC + "/self/stat")


def boot_id() -> Optional[str]:
    """Identity of the running kernel's boot; None where nothing can be read. Containers share their host's."""
    found = _read(PROC + "/sys/kernel/random/boot_id")
    if found is not None:
        return found.decode("ascii", "replace").strip() or None
    if has_proc():
        return None
    from outlive.probes import process_ps

    return process_ps.boot_id()


def machine_identity(box_id: str) -> str:
    """Hex digest that changes when the machine under us is another one or was restarted.

    Made of the boot id, the start of pid 1 (a restarted container keeps its host's boot id), the pid
    namespace and ``box_id``. A part that cannot be read counts as a constant, so the answer is stable
    for one user on one machine even where /proc is hidden.
    """
    import hashlib

    first = start_ticks(1)
    try:
        namespace = os.readlink(PROC + "/self/ns/pid")
    except OSError:
        namespace = ""
    parts = (boot_id() or "", "" if first is None else str(first), namespace, box_id)
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def start_ticks(pid: int) -> Optional[int]:
    """When ``pid`` started; None if there is no such process or it is hidden from us. Zombies have one."""
    found = stat(pid)
    return None if found is None else found.ticks


def is_alive(pid: int, ticks: Optional[int]) -> bool:
    """Return whether the process that started at ``ticks`` still runs.

    A zombie is dead; a process of the same number with other ticks is dead. False is said only from
    evidence: where the number is in use and its start is hidden from us, the answer is True. With
    ``ticks`` None only the number is judged.
    """
    if pid <= 0:
        return False
    found = stat(pid)
    if found is None:
        return _exists_unseen(pid)
    if ticks is not None and found.ticks != ticks:
        return False
    return _runs(found)


def parent(pid: int) -> Optional[int]:
    """Pid of the parent, 0 for the first process; None if unreadable or gone."""
    found = stat(pid)
    return None if found is None else found.ppid


def tree(pid: int) -> List[int]:
    """Return ``pid`` and all its descendants that run, sorted; empty if it does not run.

    Descendants whose parent died were handed to a reaper and are not found here: see ``members``.
    """
    table = snapshot()
    return sorted(_descendants([pid], table)) if pid in table else []


def members(
    uuid: str,
    root_pid: Optional[int],
    env_name: str = "OUTLIVE_ATTEMPT",
    root_ticks: Optional[int] = None,
) -> List[int]:
    """Return every running process of an attempt, sorted.

    These are: the tree under ``root_pid``, every process whose readable environment holds
    ``env_name=uuid``, and the descendants of those. The environment finds what was re-parented; the tree
    finds what rewrote its own environment. ``root_pid`` is used only if it started at ``root_ticks``
    where those are given; without them the caller has to know that the number was not reused.
    """
    table = snapshot()
    roots: Set[int] = set()
    if root_pid is not None and root_pid in table:
        if root_ticks is None or table[root_pid].ticks == root_ticks:
            roots.add(root_pid)
    if uuid:
        roots.update(_marked(env_name, uuid, table))
    return sorted(_descendants(roots, table))


def environ_value(pid: int, name: str) -> Optional[str]:
    """Value of ``name`` in the environment that ``pid`` was started with; None if absent or unreadable."""
    found = environ(pid)
    return None if found is None else found.get(name)


def environ(pid: int) -> Optional[Dict[str, str]]:
    """The environment that ``pid`` was started with; None if it is unreadable (another user's, or gone)."""
    data = _read("%s/%d/environ" % (PROC, pid))
    if data is None:
        return None
    result: Dict[str, str] = {}
    for item in data.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals and name:
            result.setdefault(os.fsdecode(name), os.fsdecode(value))
    return result


def cpu_seconds(pids: Iterable[int]) -> Optional[float]:
    """Processor time used by ``pids`` and the children they have reaped; None if none could be read.

    The sum over one attempt's members rarely falls, and that it grows is a sign of life.
    """
    total, seen = 0, False
    for pid in pids:
        found = stat(pid)
        if found is not None:
            total, seen = total + found.cpu_ticks, True
    return total / _ticks_per_s() if seen else None


def owner_uid(pid: int) -> Optional[int]:
    """Effective user id of ``pid``; None if unreadable or gone."""
    data = _read("%s/%d/status" % (PROC, pid))
    if data is None:
        if has_proc():
            return None
        from outlive.probes import process_ps

        return process_ps.owner_uid(pid)
    for line in data.splitlines():
        if line.startswith(b"Uid:"):
            words = line.split()
            return int(words[2]) if len(words) > 2 else None
    return None


def command_line(pid: int) -> Optional[List[str]]:
    """Arguments of ``pid``; ``["[name]"]`` where it has none (kernel threads); None if unreadable or gone.

    Arguments are the payload's own words and may hold secrets: redact before showing.
    """
    data = _read("%s/%d/cmdline" % (PROC, pid))
    if data is None:
        if has_proc():
            return None
        from outlive.probes import process_ps

        return process_ps.command_line(pid)
    words = [os.fsdecode(word) for word in data.rstrip(b"\0").split(b"\0")] if data.rstrip(b"\0") else []
    if words:
        return words
    found = stat(pid)
    return None if found is None else ["[%s]" % found.comm]


def set_subreaper() -> bool:
    """Ask the kernel to hand us orphaned descendants; True only if it confirms. False on macOS."""
    import sys

    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        set_child_subreaper, get_child_subreaper = 36, 37
        if libc.prctl(set_child_subreaper, 1, 0, 0, 0) != 0:
            return False
        answer = ctypes.c_int(0)
        return libc.prctl(get_child_subreaper, ctypes.byref(answer), 0, 0, 0) == 0 and answer.value == 1
    except (ImportError, OSError, AttributeError):
        return False


def stat(pid: int) -> Optional[Stat]:
    """Return the state of one process, zombies included; None if there is none or it is hidden."""
    data = _read("%s/%d/stat" % (PROC, pid))
    if data is not None:
        return _parse_stat(data)
    if has_proc():
        return None
    from outlive.probes import process_ps

    return process_ps.table(pid).get(pid)


def snapshot() -> Dict[int, Stat]:
    """Return the state of every visible process, zombies included."""
    if not has_proc():
        from outlive.probes import process_ps

        return process_ps.table()
    result: Dict[int, Stat] = {}
    try:
        names = os.listdir(PROC)
    except OSError:
        return result
    for name in names:
        if name.isdigit():
            found = stat(int(name))
            if found is not None:
                result[found.pid] = found
    return result


def _parse_stat(data: bytes) -> Optional[Stat]:
    # The command name is in parentheses and may itself hold spaces and parentheses.
    head, opened, rest = data.partition(b"(")
    comm, closed, tail = rest.rpartition(b")")
    fields = tail.split()
    if not opened or not closed or len(fields) < 20:
        return None
    try:
        return Stat(
            pid=int(head),
            ppid=int(fields[1]),
            state=fields[0].decode("ascii", "replace"),
            ticks=int(fields[19]),
            cpu_ticks=sum(int(field) for field in fields[11:15]),
            threads=int(fields[17]),
            kernel=bool(int(fields[6]) & 0x00200000),
            comm=comm.decode("utf-8", "replace"),
        )
    except ValueError:
        return None


def _runs(found: Stat) -> bool:
    if found.state in ("X", "x"):
        return False
    # A leader that called pthread_exit shows as a zombie while its other threads go on working.
    return found.state != "Z" or found.threads > 1


def _descendants(roots: Iterable[int], table: Dict[int, Stat]) -> Set[int]:
    children: Dict[int, List[int]] = {}
    for found in table.values():
        children.setdefault(found.ppid, []).append(found.pid)
    result: Set[int] = set()
    todo = [pid for pid in roots if pid in table]
    seen: Set[int] = set()
    while todo:
        pid = todo.pop()
        if pid in seen:
            continue
        seen.add(pid)
        if _runs(table[pid]):
            result.add(pid)
        todo.extend(children.get(pid, ()))
    return result


def _marked(env_name: str, uuid: str, table: Dict[int, Stat]) -> Iterable[int]:
    if not has_proc():
        from outlive.probes import process_ps

        return process_ps.marked(env_name, uuid)
    wanted = os.fsencode("%s=%s" % (env_name, uuid))
    result = []
    for pid, found in table.items():
        if found.kernel:
            continue
        data = _read("%s/%d/environ" % (PROC, pid))
        if data is not None and wanted in data and wanted in data.split(b"\0"):
            result.append(pid)
    return result


def _exists_unseen(pid: int) -> bool:
    """Whether a process exists of which we may read nothing (/proc mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    # Signalled and yet not listed: it ended between the two looks, or there is no way to list.
    return stat(pid) is not None or not has_proc()


def _ticks_per_s() -> float:
    if not has_proc():
        return 100.0
    try:
        return float(os.sysconf("SC_CLK_TCK"))
    except (ValueError, OSError):
        return 100.0


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return None
