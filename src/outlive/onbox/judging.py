"""The evidence of how an attempt ended, gathered once, when nothing of it runs any more."""

import os
from typing import Any, Dict, List, Optional, Tuple

from outlive.diagnose.fatal import hint
from outlive.diagnose.outcome import NOTHING_DECLARED, fatal_lines
from outlive.onbox.context import Context
from outlive.probes.cgroup import cgroup
from outlive.probes.disk import Disk, disk
from outlive.wire.spec import SMOKE
from outlive.wire.values import Evidence, Outcome

TAIL_BYTES = 256 * 1024
FULL_BYTES = 1 << 20
FULL_INODES = 16


class Seen:
    """What was noticed while an attempt lived, and is judged with its end."""

    def __init__(self) -> None:
        self.last_step: Optional[int] = None
        self.total_steps: Optional[int] = None
        self.nan = False
        self.disk_refused = ""


def evidence(context: Context, stages: List[Dict[str, Any]], status: Optional[int], seen: Seen) -> Evidence:
    """Return everything known about the end of the newest attempt; ``status`` None when nobody saw it."""
    current = context.view.attempt
    assert current is not None
    signal_number = status - 128 if status is not None and 128 < status <= 192 else None
    oom_now = cgroup().oom_kill
    oom_then = current.oom_kill_start
    space = disk(context.run.work)
    asked = context.view.stopping()
    try:
        ok, why = stage_artifacts(context, stages, current.stage)
    except (OSError, ValueError, MemoryError) as error:
        ok, why = None, "the artifacts could not be looked at: %s" % error
    said = tuple(fatal_lines(_tail(context.run.log, current.log_from)))
    return Evidence(
        exit_code=status,
        signal=signal_number,
        exit_seen=status is not None,
        our_stop=str(asked["reason"]) if asked is not None else "",
        machine_changed=current.machine != context.machine,
        oom_kill_delta=oom_now - oom_then if oom_now is not None and oom_then is not None else None,
        disk_bytes_free=space.free_bytes,
        disk_inodes_free=space.free_inodes,
        # work that met a full disk cannot write its last words into the log either, or only a part of them
        disk_refused=seen.disk_refused or (_full(space, _given_up(context)) if hint(said) is None else ""),
        fatal_lines=said,
        nan_seen=seen.nan,
        artifacts_ok=ok,
        artifacts_why=why,
        last_step=seen.last_step,
        total_steps=None if current.stage == SMOKE else seen.total_steps,
        new_checkpoints=current.checkpoints,
    )


def explained(context: Context, outcome: Outcome, exit_seen: bool) -> Outcome:
    """Return the outcome with what the rules read in the newest attempt's log."""
    from outlive.diagnose.refine import refined  # a hundred kilobytes of patterns, wanted at an end only

    current = context.view.attempt
    assert current is not None
    try:
        return refined(outcome, _tail(context.run.log, current.log_from), exit_seen)
    except (OSError, ValueError, MemoryError) as error:
        context.trouble("diagnose", "the log could not be read for a cause: %s" % error)
        return outcome


def stage_artifacts(context: Context, stages: List[Dict[str, Any]], name: str) -> Tuple[Optional[bool], str]:
    """Return whether what the stage must produce is there; (None, NOTHING_DECLARED) when nothing has to be."""
    stage = next((s for s in stages if s["name"] == name), None)
    produces = list(stage.get("produces") or []) if stage is not None else []
    real = [s["name"] for s in context.spec["stages"]]
    if real and name == real[-1]:
        produces += [p for p in context.spec["artifacts"]["roster"] if p not in produces]
    if not produces:
        return None, NOTHING_DECLARED
    from outlive.artifacts.manifest import Roster, scan
    from outlive.artifacts.structure import check

    matched, missing = Roster(tuple(produces)).match(scan(context.run.work))
    if missing:
        return False, "missing: " + ", ".join(missing)
    bad = []
    for entry in matched:
        if entry.link or entry.bytes > 64 << 20:
            continue  # large files are checked by a child at the end, not inside a tick
        result = check(os.path.join(context.run.work, entry.path), "structure")
        bad += [
            entry.path + ": " + f["text"] for f in result.findings if f["code"] in ("corrupt", "truncated", "empty")
        ]
    return (False, "; ".join(bad)[:400]) if bad else (True, "")


def _given_up(context: Context) -> int:
    """Return how much of the room that is free now was our own reserve while the work lived."""
    return 0 if os.path.exists(context.run.reserve) else max(0, int(context.limits["reserve_bytes"]))


def _full(space: Disk, ours_bytes: int) -> str:
    """Return ``bytes`` or ``inodes`` when a file system has none of them left to speak of."""
    if space.free_bytes is not None and space.free_bytes < FULL_BYTES + ours_bytes:
        return "bytes"
    return "inodes" if space.free_inodes is not None and space.free_inodes < FULL_INODES else ""


def _tail(log: str, start: int) -> bytes:
    """Return the end of the log from ``start``, where the attempt began."""
    try:
        size = os.path.getsize(log)
        with open(log, "rb") as handle:
            handle.seek(max(start, size - TAIL_BYTES))
            return handle.read(TAIL_BYTES)
    except FileNotFoundError:
        return b""
