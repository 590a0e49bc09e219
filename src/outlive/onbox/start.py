"""Starting a run on the box: one code path for the first start and the tenth."""

import fcntl
import json
import os
import subprocess
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional

from outlive.onbox import code, inbox
from outlive.onbox.context import program
from outlive.onbox.status import status
from outlive.onbox.lock import supervised
from outlive.onbox.refused import Refused
from outlive.wire import spec as specs
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.journal import JournalWriter
from outlive.wire.names import BoxFiles, RunFiles, new_run_id, write_aside


@contextmanager
def start_lock(box: BoxFiles) -> Iterator[None]:
    """Only one start at a time on a box; a run started twice at the same moment is one run."""
    fd = os.open(box.start_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def start(box: BoxFiles, request: Dict[str, Any]) -> Dict[str, Any]:
    """Create or find the run that a spec means, and see to it that it goes on.

    ``request``: ``token`` (the client's intent: the same token is the same start), ``spec``, ``payload``
    (secrets, notice addresses), ``hold`` (create, do not start), ``wait_s``. Answers ``{"run", "how", "status"}`` with
    ``how`` one of created, attached, finished, resumed. Raises Refused ``run_alive`` when another
    spec of the same job is not ended, ``no_snapshot``, ``bad_spec``.
    """
    try:
        spec = specs.complete(request["spec"])
    except ValueError as error:
        raise Refused("bad_spec", str(error))
    digest = specs.digest(spec)
    with start_lock(box):
        same = [s for s in (status(box, box.run(r)) for r in box.run_ids()) if s["job"] == spec["job"] and not s["fenced"]]
        for found in same:
            if found["token"] == request["token"]:
                return _go_on(box, found, request, "attached")
        if same:
            newest = max(same, key=lambda s: s["created_w"])
            if newest["spec"] == digest:
                if newest["state"] == "succeeded":
                    return {"run": newest["run"], "how": "finished", "status": newest}
                return _go_on(box, newest, request, "resumed" if newest["ended"] else "attached")
            if not newest["ended"]:
                with open(box.run(newest["run"]).spec) as text:
                    old = json.load(text)
                raise Refused("run_alive", "run %s of the same job is %s with another spec" % (newest["run"], newest["state"]),
                              run=newest["run"], state=newest["state"], differences=specs.differences(old, spec))
        run = _create(box, spec, digest, request["token"])
    if request.get("hold"):
        return {"run": run.id, "how": "created", "status": status(box, run)}
    wake(box, run.id, request.get("payload") or {})
    return {"run": run.id, "how": "created", "status": _wait(box, run, float(request.get("wait_s", 8.0)))}


def _create(box: BoxFiles, spec: Dict[str, Any], digest: str, token: str) -> RunFiles:
    if spec["snapshot"] and not os.path.exists(box.snapshot(spec["snapshot"])):
        raise Refused("no_snapshot", "snapshot %s is not on this box" % spec["snapshot"][:12], snapshot=spec["snapshot"])
    os.makedirs(box.runs, exist_ok=True)
    while True:
        run = box.run(new_run_id(spec["job"], wall_s()))
        try:
            os.mkdir(run.dir, 0o700)
            break
        except FileExistsError:
            continue
    for directory in (run.work, run.inbox, run.attempts, run.control, run.leases):
        os.mkdir(directory, 0o755 if directory == run.work else 0o700)
    if spec["snapshot"]:
        code.extract(box, spec["snapshot"], run.work)
    write_aside(run.spec, specs.canonical(spec))
    journal = JournalWriter(run.journal)
    journal.append("created", run=run.id, job=spec["job"], token=token, spec=digest, lease_max_s=spec["lease"]["max_s"])
    journal.close()
    return run


def _go_on(box: BoxFiles, found: Dict[str, Any], request: Dict[str, Any], how: str) -> Dict[str, Any]:
    run = box.run(found["run"])
    if found["ended"] and found["state"] != "succeeded":
        inbox.put(run.inbox, {"id": "retry-" + request["token"], "kind": "retry", "by": "run"}, int(boot_s() * 1000))
    if not (found["ended"] and found["state"] == "succeeded"):
        wake(box, run.id, request.get("payload") or {})
        found = _wait(box, run, float(request.get("wait_s", 8.0)))
    return {"run": run.id, "how": how, "status": found}


def wake(box: BoxFiles, run_id: str, payload: Dict[str, Any]) -> bool:
    """Start a supervisor for a run that has none. Returns whether one was started.

    The payload reaches it by standard input; a living supervisor that waits for secrets gets them
    by being replaced: it is the only case in which we end one of our own.
    """
    run = box.run(run_id)
    if not os.path.exists(run.spec):
        raise Refused("no_run", "no run %s on this box" % run_id)
    payload = _with_kept_secrets(run, payload)
    if supervised(run):
        if not (payload.get("secrets") and status(box, run)["state"] == "waiting"):
            return False
        _replace_waiting(run)
    process = subprocess.Popen(
        program() + ["supervise", run.dir], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(payload, ensure_ascii=True).encode("ascii") + b"\n")
    process.stdin.close()
    process.wait()
    return True


def _with_kept_secrets(run: RunFiles, payload: Dict[str, Any]) -> Dict[str, Any]:
    """With ``keep = "box"`` the payload is remembered in a 0600 file; otherwise nothing is written."""
    with open(run.spec) as text:
        keep = json.load(text)["secrets"]["keep"]
    if keep != "box":
        return payload
    if payload.get("secrets") or payload.get("notify"):
        write_aside(run.secrets, json.dumps(payload).encode("utf-8"), 0o600)
        return payload
    try:
        with open(run.secrets) as text:
            kept: Dict[str, Any] = json.load(text)
            return kept
    except FileNotFoundError:
        return payload


def _replace_waiting(run: RunFiles) -> None:
    import signal

    from outlive.probes.process import is_alive

    try:
        with open(run.supervisor) as text:
            pid, ticks = (int(word) for word in text.read().split())
    except (FileNotFoundError, ValueError):
        return
    if is_alive(pid, ticks):
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 5.0
        while is_alive(pid, ticks) and time.monotonic() < until:
            time.sleep(0.05)


def _wait(box: BoxFiles, run: RunFiles, wait_s: float) -> Dict[str, Any]:
    """Wait a bounded time for the first sign of the work: a line, an end, or a reason to wait."""
    until = time.monotonic() + wait_s
    while True:
        now = status(box, run)
        if now["ended"] or now["state"] in ("waiting", "running") or (now["first_line"] and now["work_alive"]):
            return now
        if time.monotonic() >= until:
            return now
        time.sleep(0.15)


def job_runs(box: BoxFiles, job: Optional[str] = None) -> List[Dict[str, Any]]:
    """Return the status of every run of a job (or of all) on this box."""
    found = [status(box, box.run(r)) for r in box.run_ids()]
    return [s for s in found if job is None or s["job"] == job]
