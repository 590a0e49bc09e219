"""The faults of the soak, by name. Each acts on a run that lives; what must hold afterwards is in rounds.py."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import work
from rounds import STEPS, Case

from outlive import errors
from outlive.runs import demo_work as actual
from outlive.runs.ask import ask, stop
from outlive.runs.pull import pull
from outlive.runs.receipts import PULL_RECEIPT
from outlive.runs.watch import once
from outlive.sync.fetch import OURS


def _kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_work(case: Case) -> None:
    """kill -9 of the work"""
    pid = case.work_pid()
    case.hurt("attempt")
    _kill(pid)


def kill_keeper(case: Case) -> None:
    """kill -9 of the keeper"""
    _kill(case.keeper_pid())


def kill_supervisor(case: Case) -> None:
    """kill -9 of the supervisor"""
    pid = case.supervisor_pid()
    case.hurt("supervisor")
    _kill(pid)


def kill_work_and_keeper(case: Case) -> None:
    """kill -9 of work and keeper"""
    pids = case.work_pid(), case.keeper_pid()
    case.hurt("attempt")
    _kill(*pids)


def kill_work_and_supervisor(case: Case) -> None:
    """kill -9 of work and supervisor"""
    pids = case.work_pid(), case.supervisor_pid()
    case.hurt("attempt")
    _kill(*pids)


def kill_keeper_and_supervisor(case: Case) -> None:
    """kill -9 of keeper and supervisor"""
    _kill(case.keeper_pid(), case.supervisor_pid())


def kill_all(case: Case) -> None:
    """kill -9 of work, keeper and supervisor"""
    _kill(case.keeper_pid(), case.supervisor_pid(), case.work_pid())


def kill_in_save(case: Case) -> None:
    """kill -9 of the work in the middle of a save"""
    aside = Path(case.files.work, "ckpt", ".aside")
    end = time.monotonic() + 60
    while not aside.exists() and not os.path.exists(case.files.done) and time.monotonic() < end:
        time.sleep(0.001)
    kill_work(case)


def kill_supervisor_often(case: Case) -> None:
    """kill -9 of the supervisor three times (proofs, pruning)"""
    for _ in range(3):
        with contextlib.suppress(OSError, ValueError, IndexError):
            _kill(case.supervisor_pid())
        time.sleep(case.rng.random() * 0.8)


def kill_supervisor_at_the_end(case: Case) -> None:
    """kill -9 of the supervisor while it finishes"""
    case.reach(STEPS)
    time.sleep(case.rng.random() * 0.5)
    if not os.path.exists(case.files.done):
        case.hurt("supervisor")
        _kill(case.supervisor_pid())


def sleep_supervisor(case: Case) -> None:
    """the supervisor stands still for two seconds (SIGSTOP)"""
    pid = case.supervisor_pid()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(pid, signal.SIGCONT)


def client_dies_starting(case: Case) -> None:
    """the client is killed in `run`, which is typed again"""
    case.start()


def _start_and_die(case: Case) -> None:
    for _ in range(2):
        case.client(case.start, case.rng.random() * 0.8)


client_dies_starting.before_start = _start_and_die  # type: ignore[attr-defined]


def client_dies_looking(case: Case) -> None:
    """clients are killed while they follow the log"""
    for _ in range(4):
        case.client(lambda: once(case.home, case.record), case.rng.random() * 0.4)


def two_clients_look(case: Case) -> None:
    """two processes of one client follow the log at once"""
    pids = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                for _ in range(4):
                    once(case.home, case.record)
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


def client_dies_pulling(case: Case) -> None:
    """the client is killed in a pull of the live run, which is typed again"""
    target = case.bench.base / "results" / case.run
    for _ in range(2):
        case.client(lambda: pull(case.home, case.run, to=target), case.rng.random() * 0.8)
    # one that was quicker than its end, of a run that was over, has brought everything
    case.all_home = (target / OURS / PULL_RECEIPT).exists() and (target / "result.json").exists()


def pull_live(case: Case) -> None:
    """a pull of the live run beside its retention"""
    got = pull(case.home, case.run, to=case.bench.base / "live" / case.run)
    for path in (case.bench.base / "live" / case.run).glob("ckpt/step-*.json"):
        if work.load(str(path)) is None:
            case.found.false_words.append(f"{path.name} came home broken")
    # on a busy machine the run may have ended before this looks
    case.all_home = not got.live and got.delivery == "proved"
    if any("not on the box any more" in why for why in got.wrong.values()):
        case.found.broken.append(f"pruned under the pull: {got.wrong}")


def _newest(case: Case) -> Path | None:
    found = sorted(Path(case.files.work, "ckpt").glob("step-*.json"))
    return found[-1] if found else None


def truncated(case: Case) -> None:
    """the newest checkpoint is cut short, then kill -9 of the work"""
    path = _newest(case)
    if path is not None:
        os.truncate(path, case.rng.randrange(0, path.stat().st_size))
        case.damaged[path] = actual.sha256(path)
    kill_work(case)


def flipped(case: Case) -> None:
    """a bit of the newest checkpoint flips, then kill -9 of the work"""
    path = _newest(case)
    if path is not None:
        data = bytearray(path.read_bytes())
        data[case.rng.randrange(len(data))] ^= 1 << case.rng.randrange(8)
        path.write_bytes(data)
        case.damaged[path] = actual.sha256(path)
    kill_work(case)


def stale(case: Case) -> None:
    """the newest checkpoint is replaced by an older one, then kill -9 of the work"""
    found = sorted(Path(case.files.work, "ckpt").glob("step-*.json"))
    if len(found) > 1:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(found[-2], found[-1])
            case.damaged[found[-1]] = actual.sha256(found[-1])
    kill_work(case)


def adopted(case: Case) -> None:
    """the client's state is deleted; an empty one takes over"""
    before = dict(case.bench.results)
    case.bench.again()
    for run, target in before.items():  # what the old client had brought is brought by the new one: nothing is sent
        pull(case.home, run, to=target)


def stopped_by_two(case: Case) -> None:
    """two clients stop the run at once; it is asked to go on"""
    case.may_stop = True
    stopper = os.fork()
    if stopper == 0:
        try:
            stop(case.home, case.record, grace_s=1.0, wait_s=30.0)
        finally:
            os._exit(0)
    stop(case.home, case.record, grace_s=1.0, wait_s=60.0)
    os.waitpid(stopper, 0)
    end = time.monotonic() + 60
    while not os.path.exists(case.files.done) and time.monotonic() < end:
        time.sleep(0.1)
    with contextlib.suppress(errors.OutliveError):
        ask(case.home, case.record, "retry", wait_s=20.0)


def changed_after_pull(case: Case) -> None:
    """after the pull the result changes on the box"""

    def change(target: Path) -> None:
        path = Path(case.files.work, "result.json")
        whole, info = path.read_bytes(), path.stat()
        path.write_bytes(whole + b" ")
        case.bench.refuses(case.found, "the result on the box is newer than its copy")
        path.write_bytes(whole)
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
        pull(case.home, case.run, to=target)

    case.after_pull = change


def copy_damaged(case: Case) -> None:
    """after the pull the copy here is damaged"""

    def damage(target: Path) -> None:
        path = target / "result.json"
        data = bytearray(path.read_bytes())
        data[case.rng.randrange(len(data))] ^= 4
        path.write_bytes(data)
        case.bench.refuses(case.found, "the copy here is damaged")
        pull(case.home, case.run, to=target)

    case.after_pull = damage


def reach_dead(case: Case) -> None:
    """everything of the box dies at once, as in a restart, and it is looked at again"""
    for pid in actual.processes(case.bench.files):
        _kill(pid)


FAULTS: dict[str, Callable[[Case], None]] = {
    name: value
    for name, value in sorted(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and value.__doc__ and name[0] != "_"
}
