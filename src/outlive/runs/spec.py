"""From a portable job and a box to the spec: what is executed there, the same in every attempt."""

from __future__ import annotations

import hashlib
from typing import Any

from outlive import errors
from outlive.runs.job import Job, Stage
from outlive.runs.place import Place
from outlive.runs.push import Pushed
from outlive.wire import spec as specs

_SAFE = "Nothing was pushed or started."
SMOKE_ENV = "WANDB_MODE=disabled MLFLOW_TRACKING_URI= TRACKIO_DISABLED=1"


def substitute(text: str, place: Place, for_shell: bool) -> str:
    """Return a text of ``outlive.toml`` with its placeholders filled in.

    ``{run}`` and ``{work}`` are only known on the box: a shell gets them from its environment, an
    environment value keeps them for the launcher.
    """
    facts = place.box.facts
    values = {"data": str(facts.get("data") or place.box.root), "vcpu": str(max(1, int(facts.get("cores") or 1)))}
    if facts.get("durable"):
        values["durable"] = str(facts["durable"])
    elif "{durable}" in text:
        raise errors.UsageError(
            f"{text!r} needs a durable place, and {place.name} has none",
            safe="Nothing was pushed or started.",
            next=[["outlive", "up", place.name, "--durable", "/mnt/volume"]],
        )
    if for_shell:
        values.update(run="$OUTLIVE_RUN", work="$OUTLIVE_WORK")
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


def durable_to(job: Job, place: Place) -> str:
    """Return the durable place of a run on this box: a path, ``rclone:...``, ``here`` or ``none``."""
    if job.durable_to == "auto":
        return str(place.box.facts.get("durable") or "none")
    return substitute(job.durable_to, place, False)


def lease_s(job: Job, place: Place) -> tuple[float | None, str]:
    """Return the run lease in seconds of work and the sentence that explains it.

    Money becomes time at a recorded price.
    """
    limits: list[tuple[float, str]] = []
    if job.max_s is not None:
        limits.append((job.max_s, f"{job.max_s / 3600:g} h by budget.max_hours"))
    if job.max_cost is not None:
        price = place.box.price
        if not price:
            raise errors.UsageError(
                "budget.max_cost needs a known price",
                safe="Nothing was pushed or started.",
                next=[["outlive", "up", place.name, "--price", f"1.50{job.max_cost[1]}"]],
            )
        if price.get("currency") != job.max_cost[1]:
            raise errors.UsageError(
                f"budget.max_cost is in {job.max_cost[1]}, the box's price in {price.get('currency')}",
                safe="Nothing was pushed or started.",
            )
        if float(price["per_h"]) > 0:  # what costs nothing never uses the budget up
            seconds = job.max_cost[0] / float(price["per_h"]) * 3600
            told = f"{seconds / 3600:.2f} h for {job.max_cost[0]:g} {job.max_cost[1]} at {price['per_h']} an hour"
            limits.append((seconds, told))
    if not limits:
        return None, ""
    return min(limits)


def make(job: Job, place: Place, pushed: Pushed, secret_names: list[str]) -> dict[str, Any]:
    """Return the complete spec. Raises UsageError when the job cannot be meant on this box."""
    python = str(place.box.facts.get("python") or "")
    stages = [_stage(stage, place) for stage in job.stages]
    if job.smoke:
        stages.insert(
            0,
            {
                "name": specs.SMOKE,
                "run": f"export {SMOKE_ENV}; {substitute(job.smoke, place, True)}",
                "produces": [],
                "always": False,
            },
        )
    lease, _ = lease_s(job, place)
    limits = dict(job.limits)
    if job.retry_wait_s is not None:
        limits["retry_wait_s"] = float(job.retry_wait_s)
    partial: dict[str, Any] = {
        "job": job.name,
        "stages": stages,
        "setup": {"run": substitute(job.setup_run, place, True), "digest": setup_digest(job, pushed.files)}
        if job.setup_run
        else None,
        "snapshot": pushed.digest,
        "python": python,
        "env": {key: substitute(text, place, False) for key, text in job.env.items()},
        "secrets": {"keep": job.secrets_keep, "names": sorted(secret_names)},
        "artifacts": {
            "roster": list(job.roster),
            "checkpoints": job.checkpoints,
            "keep": job.keep,
            "signal": job.signal,
        },
        "durable": {"to": durable_to(job, place)},
        "retry": {"max": job.retry_max},
        "lease": {"max_s": lease},
        "notify": {"urls": len(job.notify)},
        "resources": {"disk_bytes": job.disk_bytes, "disk_inodes": job.disk_inodes, "gpu": job.gpu},
        "limits": limits,
        "pty": job.pty,
        "then": _then(job, place),
    }
    try:
        return specs.complete(partial)
    except ValueError as error:
        raise errors.UsageError(str(error), safe="Nothing was pushed or started.") from error


def _then(job: Job, place: Place) -> dict[str, Any]:
    if job.then in ("keep", "down"):
        return {"do": job.then, "argv": []}
    if job.then != "pause":
        raise errors.UsageError(f"--then takes keep, pause or down, not {job.then!r}", safe=_SAFE)
    stop = place.platform.self_stop
    if stop is None or stop.reversible != "yes":
        raise errors.UsageError(
            f"{place.platform.names.en} has no reversible stop that a box can give itself",
            safe=_SAFE,
            next=[["outlive", "run", "--then", "keep"], ["outlive", "approve", "down", place.name, "--when-proved"]],
        )
    return {"do": "pause", "argv": list(stop.argv)}


def _stage(stage: Stage, place: Place) -> dict[str, Any]:
    run: Any = substitute(stage.run, place, True) if isinstance(stage.run, str) else list(stage.run)
    return {"name": stage.name, "run": run, "produces": list(stage.produces), "always": stage.always}


def setup_digest(job: Job, files: list[dict[str, Any]]) -> str:
    """Return the digest of the set-up: its command and the contents of its inputs. Unchanged means not run again."""
    wanted = set(job.setup_inputs)
    lines = [f"{f['path']} {f.get('sha256', '')}" for f in files if f["path"] in wanted]
    missing = wanted - {f["path"] for f in files}
    if missing:
        raise errors.UsageError(
            f"setup.inputs names files that the snapshot does not have: {', '.join(sorted(missing))}",
            safe="Nothing was pushed or started.",
        )
    return hashlib.sha256("\n".join([job.setup_run, *sorted(lines)]).encode("utf-8", "surrogateescape")).hexdigest()
