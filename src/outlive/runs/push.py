"""``push``: bring a project's snapshot to a box. ``run`` does it by itself."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.runs.job import FILE, Job
from outlive.runs.place import Place

if TYPE_CHECKING:
    from outlive.sync.data import DataResult
    from outlive.sync.snapshot import Snapshot

SEEN = "seen"
"""Where this client remembers what it read of projects and data (`onbox.seen`). May be deleted at any time."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Pushed:
    """What is on the box. ``digest`` None: the project has no files, and the run begins in an empty directory."""

    digest: str | None
    files: list[dict[str, Any]] = field(default_factory=list)
    sent_bytes: int = 0
    already: bool = False
    warnings: list[str] = field(default_factory=list)


def push(
    job: Job, place: Place, *, progress: Progress | None = None, on_snapshot: Callable[[Snapshot], None] | None = None
) -> Pushed:
    """Collect the job's project and bring to the box what it lacks.

    ``on_snapshot`` sees the snapshot before anything is sent. Raises UsageError for a home directory
    or the root of a file system, NoSpace, PlaceError; an interrupted push is continued by the next.
    """
    from typing import cast

    from outlive.sync.push import CALL, push_code
    from outlive.sync.snapshot import Rules, collect
    from outlive.transport.dialog import Ahead

    if not job.push:
        return Pushed(None)
    _refuse_whole_home(job.project)
    if not any(job.project.iterdir()):
        return Pushed(None, warnings=[f"{job.project} is empty: the run begins in an empty directory"])
    try:
        with Ahead(place.agent, CALL) as ahead:  # the box gets ready while we read
            snapshot = collect(job.project, Rules(crlf=cast(Any, job.crlf)), place.home.dir / SEEN)
            if on_snapshot is not None:
                on_snapshot(snapshot)
            done = push_code(place.agent, snapshot, job.project, progress, ahead=ahead)
    except errors.Corrupt:
        # a file was not what the snapshot says: should the record be wrong, the next push must not believe it again
        shutil.rmtree(place.home.dir / SEEN, ignore_errors=True)
        raise
    warnings = [caution.sentence() for caution in snapshot.warnings]
    return Pushed(done.digest, list(snapshot.files), done.sent_bytes, done.already, warnings)


def push_data(place: Place, source: str, target: str, progress: Progress | None = None) -> DataResult:
    """Bring a file or directory to a place of the user's choice on the box, and remember there that it is a copy.

    ``target`` may hold ``{data}`` and ``{durable}``. Raises like ``sync.data.push_data``.
    """
    from outlive.sync import data

    facts = place.box.facts
    target = target.replace("{data}", str(facts.get("data") or place.box.root))
    if "{durable}" in target and not facts.get("durable"):
        raise errors.UsageError(
            f"{place.name} has no durable place for {target!r}",
            safe="Nothing was sent.",
            next=[["outlive", "up", place.name, "--durable", "/mnt/volume"]],
        )
    target = target.replace("{durable}", str(facts.get("durable") or ""))
    done = data.push_data(place.agent, source, target, progress, seen_dir=place.home.dir / SEEN)
    if not done.claimed:
        path = done.base if Path(source).is_dir() else posixpath.join(done.base, Path(source).name)
        place.call("claim", {"paths": [path]})
    return done


def _refuse_whole_home(project: Path) -> None:
    if project in (Path.home().resolve(), Path(project.anchor)) and not (project / FILE).exists():
        raise errors.UsageError(
            f"{project} is not a project: all of it would be pushed",
            safe="Nothing was sent.",
            next=[["cd", "PROJECT"], ["outlive", "run", "--no-push", "--", "CMD"], ["outlive", "init"]],
        )
