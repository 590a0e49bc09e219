"""What is true of a run at this moment: the journal's fold, held against processes and files."""

import errno
import json
import os
import time
from typing import Any, Dict, Optional, Tuple

from outlive.onbox.lock import supervised
from outlive.probes.process import is_alive, machine_identity
from outlive.wire.clock import boot_s
from outlive.wire.journal import read_all
from outlive.wire.names import BoxFiles, RunFiles
from outlive.wire.runview import RunView


def status(box: BoxFiles, run: RunFiles, machine: Optional[str] = None) -> Dict[str, Any]:
    """Return the run's state now with the evidence for it, as plain data.

    ``state`` is never the journal's last word alone: a run that the journal calls running, with no
    process and no supervisor, is ``preempted`` (machine changed) or ``unknown``, and ``needs_wake``.
    """
    view = RunView().add_all(read_all(run.journal))
    machine = machine or machine_of(box)
    has_supervisor = supervised(run)
    current = view.attempt
    work: Optional[bool] = None
    if current is not None and not current.ended:
        work = _alive(run.attempt(current.number).work, machine)
    state, why, wake = _now(view, machine, has_supervisor, work)
    if state == "unknown" and _refuses_writes(run.attempts):
        why, wake = "%s; the disk takes no writes any more, so nothing can be noted or started there" % why, False
    now = boot_s()
    newest = view.newest_checkpoint()
    spec = _read(run.spec) or {}
    return {
        "run": run.id,
        "job": view.job,
        "token": view.token,
        "spec": view.spec_digest,
        "state": state,
        "why": why,
        "needs_wake": wake,
        "ended": view.ended,
        "created_w": view.created_w,
        "ended_w": view.ended_w,
        "supervised": has_supervisor,
        "work_alive": work,
        "keeper_alive": _keeper(run, current.number) if current is not None and not current.ended else None,
        "machine_same": current is None or current.machine == machine,
        "attempt": current.number if current is not None else 0,
        "stage": current.stage if current is not None else "",
        "attempt_age_s": now - current.started_b if current is not None and current.machine == machine else None,
        "stages_done": view.stages_done,
        "step": current.last_step if current is not None else None,
        "outcome": view.final_outcome or (current.outcome if current is not None else None),
        "log_bytes": _size(run.log),
        "log_age_s": _age(run.log),
        "metrics_age_s": _age(run.metrics),
        "journal_bytes": _size(run.journal),
        "checkpoint": {k: newest[k] for k in ("path", "step", "bytes", "sha256", "level", "w")} if newest else None,
        "checkpoints": len(view.checkpoints),
        "bad_checkpoints": sorted(view.bad_checkpoints),
        "copied": len(view.copies),
        "copy_failed": view.copy_failed,
        "alarms": [
            {"alarm": k, "sentence": v.get("sentence", ""), "severity": v.get("severity", "")}
            for k, v in view.alarms.items()
        ],
        "lease_max_s": view.lease_max_s,
        "lease_used_s": view.lease_used_s + (now - current.started_b if work and current is not None else 0.0),
        "retries": view.retries,
        "fenced": view.fenced["by"] if view.fenced else _read(run.fence),
        "troubles": view.troubles,
        "first_line": view.first_line,
        "keep": (spec.get("secrets") or {}).get("keep", "memory"),
        "secret_names": (spec.get("secrets") or {}).get("names", []),
        "durable": (spec.get("durable") or {}).get("to", "none"),
        "lineage": spec.get("lineage"),
        "then": dict(spec.get("then") or {}, said=view.then),
    }


def _now(view: RunView, machine: str, has_supervisor: bool, work: Optional[bool]) -> Tuple[str, str, bool]:
    if view.ended:
        return view.state, view.state_why, False
    current = view.attempt
    here = os.uname().nodename
    moved = current is not None and not current.ended and current.machine != machine
    if current is not None and moved and current.host not in ("", here):
        # a box that was replaced, or two that share this directory: only a supervisor here, which takes its time, tells
        if has_supervisor:
            return (
                "unknown",
                "it was started on %s and this is %s; a supervisor lives on one of them"
                % (
                    current.host,
                    here,
                ),
                False,
            )
        return (
            "unknown",
            "it was started on %s and this is %s; the next contact looks whether it lives there"
            % (
                current.host,
                here,
            ),
            True,
        )
    if work:
        if view.state in ("running", "stalled", "hung", "starting"):
            return view.state, view.state_why, not has_supervisor
        return "running", "its process is alive", not has_supervisor
    if has_supervisor:
        if current is not None and not current.ended and current.machine != machine:
            return "preempted", "the box restarted; its supervisor is about to start it again", False
        if work is False and view.state in ("running", "stalled", "hung"):
            return "unknown", "its process has ended; the supervisor is finding out how", False
        return view.state, view.state_why, False
    if current is not None and not current.ended and current.machine != machine:
        return "preempted", "the box restarted; the run goes on at the next contact", True
    return "unknown", "no process and no supervisor of it is there; the next contact finds out", True


def _refuses_writes(directory: str) -> bool:
    """Return whether the file system is read-only now. Only a write tells: one that stopped itself looks as before."""
    try:
        os.utime(directory)
    except OSError as error:
        return error.errno in (errno.EROFS, errno.EIO)
    return False


def machine_of(box: BoxFiles) -> str:
    with open(box.box_id) as text:
        return machine_identity(text.read().strip())


def _alive(path: str, machine: str) -> Optional[bool]:
    identity = _read(path)
    if identity is None:
        return None
    return identity["machine"] == machine and is_alive(identity["pid"], identity["start_ticks"])


def _keeper(run: RunFiles, number: int) -> bool:
    try:
        with open(run.attempt(number).keeper) as text:
            pid, ticks = text.read().split()
    except (FileNotFoundError, ValueError):
        return False
    return is_alive(int(pid), int(ticks))


def _read(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, "rb") as handle:
            data: Dict[str, Any] = json.loads(handle.read().decode("utf-8"))
            return data
    except (FileNotFoundError, ValueError):
        return None


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _age(path: str) -> Optional[float]:
    """Age of a file's last change. File times are wall times: a clock that jumped makes this unknown, not negative."""
    try:
        age = time.time() - os.path.getmtime(path)
    except FileNotFoundError:
        return None
    return age if age >= 0 else None
