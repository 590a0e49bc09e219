"""One attempt: starting it under a keeper, telling whether it lives, ending it."""

import hashlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
from typing import Any, Dict, List, Optional

from outlive.onbox.context import Context, read_json
from outlive.probes.cgroup import cgroup
from outlive.probes.process import is_alive, members, start_ticks
from outlive.wire.names import BoxFiles, write_aside


def keeper_file(box: BoxFiles) -> str:
    """Return the path of the keeper's script on this box, written if it is not there.

    A file of its own keeps the process list readable; its name holds its digest, so it never changes under a
    shell that reads it.
    """
    raw = pkgutil.get_data("outlive.onbox", "keeper.sh")
    assert raw is not None
    path = os.path.join(box.dir, "keeper-%s.sh" % hashlib.sha256(raw).hexdigest()[:16])
    if not os.path.exists(path):
        write_aside(path, raw)
    return path


def start_keeper(context: Context, mode: str, number: int) -> int:
    """Start a keeper (``work`` or ``guard``) in its own session and return its pid."""
    files = context.run.attempt(number)
    keeper = subprocess.Popen(
        ["sh", keeper_file(context.box), mode, context.run.dir, str(number), sys.executable, _pyz()],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    assert keeper.stdin is not None
    payload = json.dumps(context.payload, ensure_ascii=True)
    try:
        keeper.stdin.write(payload.encode("ascii") + b"\n")
        keeper.stdin.flush()
    except BrokenPipeError:
        pass  # it died at once; the life loop sees that no keeper is there
    try:
        keeper.stdin.close()
    except BrokenPipeError:
        pass
    keeper.returncode = 0  # collected by the supervisor's loop, not by Popen
    ticks = start_ticks(keeper.pid) or 0
    context.keepers[number] = (keeper.pid, ticks)
    try:
        write_aside(files.keeper, ("%d %d\n" % (keeper.pid, ticks)).encode("ascii"))
    except OSError as error:
        context.trouble("keeper", "its identity could not be written: %s" % error.strerror)
    return keeper.pid


def _pyz() -> str:
    return os.path.abspath(sys.argv[0])


def start_attempt(context: Context, stage: str, stages: List[Dict[str, Any]]) -> int:
    """Record and start the next attempt. Returns its number.

    The record is on disk before anything is started: after a crash between the two, the attempt is seen
    as never started and counts as ended. Raises OSError when there is no room for it; nothing was started then.
    """
    run = context.run
    last = context.view.attempt
    base = int((context.spec.get("lineage") or {}).get("attempt", 0))
    number = (last.number if last is not None else base) + 1
    files = run.attempt(number)
    os.makedirs(files.dir, exist_ok=True)
    os.makedirs(run.control, exist_ok=True)
    record = {"attempt": number, "stage": stage, "uuid": os.urandom(16).hex(), "stages": stages}
    write_aside(os.path.join(files.dir, "attempt.json"), json.dumps(record).encode("utf-8"))
    with open(files.exit_new, "wb") as handle:
        handle.write(b" " * 256)
        handle.flush()
        os.fsync(handle.fileno())
    context.commit(
        "attempt",
        attempt=number,
        stage=stage,
        uuid=record["uuid"],
        machine=context.machine,
        host=os.uname().nodename,
        oom_kill=cgroup().oom_kill,
        log_from=_size(run.log),
    )
    start_keeper(context, "work", number)
    return number


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def room_for_processes(count: int = 6) -> bool:
    """Return whether so many more processes can be started now: a keeper, its guard, a launcher and what they start.

    Asked of the kernel itself: the limit may be a cgroup's, an account's or the machine's.
    """
    read, write = os.pipe()
    pids = []
    try:
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                os.close(write)
                os.read(read, 1)  # until all are counted
                os._exit(0)
            pids.append(pid)
    except OSError:
        return False
    finally:
        os.close(write)
        os.close(read)
        for pid in pids:
            os.waitpid(pid, 0)
    return True


def beat(context: Context, number: int) -> bytes:
    """Return what the keeper wrote at its last round; empty for keepers of earlier versions."""
    try:
        with open(context.run.attempt(number).beat, "rb") as handle:
            return handle.read()
    except OSError:
        return b""


def exit_record(context: Context, number: int) -> Optional[Dict[str, Any]]:
    """Return ``{"status", "by", "uptime_s"}`` of an ended attempt, or None while there is none.

    A keeper that may start no process any more has written the record and cannot run `mv`.
    """
    files = context.run.attempt(number)
    return read_json(files.exit) or read_json(files.exit_new)


def work_identity(context: Context, number: int) -> Optional[Dict[str, Any]]:
    """Return the recorded identity of the work's first process, or None before it was written."""
    return read_json(context.run.attempt(number).work)


def work_alive(context: Context, number: int) -> Optional[bool]:
    """Return whether the work's first process lives; None before the launcher has written it.

    On another machine identity (reboot, another container) it is dead, whatever the pid says.
    """
    identity = work_identity(context, number)
    if identity is None:
        return None
    if identity["machine"] != context.machine:
        return False
    return is_alive(identity["pid"], identity["start_ticks"])


def keeper_alive(context: Context, number: int) -> bool:
    """Return whether the keeper recorded for the attempt lives."""
    known = context.keepers.get(number)
    if known is not None and is_alive(*known):
        return True
    try:
        with open(context.run.attempt(number).keeper) as handle:
            pid, ticks = (int(word) for word in handle.read().split())
    except (FileNotFoundError, ValueError):
        return False
    return is_alive(pid, ticks)


def attempt_members(context: Context, number: int, attempt_uuid: str) -> List[int]:
    """Return the living processes of the attempt: recorded tree and bearers of its uuid."""
    identity = work_identity(context, number)
    root = None
    if (
        identity is not None
        and identity["machine"] == context.machine
        and is_alive(identity["pid"], identity["start_ticks"])
    ):
        root = identity["pid"]
    return members(attempt_uuid, root)


def signal_members(pids: List[int], number: int) -> int:
    """Send a signal to each pid. Returns how many got it."""
    sent = 0
    for pid in pids:
        try:
            os.kill(pid, number)
            sent += 1
        except (ProcessLookupError, PermissionError):
            continue
    return sent


def catches(pid: int, number: int) -> Optional[bool]:
    """Return whether a process has its own handler for a signal; None where /proc cannot say."""
    try:
        with open("/proc/%d/status" % pid) as handle:
            for line in handle:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        return None
    return None


def signal_number(name: str) -> int:
    """Return the number of ``USR1``, ``SIGUSR1`` and the like. Raises ValueError."""
    full = name if name.startswith("SIG") else "SIG" + name
    number = getattr(signal, full, None)
    if number is None:
        raise ValueError("no signal is called %r" % name)
    return int(number)
