"""``run``: push, start detached, hand back. One code path for the first start and the tenth."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.ledger import Run
from outlive.runs import constraint, then
from outlive.runs import spec as run_spec
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage, job_name
from outlive.runs.job import load as load_job
from outlive.runs.place import Place, open_place, secrets_of
from outlive.runs.push import Progress, Pushed, push
from outlive.schedulers.base import Submitted


@dataclass(frozen=True)
class Started:
    """What ``run`` did. ``how``: created, attached, resumed, finished."""

    run: str
    box: str
    how: str
    status: dict[str, Any]
    kept_if_gone: str
    """What is left if this box vanishes now."""
    restarts: str
    """Who starts the run again after what."""
    interpreter: str
    snapshot: str | None = None
    sent_bytes: int = 0
    warnings: list[str] = field(default_factory=list)
    lineage: dict[str, Any] | None = None
    then: str = ""
    """What was asked to follow the end, and the clocks that it starts."""


IDLE_NOTICE_S = 1800.0
IDLE_REPEAT_S = 6 * 3600.0
"""A metered box without live work speaks up after the first and again after each of the second."""


def job_from(directory: Path, command: tuple[str, ...], name: str = "", verb: str = "run") -> Job:
    """Return the job of the project directory, or one made of a command alone.

    Raises UsageError when there is neither; it says how ``verb`` is given a command.
    """
    job = load_job(directory)
    if job is None:
        if not command:
            raise errors.UsageError(
                f"nothing to run: no outlive.toml in {directory} and no command after --",
                next=[["outlive", verb, "--", "python", "train.py"], ["outlive", "init"]],
            )
        job = Job(
            name=job_name(name or directory.resolve().name),
            stages=(Stage("main", command),),
            project=directory.resolve(),
        )
    elif command:
        job = job.with_command(command)
    if not job.stages:
        raise errors.UsageError("outlive.toml has no job.run and no [[stage]]", safe="Nothing was pushed or started.")
    return replace(job, name=name) if name else job


def choose_box(home: Home, on: str) -> Place:
    """Return the box to run on: the named one, or the only one. Raises Ambiguous with the list, UnknownName."""
    if on:
        return open_place(home, home.box_of(on))
    boxes = [b for b in home.state().boxes.values() if not b.gone and not b.forgotten]
    if len(boxes) == 1:
        return open_place(home, boxes[0])
    if not boxes:
        raise errors.UnknownName(
            "no box is known yet", next=[["outlive", "up", "local:"], ["outlive", "up", "root@HOST:PORT"]]
        )
    raise errors.Ambiguous("several boxes are known; name one with --on", candidates=[b.name for b in boxes])


def run(
    home: Home,
    job: Job,
    place: Place,
    *,
    wait_s: float = 8.0,
    progress: Progress | None = None,
    allow_no_safe_place: bool = False,
    on_push: Callable[[Any], None] | None = None,
) -> Started:
    """Push the project and start the job, or find that it is already going or done.

    The intent is in the ledger before the box is asked, so a client that dies in between finds the
    same run again. Returns as soon as the first sign of the work is there or ``wait_s`` is over.
    """
    warnings = [*_safe_place(job, place, allow_no_safe_place), *_gpus(job, place)]
    secrets = secrets_of(job.secrets)
    notify = list(secrets_of({str(i): word[4:] for i, word in enumerate(job.notify)}).values())
    for value in [*secrets.values(), *notify]:
        home.ledger.secrets.add(value)
    pushed = push(job, place, progress=progress, on_snapshot=on_push)
    spec = run_spec.make(job, place, pushed, sorted(secrets))
    warnings += _drilled(home, place, pushed.digest)
    token = uuid.uuid4().hex
    home.ledger.append("intent", id=token, label=f"run {job.name}", provider="box", box=place.name)
    answer = place.scheduler.submit(token, spec, {"secrets": secrets, "notify": notify}, wait_s=wait_s)
    record_run(home, place, answer.status, job.project, token)
    warnings += _box_lease(place, notify)
    return started(place, answer, pushed, warnings, spec)


def _drilled(home: Home, place: Place, snapshot: str | None) -> list[str]:
    """On a box that can be taken away, say so when nobody has rehearsed that with this code."""
    if not place.box.facts.get("spot"):
        return []
    from outlive.runs.drill import passed

    if passed(home.state(), snapshot):
        return []
    return [f"{place.name} can be taken away, and no drill of this code has passed: `outlive drill` rehearses it here"]


def _box_lease(place: Place, notify: list[str]) -> list[str]:
    """Let a metered box say by itself that it idles, when there is an address to say it to."""
    if not notify or not place.platform.has_meter:
        return []
    try:
        place.call("lease_set", {"idle_s": IDLE_NOTICE_S, "repeat_s": IDLE_REPEAT_S, "payload": {"notify": notify}})
    except errors.OutliveError as error:
        return [f"an idle box will not speak up: {error.what}"]
    return []


def started(place: Place, answer: Submitted, pushed: Pushed, warnings: list[str], spec: dict[str, Any]) -> Started:
    """Return the sentences for a started run, from what the box answered."""
    status = answer.status
    return Started(
        run=answer.run,
        box=place.name,
        how=answer.how,
        status=status,
        kept_if_gone=kept_if_gone(place, spec["durable"]["to"], status),
        restarts=restarts(place, spec),
        interpreter=str(place.box.facts.get("python") or ""),
        snapshot=pushed.digest,
        sent_bytes=pushed.sent_bytes,
        warnings=[*warnings, *pushed.warnings, *launch_check(status)],
        lineage=spec.get("lineage"),
        then=then.sentence(place, spec),
    )


def record_run(home: Home, place: Place, status: dict[str, Any], project: Path | None, token: str = "") -> None:
    """Remember a run here; what is true of it stays on the box."""
    home.ledger.append(
        "run",
        run=status["run"],
        box=place.name,
        job=status["job"],
        spec_digest=status["spec"],
        state=status["state"],
        **({"cwd": str(project)} if project is not None else {}),
        **({"intent": token} if token else {}),
    )


def _safe_place(job: Job, place: Place, allow: bool) -> list[str]:
    to = run_spec.durable_to(job, place)
    spot = bool(place.box.facts.get("spot"))
    if spot and to == "none" and job.durable_to != "none" and not allow:
        raise errors.NoSafePlace(
            f"{place.name} can be taken away at any time and the job has no safe place",
            safe="Nothing was pushed or started.",
            next=[["outlive", "up", place.name, "--durable", "/mnt/volume"]],
            why=['write [durable] to = "/mnt/volume", "rclone:remote:path", "here" - or "none" to accept the loss'],
        )
    if job.max_cost is None and job.max_s is None and place.platform.has_meter:
        return ["no budget: this box bills until it is stopped; [budget] max_hours or max_cost sets a lease"]
    return []


def _gpus(job: Job, place: Place) -> list[str]:
    """Refuse a box that is known to lack the GPUs that the job asks for; say so where it is not known."""
    wanted = constraint.parse(job.gpu)
    if not wanted.count:
        return []
    facts = place.box.facts
    if facts.get("gpu_state") not in ("ok", "none"):
        return [
            f"the job asks for {job.gpu}, and the GPUs of {place.name} could not be read ({facts.get('gpu_state')})"
        ]
    sizes = facts.get("gpu_memory_bytes") or []
    gpus = [constraint.Gpu(str(n), m) for n, m in zip_longest(facts.get("gpu") or [], sizes)]
    lacking = wanted.missing(gpus)
    if lacking:
        raise errors.BoxLacks(
            lacking, place=place.name, safe="Nothing was pushed or started.", next=[["outlive", "up", place.name]]
        )
    return []


def kept_if_gone(place: Place, to: str, status: dict[str, Any]) -> str:
    """Return the sentence: what is kept if this box vanishes now."""
    if place.is_local:
        return "this machine is the box: if its disk dies, nothing is kept until `pull` copies it elsewhere"
    if to in ("none", ""):
        return "if this box vanishes now, nothing is kept until `pull` (no safe place is set)"
    if to == "here":
        return "if this box vanishes now, what the last `pull --mirror` brought here is kept"
    step = (status.get("checkpoint") or {}).get("step")
    have = (
        f"; newest copied: {status['copied']} file(s)" + (f", step {step}" if step is not None else "")
        if status.get("copied")
        else ""
    )
    return f"if this box vanishes now, every proved checkpoint that is copied to {to} is kept{have}"


def restarts(place: Place, spec: dict[str, Any]) -> str:
    """Return the sentence: who starts the run again."""
    text = f"a killed process is started again on the box (up to {spec['retry']['max']} times without progress); "
    if spec["secrets"]["names"] and spec["secrets"]["keep"] == "memory":
        return (
            text
            + "after a restart of the box the run waits for its secrets: the next `outlive watch` or `run` brings them"
        )
    return text + "after a restart of the box it goes on at the next `outlive watch`, `run` or `adopt`"


def launch_check(status: dict[str, Any]) -> list[str]:
    """Return what makes a launch not good: a traceback at once, step 0 although a checkpoint exists, an early end."""
    found = []
    outcome = status.get("outcome") or {}
    if status["ended"] and status["state"] not in ("succeeded", "stopped"):
        found.append(f"it ended at once: {status['state']}: {outcome.get('sentence') or status['why']}")
    if status.get("first_line", "").startswith("Traceback"):
        found.append("the first line of output is a traceback")
    for alarm in status.get("alarms", []):
        found.append(alarm["sentence"])
    return found


def successor(home: Home, run: str) -> dict[str, Any] | None:
    """Return who continued a run, as this client's ledger knows it, or None."""
    for note in reversed(home.state().notes):
        lineage = note.get("lineage") or {}
        if lineage.get("run") == run:
            return {"run": note.get("run"), "box": note.get("box"), "lineage": lineage}
    return None


def settled(place: Place, status: dict[str, Any], wait_s: float = 5.0) -> dict[str, Any]:
    """Return the status of a run that was just woken as soon as its supervisor has said what it does, or later.

    Before that word the status is still the one that the box's restart left.
    """
    until = time.monotonic() + wait_s
    while not (
        status["ended"] or status["state"] in ("starting", "running", "stalled", "hung", "waiting", "finishing")
    ):
        if time.monotonic() >= until:
            break
        time.sleep(0.2)
        status = place.scheduler.poll({status["run"]: {}}, uuid.uuid4().hex).statuses.get(status["run"], status)
    return status


def wake(home: Home, place: Place, record: Run | None, status: dict[str, Any]) -> dict[str, Any]:
    """Bring a run back to life that has no supervisor, with its secrets when this shell has them.

    A run that was continued elsewhere while its box was away is fenced instead.
    """
    later = successor(home, status["run"])
    if later is not None:
        return place.scheduler.fence(status["run"], later)
    secrets: dict[str, str] = {}
    notify: list[str] = []
    job = load_job(Path(record.cwd)) if record is not None and record.cwd and os.path.isdir(record.cwd) else None
    if job is not None:
        secrets = {name: os.environ[source] for name, source in job.secrets.items() if source in os.environ}
        notify = [os.environ[word[4:]] for word in job.notify if word[4:] in os.environ]
    else:
        secrets = {name: os.environ[name] for name in status.get("secret_names", []) if name in os.environ}
    return place.scheduler.wake(status["run"], {"secrets": secrets, "notify": notify})
