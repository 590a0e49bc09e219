"""``run --from RUN [--on BOX]``: fix and relaunch, or move to another box, in one path.

The newest proved checkpoint found on the old box, in the safe place or here goes into the new run's
work directory before its first start; the old run is fenced, and the lineage is recorded on both.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.artifacts.digest import digest_file
from outlive.ledger import Run
from outlive.onbox.keep import step_of
from outlive.runs import spec as run_spec
from outlive.runs.home import Home
from outlive.runs.job import Job
from outlive.runs.look import last_step
from outlive.runs.place import Place, open_place, secrets_of
from outlive.runs.push import push
from outlive.runs.run import Started, record_run, started
from outlive.sync.fetch import OURS
from outlive.transport.agent import data_frames
from outlive.wire.journal import read_all
from outlive.wire.runview import RunView
from outlive.wire.values import Proof


@dataclass(frozen=True)
class Source:
    """A checkpoint to start from. ``step`` None: its name and its log tell no step."""

    path: str
    files: list[dict[str, Any]]
    step: int | None
    where: str
    """``box``, ``here`` or ``mount``."""
    directory: Path | None
    """Directory on this machine that the files' paths are relative to; None: still on the old box."""


@dataclass(frozen=True)
class Origin:
    """The old run as far as anybody could tell."""

    run: str
    box: str
    reachable: bool
    ended: bool
    attempt: int
    step: int | None
    """Last step that it was seen at."""
    checkpoints: str
    source: Source | None
    considered: list[str] = field(default_factory=list)


def origin(home: Home, record: Run) -> Origin:
    """Look for the newest proved checkpoint of a run: on its box, then in what was pulled here."""
    considered: list[str] = []
    status: dict[str, Any] | None = None
    sources: list[Source] = []
    checkpoints = ""
    box = home.state().boxes.get(record.box)
    if box is not None and not box.gone:
        place = open_place(home, box)
        try:
            manifest = place.scheduler.manifest(record.run)
            status = manifest["status"]
            checkpoints = str(manifest["spec"]["artifacts"]["checkpoints"])
            for item in manifest["checkpoints"]:
                sources.append(Source(item["path"], item["files"], item["step"], "box", None))
            considered.append(f"{record.box}: {len(manifest['checkpoints'])} proved checkpoint(s)")
        except errors.OutliveError as error:
            considered.append(f"{record.box}: {error.what}")
        finally:
            place.close()
    here = list(_pulled(home, record))
    considered.append(f"this machine: {len(here)} checkpoint(s) pulled")
    sources += here
    sources.sort(key=lambda s: (s.step if s.step is not None else -1, s.where == "here"))
    past = _remembered(home, record).attempt if status is None else None
    return Origin(
        record.run,
        record.box,
        status is not None,
        bool(status and status["ended"]),
        int(status["attempt"]) if status else past.number if past is not None else 0,
        status["step"] if status else _seen_step(home, record, past.last_step if past is not None else None),
        checkpoints,
        sources[-1] if sources else None,
        considered,
    )


def _pulled(home: Home, record: Run) -> Iterator[Source]:
    """Yield checkpoints that were pulled to this machine, whole and with their digests.

    Files of one step are one checkpoint: a directory, or a model beside its optimizer.
    """
    refuted = {
        digest for digest, proofs in home.state().proofs.items() if any(not Proof.from_wire(p).ok for p in proofs)
    }
    for target in sorted({str(c["place"])[5:] for c in record.copies if str(c["place"]).startswith("here:")}):
        whole: dict[object, bool] = {}
        units: dict[object, list[dict[str, Any]]] = {}
        for path, data in _listed(Path(target)).items():
            step = data["step"] if data.get("step") is not None else step_of(path, {})
            unit = step if step is not None else path
            file = _file_here(Path(target), path, data) if data["sha256"] not in refuted else None
            whole[unit] = whole.get(unit, True) and file is not None
            units.setdefault(unit, []).append(dict(file or {}, step=step))
        for unit, files in units.items():
            if whole[unit]:
                yield Source(_name_of(files), files, files[0]["step"], "here", Path(target))


def _listed(target: Path) -> dict[str, dict[str, Any]]:
    """Return path -> entry of the checkpoints that a pull wrote down: its receipt lists those of a live run too."""
    found: dict[str, dict[str, Any]] = {}
    for name, key in (("manifest.json", "entries"), ("receipt.json", "files")):
        try:
            entries = json.loads((target / OURS / name).read_text("utf-8"))[key]
        except (OSError, ValueError, KeyError):
            continue
        found.update({e["path"]: e for e in entries if e["role"] == "checkpoint"})
    return found


def _file_here(target: Path, path: str, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return a file as `_send` wants it, None when it is not here as it was recorded."""
    local = target / path
    link = str(data.get("link") or "")
    try:
        if link:
            return {**data, "mode": 0o777, "mtime_ns": 0} if os.readlink(local) == link else None
        info = os.lstat(local)
        if not stat.S_ISREG(info.st_mode) or info.st_size != data["bytes"]:
            return None
        if digest_file(os.fspath(local))[0] != data["sha256"]:
            return None
    except OSError:
        return None
    return {**data, "link": "", "mode": stat.S_IMODE(info.st_mode), "mtime_ns": info.st_mtime_ns}


def _name_of(files: list[dict[str, Any]]) -> str:
    return str(files[0]["path"]) if len(files) == 1 else os.path.commonpath([f["path"] for f in files]) or "."


def _remembered(home: Home, record: Run) -> RunView:
    """Return what this client has read of a run's journal: for a box that does not answer."""
    views = [RunView().add_all(read_all(str(path))) for path in home.mirror(record.run).glob("*/journal")]
    return max(views, key=lambda view: view.last_n, default=RunView())


def _seen_step(home: Home, record: Run, noted: int | None) -> int | None:
    """Return the newest step that this client has read: the journal notes one only now and then."""
    steps = [last_step(path) for path in home.mirror(record.run).glob("*/metrics")]
    return max((s for s in [noted, *steps] if s is not None), default=None)


def move(home: Home, job: Job, word: str, place: Place | None, *, wait_s: float = 8.0) -> Started:
    """Start a new run from an old one's newest proved checkpoint, on ``place`` (default: the same box).

    Says which checkpoint and how many steps are lost. A live old run is refused: stop it first. If no
    checkpoint was ever recorded the new run starts from zero and says so.
    """
    from outlive.sync.fetch import fetch

    record = home.run_of(word)
    found = origin(home, record)
    if found.reachable and not found.ended:
        raise errors.RunAlive(
            f"{record.run} is not ended on {record.box}",
            safe="It goes on unchanged.",
            next=[["outlive", "stop", record.run]],
        )
    target = place or open_place(home, home.box_of(record.box))
    source = found.source
    warnings = list(found.considered)
    if not job.checkpoints and found.checkpoints:
        job = replace(job, checkpoints=found.checkpoints)
    secrets = secrets_of(job.secrets)
    notify = list(secrets_of({str(i): word[4:] for i, word in enumerate(job.notify)}).values())
    pushed = push(job, target)
    spec = run_spec.make(job, target, pushed, sorted(secrets))
    spec["lineage"] = {
        "run": found.run,
        "box": found.box,
        "attempt": found.attempt,
        "step": source.step if source else None,
        "checkpoint": source.path if source else None,
    }
    token = uuid.uuid4().hex
    home.ledger.append("intent", id=token, label=f"run {job.name} from {found.run}", provider="box", box=target.name)
    if found.reachable:
        _fence(home, record, target.name, spec["lineage"])
    run = target.scheduler.submit(token, spec, {}, wait_s=0.0, hold=True).run
    if found.reachable:
        _fence(home, record, target.name, spec["lineage"], run)  # once more: now its successor has a name
    if source is not None:
        base = f"{target.box.root}/.outlive/runs/{run}/work"
        if source.directory is not None:
            _send(target, base, source.files, source.directory)
        else:
            old = open_place(home, home.box_of(record.box))
            with tempfile.TemporaryDirectory(dir=home.dir) as scratch:
                try:
                    got = fetch(
                        old.agent, f"{old.box.root}/.outlive/runs/{record.run}/work", source.files, Path(scratch)
                    )
                finally:
                    old.close()
                if got.wrong:
                    raise errors.Corrupt(
                        f"{source.path} changed or is damaged on {record.box}: {'; '.join(map(str, got.wrong))}",
                        safe=f"{run} was created on {target.name} and not started.",
                    )
                _send(target, base, source.files, Path(scratch))
        at = "unknown" if source.step is None else source.step
        begins = f"starts from {source.path} (step {at}, from {source.where})"
        warnings.append(f"{begins}; {_lost(found, source)}")
    else:
        warnings.append("no proved checkpoint of it was found anywhere: this run starts from zero")
    payload = {"secrets": secrets, "notify": notify}
    # before the start: a client that dies in between must still fence the old run when it meets it again
    home.ledger.append("note", text=f"{run} continues {found.run}", run=run, box=target.name, lineage=spec["lineage"])
    target.scheduler.wake(run, payload)
    answer = target.scheduler.submit(token, spec, payload, wait_s=wait_s)
    record_run(home, target, answer.status, job.project, token)
    return started(target, replace(answer, how="moved"), pushed, warnings, spec)


def _lost(found: Origin, source: Source) -> str:
    """Return how much after the checkpoint is lost. Of a silent box only what was seen is known."""
    if found.step is None or source.step is None:
        return "how much after it is lost is not known"
    lost = max(0, found.step - source.step)
    if not found.reachable:
        return f"{lost} step(s) after it were seen and are lost, and what {found.box} did since the last look"
    return f"{lost} step(s) after it are lost" if lost else "nothing after it is lost"


def _fence(home: Home, record: Run, box: str, lineage: dict[str, Any], run: str = "") -> None:
    """Tell the old run that it moved, so that whoever wakes up there later stops."""
    old = open_place(home, home.box_of(record.box))
    try:
        old.scheduler.fence(record.run, {"run": run, "box": box, "lineage": lineage})
    finally:
        old.close()


def _send(target: Place, base: str, files: list[dict[str, Any]], directory: Path) -> None:
    """Send checkpoint files into the new run's work directory, compared on arrival."""

    def frames() -> Iterator[tuple[dict[str, Any], bytes]]:
        for item in files:
            yield (
                {
                    "t": "file",
                    "offset": 0,
                    **{k: item[k] for k in ("path", "bytes", "sha256", "mode", "mtime_ns", "link")},
                },
                b"",
            )
            if item.get("link"):
                continue
            with (directory / item["path"]).open("rb") as handle:
                yield from data_frames(handle)

    answer = target.agent.send("tree_put", {"base": base, "box_id": target.box.box_id}, frames())
    if answer["wrong"]:
        raise errors.Corrupt(
            f"the checkpoint did not arrive whole on {target.name}: {answer['wrong']}",
            safe="The new run was not started.",
        )
