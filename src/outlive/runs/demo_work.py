"""The demo's own look at its box: files and processes as they are, past everything that is to be shown."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.probes.process import is_alive, members, parent
from outlive.wire.names import BoxFiles, RunFiles

SAME = ("out/model.json", "out/metrics.json")
"""What a killed and an undisturbed run must leave with equal digests."""
CKPT = "out/ckpt"
GONE_S = 15.0


def check(holds: bool, otherwise: str) -> None:
    """Raise CheckFailed unless it holds."""
    if not holds:
        raise errors.CheckFailed(otherwise)


def sha256(path: Path) -> str:
    """Return the digest of a file, read now."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests(run: RunFiles) -> dict[str, str]:
    """Return path -> digest of the result's files that are there."""
    work = Path(run.work)
    return {path: sha256(work / path) for path in SAME if (work / path).is_file()}


def checkpoints(run: RunFiles) -> list[Path]:
    """Return the checkpoints that have their final name, oldest first."""
    return sorted((Path(run.work) / CKPT).glob("step-*.json"))


def step_of(path: Path) -> int:
    """Return 270 of ``step-000270.json.tmp``."""
    return int(path.name.split(".")[0].rpartition("-")[2])


def save_under_way(run: RunFiles, earliest: int, limit_s: float = 120.0) -> Path:
    """Wait for a save of step ``earliest`` or later and return its file while it is not half written.

    Raises CheckFailed when none begins.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        for half in (Path(run.work) / CKPT).glob("step-*.json.tmp"):
            try:
                size = half.stat().st_size
                whole = checkpoints(run)[-1].stat().st_size
            except (FileNotFoundError, IndexError):
                continue  # it was finished meanwhile, or there is none to go back to
            if step_of(half) >= earliest and 0 < size < 0.6 * whole:
                return half
        check(alive(run), "the work ended before it could be killed")
        time.sleep(0.005)
    raise errors.CheckFailed(f"no save began within {limit_s:.0f} s")


# ---- processes ----


def work(run: RunFiles) -> dict[str, Any]:
    """Return the recorded identity of the newest attempt's first process, with ``attempt``."""
    newest = max(_numbers(run))
    found: dict[str, Any] = json.loads(Path(run.attempt(newest).work).read_text("utf-8"))
    return dict(found, attempt=newest)


def alive(run: RunFiles) -> bool:
    """Return whether the newest attempt's first process runs."""
    found = work(run)
    return is_alive(found["pid"], found["start_ticks"])


def alive_or_ended(run: RunFiles) -> bool:
    """Return whether the work runs, or ended by itself and left its exit record."""
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        if alive(run) or os.path.exists(run.attempt(max(_numbers(run))).exit):
            return True
        time.sleep(0.05)  # its keeper is about to write the record
    return False


def is_child_of_ours(run: RunFiles) -> bool:
    """Return whether the work hangs on this very process."""
    return parent(work(run)["pid"]) == os.getpid()


def kill_work(run: RunFiles) -> tuple[int, list[int]]:
    """Kill -9 the work and its descendants, known by recorded identity. Returns (attempt, pids) when they are dead."""
    found = work(run)
    pids = members("", found["pid"], root_ticks=found["start_ticks"])
    check(bool(pids), "the work was gone before it could be killed")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + GONE_S
    while is_alive(found["pid"], found["start_ticks"]):
        check(time.monotonic() < end, f"pid {found['pid']} survived kill -9")
        time.sleep(0.002)
    return int(found["attempt"]), pids


def processes(box: BoxFiles) -> list[int]:
    """Return every living process that a run of this box recorded, with descendants: work, keepers, supervisors."""
    found: set[int] = set()
    for run in map(box.run, box.run_ids()):
        recorded: list[tuple[str, int, int]] = []
        for path in [run.supervisor, *(run.attempt(n).keeper for n in _numbers(run))]:
            try:
                keeper, since = map(int, Path(path).read_text("ascii").split())
            except (OSError, ValueError):
                continue
            recorded.append(("", keeper, since))
        for number in _numbers(run):
            uuid = _json(os.path.join(run.attempt(number).dir, "attempt.json")).get("uuid", "")
            first = _json(run.attempt(number).work)
            recorded.append((uuid, int(first.get("pid", 0)), int(first.get("start_ticks", 0))))
        for uuid, pid, ticks in recorded:
            lives = pid > 0 and is_alive(pid, ticks)
            found.update(members(uuid, pid if lives else None, root_ticks=ticks))
    return sorted(found)


def end_processes(box: BoxFiles) -> None:
    """End everything that runs for this box: keepers and supervisors restart each other, so all go at once."""
    end = time.monotonic() + GONE_S
    quiet = 0
    while quiet < 2 and time.monotonic() < end:
        pids = processes(box)
        quiet = 0 if pids else quiet + 1
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


def wait_gone(pids: list[int]) -> None:
    """Wait until keepers and supervisors have left by themselves, as they do after a run's end. Raises CheckFailed."""
    end = time.monotonic() + GONE_S
    while any(is_alive(pid, None) for pid in pids):
        check(time.monotonic() < end, f"still running after the purge: {pids}")
        time.sleep(0.05)


def _numbers(run: RunFiles) -> list[int]:
    try:
        return [int(name) for name in os.listdir(run.attempts) if name.isdigit()]
    except OSError:
        return []


def _json(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
