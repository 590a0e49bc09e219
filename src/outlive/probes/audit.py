"""Everything the probes can say of a machine, in one object, within a budget.

Each part runs in a child process of its own: a storage tier whose server is gone blocks inside the
kernel, where no timer in the same process can reach it. What has not answered in time is unknown.
"""

import os
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from outlive.wire.clock import boot_s

Emit = Callable[[str, Any], None]

_MARGIN_S = 1.0
"""The parts' own deadlines are this much shorter, so that they end what they started themselves."""


def audit(
    root_candidates: Sequence[str],
    budget_s: float,
    hints: Sequence[str] = (),
    gpu_argv: Optional[Sequence[str]] = None,
) -> Dict[str, Any]:
    """Read the whole machine and return within ``budget_s`` plus a second.

    ``root_candidates`` are directories to try as storage; ``hints`` interpreters known beforehand;
    ``gpu_argv`` replaces ``nvidia-smi``. The result is plain JSON types: part name to
    ``{"value", "why_unknown", "took_s"}``. ``value`` is None where the part gave nothing, and
    ``why_unknown`` is not empty where it is None or incomplete. Parts: machine, cgroup, cpu, memory,
    limits, shm, gpu, gpu_holders, tools, environment, interpreters, torch, and ``disk:PATH`` for each candidate.
    """
    inner_s = max(0.2, budget_s - _MARGIN_S)
    parts: List[Tuple[Tuple[str, ...], Callable[[Emit], None]]] = [
        (("machine",), machine),
        (("cgroup", "cpu", "memory", "limits"), resources),
        (("shm",), shared_memory),
        (("gpu", "gpu_holders"), lambda emit: gpu_parts(emit, inner_s, gpu_argv)),
        (("tools",), lambda emit: _tools(emit, inner_s)),
        (("environment", "interpreters", "torch"), lambda emit: software(emit, inner_s, hints)),
    ]
    for path in root_candidates:
        parts.append((("disk:" + path,), partial(_storage, path=path)))
    return gather(parts, budget_s)


def machine(emit: Emit) -> None:
    """Say who this machine is."""
    import platform
    import socket
    import sys

    from outlive.probes import process

    emit(
        "machine",
        {
            "boot_id": process.boot_id(),
            "pid1_start_ticks": process.start_ticks(1),
            "hostname": socket.gethostname(),
            "system": platform.system(),
            "kernel": platform.release(),
            "arch": platform.machine(),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "python_path": sys.executable,
            "uid": os.getuid(),
            "home": os.path.expanduser("~"),
            "proc": process.has_proc(),
            "boot_s": boot_s(),
        },
    )


def resources(emit: Emit) -> None:
    """Say what the control group, the processors and the limits allow."""
    from outlive.probes.cgroup import cgroup
    from outlive.probes.cpu import usable_cores, vcpu_cap

    found = cgroup()
    emit("cgroup", dict(found.to_wire(), why_unknown="; ".join(sorted(set(found.why_unknown.values())))))
    emit("cpu", dict(usable_cores().to_wire(), vcpu_cap=vcpu_cap()))
    total, available = _memory()
    why = "" if total is not None else "neither /proc/meminfo nor sysconf has it"
    emit("memory", {"total_bytes": total, "available_bytes": available, "why_unknown": why})
    import resource

    limits = {}
    for name in ("NOFILE", "NPROC", "CORE", "FSIZE", "AS", "MEMLOCK"):
        number = getattr(resource, "RLIMIT_" + name, None)
        if number is not None:
            soft, hard = resource.getrlimit(number)
            none = resource.RLIM_INFINITY
            limits[name.lower()] = ["unlimited" if value == none else value for value in (soft, hard)]
    emit("limits", limits)


def _memory() -> Tuple[Optional[int], Optional[int]]:
    try:
        with open("/proc/meminfo") as file:
            table = dict(line.split(":", 1) for line in file if ":" in line)
        total, available = (int(table[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
        return total, available
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    except (ValueError, OSError):
        return None, None


def shared_memory(emit: Emit) -> None:
    """Say how large shared memory is."""
    from outlive.probes.disk import shm

    emit("shm", shm().to_wire())


def _storage(emit: Emit, path: str) -> None:
    from outlive.probes.disk import commit_behaviour, commit_mode, disk

    facts = disk(path).to_wire()
    facts["exists"] = os.path.isdir(os.path.expanduser(path))
    emit("disk:" + path, facts)
    if not facts["exists"]:
        return
    behaviour = commit_behaviour(os.path.expanduser(path))
    facts.update(commit=behaviour, commit_mode=commit_mode(behaviour))
    emit("disk:" + path, facts)


def gpu_parts(emit: Emit, inner_s: float, argv: Optional[Sequence[str]]) -> None:
    """Say what the driver tells of the GPUs and of who holds them."""
    from outlive.probes.gpu import gpus, holders

    end_s = boot_s() + inner_s
    found = gpus(min(5.0, inner_s * 0.7), argv)
    emit("gpu", dict(found.to_wire(), why_unknown=found.why if found.state == "unknown" else ""))
    left_s = end_s - boot_s()
    if left_s > 0.05 and found.state != "none":
        emit("gpu_holders", holders(min(5.0, left_s), argv).to_wire())
    elif found.state == "none":
        emit("gpu_holders", {"holders": [], "unreadable": 0, "why_unknown": ""})


def _tools(emit: Emit, inner_s: float) -> None:
    from outlive.probes.tools import tools

    emit("tools", {name: tool.to_wire() for name, tool in tools(budget_s=inner_s * 0.8).items()})


def software(emit: Emit, inner_s: float, hints: Sequence[str]) -> None:
    """Say which environment, interpreters and torch are here."""
    from outlive.probes.environment import find_python, login_reading, torch_probe

    end_s = boot_s() + inner_s
    reading = login_reading(min(10.0, inner_s * 0.4))
    emit("environment", reading._asdict())
    found = find_python(hints, reading.kept, budget_s=max(0.2, (end_s - boot_s()) * 0.5))
    emit("interpreters", found)
    usable = [one for one in found if one["version"] is not None]
    if not usable:
        emit("torch", {"installed": None, "why_unknown": "no interpreter that answers"})
        return
    left_s = end_s - boot_s()
    if left_s > 0.1:
        emit("torch", torch_probe(usable[0]["path"], left_s, reading.kept))


def gather(parts: Sequence[Tuple[Tuple[str, ...], Callable[[Emit], None]]], budget_s: float) -> Dict[str, Any]:
    """Run all parts at once, each in a child; return what they said as `audit` does when the budget is used up."""
    import json
    import select
    import signal

    start_s = boot_s()
    pipes: Dict[int, int] = {}
    serves: Dict[int, Tuple[str, ...]] = {}
    said: Dict[int, bytes] = {}
    result: Dict[str, Any] = {}
    for names, work in parts:
        for name in names:
            result[name] = {"value": None, "why_unknown": "", "took_s": None}
        try:
            pid, pipe = _start(work)
        except OSError as error:
            for name in names:
                result[name]["why_unknown"] = "no process could be started: %s" % (error.strerror or error)
            continue
        pipes[pipe], said[pipe], serves[pipe] = pid, b"", names
    waiting = set(pipes)
    while waiting:
        left_s = start_s + budget_s - boot_s()
        if left_s <= 0:
            break
        for pipe in select.select(list(waiting), [], [], left_s)[0]:
            data = os.read(pipe, 65536)
            said[pipe] += data
            if not data:
                waiting.discard(pipe)
    for pipe, pid in pipes.items():
        os.close(pipe)
        if pipe in waiting:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        _reap(pid, pipe in waiting)
    for pipe, data in said.items():
        for line in data.split(b"\n"):
            try:
                name, value, took_s, why = json.loads(line.decode("utf-8"))
            except ValueError:
                # An unfinished last line of a part that was ended.
                continue
            if name in result:
                own = value.get("why_unknown", "") if isinstance(value, dict) else ""
                result[name] = {"value": value, "why_unknown": own, "took_s": took_s}
                continue
            for silent in serves[pipe]:
                if result[silent]["value"] is None:
                    result[silent]["why_unknown"] = why
    for entry in result.values():
        if entry["value"] is None and not entry["why_unknown"]:
            entry["why_unknown"] = "no answer within %g s" % budget_s
    return result


def _start(work: Callable[[Emit], None]) -> Tuple[int, int]:
    """Fork a child that writes one JSON line per answer; return its pid and our end of the pipe."""
    import json
    import warnings

    begin_s = boot_s()
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads; the child runs our own code only and leaves by _exit.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, ours
    try:
        os.close(ours)

        def emit(name: str, value: Any, why: str = "") -> None:
            line = json.dumps([name, value, round(boot_s() - begin_s, 3), why], default=str).encode("utf-8") + b"\n"
            while line:
                line = line[os.write(theirs, line) :]

        try:
            work(emit)
        # The edge of a child: whatever went wrong on an odd machine becomes a reason, not a traceback.
        except Exception as error:
            emit("", None, "%s: %s" % (type(error).__name__, error))
    finally:
        os._exit(0)


def _reap(pid: int, killed: bool) -> None:
    """Collect a child; one that is stuck inside the kernel is left behind."""
    import time

    for _ in range(10 if killed else 100):
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return
        except OSError:
            return
        time.sleep(0.01)
