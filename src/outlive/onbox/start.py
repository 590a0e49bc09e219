"""Starting a run on the box: one code path for the first start and the tenth."""

import errno
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional

from outlive.onbox import code, inbox
from outlive.onbox.context import program
from outlive.onbox.lock import supervised
from outlive.onbox.payload import deliver, merge
from outlive.onbox.refused import Refused
from outlive.onbox.status import status
from outlive.wire import spec as specs
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.journal import JournalWriter
from outlive.wire.names import BoxFiles, RunFiles, new_run_id, write_aside


@contextmanager
def start_lock(box: BoxFiles) -> Iterator[None]:
    """Only one start at a time on a box; a run started twice at the same moment is one run."""
    try:
        fd = os.open(box.start_lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        fd = os.open(box.start_lock, os.O_RDONLY)  # a disk that turned read-only: what lives there can still be told
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
        of_job = [s for s in job_runs(box) if s["job"] == spec["job"]]
        same = [s for s in of_job if not s["fenced"]]
        for found in of_job:
            if found["token"] == request["token"]:
                same = [found]
                digest = found["spec"]  # the same intent is the same start, however often it is sent
                break
        # one that goes on is the newest, whatever a clock that was set back says of their ages
        newest = max(same, key=lambda s: (not s["ended"], s["created_w"])) if same else None
        if newest is not None and newest["spec"] != digest:
            if not newest["ended"]:
                with open(box.run(newest["run"]).spec) as text:
                    old = json.load(text)
                raise Refused(
                    "run_alive",
                    "run %s of the same job is %s with another spec" % (newest["run"], newest["state"]),
                    run=newest["run"],
                    state=newest["state"],
                    differences=specs.differences(old, spec),
                )
            newest = None
        run = _create(box, spec, digest, request["token"]) if newest is None else box.run(newest["run"])
    if newest is not None and request.get("hold") and newest["token"] == request["token"]:
        return {"run": run.id, "how": "attached", "status": newest}
    if newest is not None:
        # outside the lock: waiting for a sign of life must not hold up other starts
        return _go_on(box, newest, request)
    if request.get("hold"):
        return {"run": run.id, "how": "created", "status": status(box, run)}
    wake(box, run.id, request.get("payload") or {})
    return {"run": run.id, "how": "created", "status": _wait(box, run, float(request.get("wait_s", 8.0)))}


def _create(box: BoxFiles, spec: Dict[str, Any], digest: str, token: str) -> RunFiles:
    if spec["snapshot"] and not os.path.exists(box.snapshot(spec["snapshot"])):
        raise Refused(
            "no_snapshot", "snapshot %s is not on this box" % spec["snapshot"][:12], snapshot=spec["snapshot"]
        )
    if spec["snapshot"]:
        code.room(box, spec["snapshot"])
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
        try:
            code.extract(box, spec["snapshot"], run.work)
        except OSError:
            shutil.rmtree(run.dir, ignore_errors=True)  # half a work directory is no run, and its inodes are wanted
            raise
    write_aside(run.spec, specs.canonical(spec))
    journal = JournalWriter(run.journal)
    journal.append("created", run=run.id, job=spec["job"], token=token, spec=digest, lease_max_s=spec["lease"]["max_s"])
    journal.close()
    return run


def name_interpreter(box: BoxFiles, python: str) -> None:
    """Make a directory where `python` and `python3` start the chosen interpreter.

    Images have `python3` without `python`, or the other way round. A small script and not a link: a virtual
    environment is found by the path that it is started with.
    """
    if not python:
        return
    folder = box.interpreter_dir(python)
    os.makedirs(folder, exist_ok=True)
    for name in ("python", "python3"):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            write_aside(
                path, ('#!/bin/sh\nexec %s "$@"\n' % shlex.quote(python)).encode("utf-8", "surrogateescape"), 0o755
            )


def _go_on(box: BoxFiles, found: Dict[str, Any], request: Dict[str, Any]) -> Dict[str, Any]:
    run = box.run(found["run"])
    if found["state"] == "succeeded" and found["ended"]:
        how = "attached" if found["token"] == request["token"] else "finished"
        return {"run": run.id, "how": how, "status": found}
    how = "attached"
    if found["ended"] and found["token"] != request["token"]:
        how = "resumed"
        inbox.put(run.inbox, {"id": "retry-" + request["token"], "kind": "retry", "by": "run"}, int(boot_s() * 1000))
    wake(box, run.id, request.get("payload") or {})
    return {"run": run.id, "how": how, "status": _wait(box, run, float(request.get("wait_s", 8.0)), how == "resumed")}


def wake(box: BoxFiles, run_id: str, payload: Dict[str, Any]) -> bool:
    """Start a supervisor for a run that has none. Returns whether one was started.

    The payload reaches it by standard input; a supervisor that lives gets it through its pipe and adds it
    to what it holds.
    """
    run = box.run(run_id)
    if not os.path.exists(run.spec):
        raise Refused("no_run", "no run %s on this box" % run_id)
    with open(run.spec) as text:
        name_interpreter(box, json.load(text)["python"])
    payload = _with_kept_secrets(run, payload)
    until = time.monotonic() + 10.0
    while supervised(run):
        with start_lock(box):
            if not payload or deliver(run, payload):
                return False
        # it was just leaving: its lock is free in a moment, or a pipe cannot be made here and it has to be told anew
        if time.monotonic() > until:
            raise Refused("payload", "the supervisor of %s lives and does not take what it was brought" % run_id)
    # a start from inside some work must not make our own processes members of that work's attempt
    env = {k: v for k, v in os.environ.items() if not k.startswith("OUTLIVE_")}
    process = subprocess.Popen(
        program() + ["supervise", run.dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=env,
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
    try:
        with open(run.secrets) as text:
            kept: Dict[str, Any] = json.load(text)
    except (FileNotFoundError, ValueError):
        kept = {}
    merged = merge(kept, payload)
    if merged != kept:
        write_aside(run.secrets, json.dumps(merged).encode("utf-8"), 0o600)
    return merged


def _wait(box: BoxFiles, run: RunFiles, wait_s: float, resuming: bool = False) -> Dict[str, Any]:
    """Wait a bounded time for the first sign of the work: a line, an end, or a reason to wait."""
    until = time.monotonic() + wait_s
    while True:
        now = status(box, run)
        # an ended run that was just asked to go on is still ended until its supervisor has read the request
        ended = now["ended"] and not (resuming and any(n.endswith(".json") for n in os.listdir(run.inbox)))
        if ended or now["state"] in ("waiting", "running") or (now["first_line"] and now["work_alive"]):
            return now
        if time.monotonic() >= until:
            return now
        time.sleep(0.15)


def job_runs(box: BoxFiles, job: Optional[str] = None) -> List[Dict[str, Any]]:
    """Return the status of every run of a job (or of all) on this box."""
    found = [status(box, box.run(r)) for r in box.run_ids() if os.path.exists(box.run(r).spec)]
    return [s for s in found if job is None or s["job"] == job]
