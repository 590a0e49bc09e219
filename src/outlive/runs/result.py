"""What a run left: read on its box, and the copies of it on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outlive import errors
from outlive.artifacts.digest import Changed, digest_file
from outlive.artifacts.manifest import Roster, infer
from outlive.runs.place import Place
from outlive.wire.values import Copy, Entry, Manifest, Proof

LOGS = ("log", "metrics.jsonl", "samples.jsonl", "journal.jsonl", "supervisor.err")
"""Files of the run directory that are results to the gate as well; `spec.json` and exit records come along."""

Stamp = list[int]
"""Size, mtime_ns, ctime_ns of a file here: while they stand, so do its bytes."""


@dataclass(frozen=True)
class Left:
    """One run's result as its box describes it now. Paths are relative to the work directory, logs to the run's."""

    run: str
    status: dict[str, Any]
    spec: dict[str, Any]
    work: str
    manifest: Manifest
    checkpoints: tuple[Entry, ...]
    changed: tuple[str, ...]
    drift: tuple[Entry, ...]
    logs: tuple[Entry, ...]
    records: tuple[Entry, ...]
    """`spec.json` and the exit records."""
    copies: tuple[Copy, ...]
    """Made by the box, in the order of its journal."""
    proofs: tuple[Proof, ...]
    best: tuple[str, ...] = ()
    latest: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    """Paths that changed while they were digested."""
    unclaimed: tuple[Entry, ...] = field(default=())
    """Made by the run, in neither manifest nor snapshot."""
    tag: str = ""
    """Names all of this; "" where it may be changing."""

    @property
    def run_dir(self) -> str:
        return posixpath.dirname(self.work)

    @property
    def live(self) -> bool:
        """The run has not ended."""
        return not self.status["ended"]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The roster and every kept checkpoint, each path once; the manifest's word wins."""
        found = {e.path: e for e in self.checkpoints}
        found.update({e.path: e for e in self.manifest.entries})
        return tuple(found[path] for path in sorted(found))


def listing(
    place: Place,
    base: str,
    *,
    paths: Iterable[str] | None = None,
    globs: Sequence[str] = (),
    digests: bool = True,
    timeout_s: float = 900.0,
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return (entries, paths that moved meanwhile) below a directory on the box."""
    request: dict[str, Any] = {"base": base, "digests": digests}
    if paths is not None:
        request["paths"] = sorted(set(paths))
        if not request["paths"]:
            return (), ()
    else:
        request["globs"] = list(globs) or ["**"]
    answer = place.call("tree_list", request, timeout_s=timeout_s)
    return tuple(Entry.from_wire(e) for e in answer["entries"]), tuple(answer["moving"])


OWN, EXITS = [*LOGS, "spec.json"], ["exit", "attempt.json"]


def read_left(place: Place, run: str, *, unclaimed: bool = False, hold: str = "") -> Left:
    """Return what a run left; see ``read_changed``."""
    left = read_changed(place, run, "", unclaimed=unclaimed, hold=hold)
    assert left is not None
    return left


def read_changed(place: Place, run: str, tag: str, *, unclaimed: bool = False, hold: str = "") -> Left | None:
    """Return what a run left. For a live run that is its roster as it stands, not frozen.

    ``hold``: a name under which the checkpoints seen stay on the box for a bounded time; `let_go` ends that.
    ``unclaimed``: look also for files of the work directory that neither manifest nor snapshot accounts for.
    ``tag``: of an earlier ``Left``; None is returned when all that it said still stands there, and nothing is held.
    Raises PlaceError, and CheckFailed when the box does not know the run.
    """
    request: dict[str, Any] = {"run": run, "own": OWN, "exits": EXITS, "tag": tag}
    if hold:
        request["hold"] = hold
    answer = place.call("run_manifest", request, timeout_s=900.0)
    if tag and answer.get("same"):
        return None
    status, spec, work = answer["status"], answer["spec"], answer["work"]
    run_dir = posixpath.dirname(work)
    checkpoints = tuple(
        replace(Entry.from_wire(f), role="checkpoint", step=c.get("step"))
        for c in answer["checkpoints"]
        for f in c["files"]
    )
    drift = tuple(Entry.from_wire(e) for e in answer["drifted"]["entries"])
    own = tuple(Entry.from_wire(e) for e in answer["own"]["entries"])
    moving = tuple(answer["drifted"]["moving"])
    changed = tuple(answer["changed"])
    there: tuple[Entry, ...] = ()
    before: dict[str, tuple[int, int]] = {}
    if answer["manifest"] is None or unclaimed:
        there, _ = listing(place, work, digests=False)
        before = _baseline(place, run_dir)
    if answer["manifest"] is not None:
        manifest = Manifest.from_wire(answer["manifest"])
    else:
        manifest, moved = _as_it_stands(place, run, spec, work, there, before, checkpoints, answer["tombstones"])
        moving += moved
        now = {e.path: e for e in there}
        changed = tuple(c.path for c in checkpoints if not c.link and _differs(c, now.get(c.path)))
    steps = {c.path: c.step for c in checkpoints}
    manifest = replace(
        manifest, entries=tuple(replace(e, step=steps[e.path]) if e.path in steps else e for e in manifest.entries)
    )
    newest = (status.get("checkpoint") or {}).get("path")
    claimed = {e.path for e in (*manifest.entries, *checkpoints, *drift)}
    return Left(
        run=run,
        status=status,
        spec=spec,
        work=work,
        manifest=manifest,
        checkpoints=checkpoints,
        changed=changed,
        drift=tuple(replace(e, role="code-drift") for e in drift if e.path not in {m.path for m in manifest.entries}),
        logs=tuple(replace(e, role="log") for e in own if e.path in LOGS),
        records=tuple(e for e in own if e.path not in LOGS),
        copies=tuple(Copy.from_wire(c) for c in answer["copies"]),
        proofs=tuple(Proof.from_wire(p) for p in answer["proofs"].values()),
        best=tuple(c["path"] for c in answer["checkpoints"] if "best" in posixpath.basename(c["path"]).lower()),
        latest=(newest,) if newest else (),
        moving=moving,
        tag=str(answer["tag"]),
        unclaimed=tuple(e for e in infer(before, there) if e.path not in claimed) if unclaimed else (),
    )


def let_go(place: Place, run: str, hold: str) -> None:
    """End a hold. A box that cannot be reached lets go by itself when its time is over."""
    with contextlib.suppress(errors.OutliveError):
        place.post("lease_release", {"run": run, "lease": hold})


def _differs(entry: Entry, now: Entry | None) -> bool:
    return now is None or (now.bytes, now.mtime_ns) != (entry.bytes, entry.mtime_ns)


def _baseline(place: Place, run_dir: str) -> dict[str, tuple[int, int]]:
    """Return what stood in the work directory before the first start; empty when nothing was recorded."""
    found, _ = listing(place, run_dir, paths=["baseline.json"], digests=False)
    if not found:
        return {}
    wanted = {"path": "baseline.json", "bytes": found[0].bytes, "offset": 0}
    frames = place.frames("tree_get", {"base": run_dir, "files": [wanted]}, timeout_s=120.0)
    data = b"".join(payload for header, payload in frames if header["t"] == "data")
    try:
        return {path: (int(value[0]), int(value[1])) for path, value in json.loads(data).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _as_it_stands(
    place: Place,
    run: str,
    spec: dict[str, Any],
    work: str,
    there: tuple[Entry, ...],
    before: dict[str, tuple[int, int]],
    checkpoints: tuple[Entry, ...],
    tombstones: list[str],
) -> tuple[Manifest, tuple[str, ...]]:
    """Return a live run's roster as it stands, and what moved while it was digested.

    Below the checkpoint directory only what was committed counts: the rest may be in the middle of a save.
    """
    declared = tuple(spec["artifacts"]["roster"])
    folder = str(spec["artifacts"]["checkpoints"]).rstrip("/")
    missing: list[str] = []
    if declared:
        chosen, missing = Roster(declared).match(there)
    else:
        chosen = infer(before, there)
    committed = {c.path for c in checkpoints}
    open_ = [e for e in chosen if e.path not in committed and not (folder and e.path.startswith(folder + "/"))]
    links = [e for e in open_ if e.link]
    files, moving = listing(place, work, paths=[e.path for e in open_ if not e.link])
    manifest = Manifest(
        run,
        tuple(sorted((*files, *links), key=lambda e: e.path)),
        not declared,
        False,
        tuple(missing),
        tuple(tombstones),
    )
    return manifest, moving


# ---- copies on this machine ----


def stamp(path: str | os.PathLike[str]) -> Stamp:
    """Return the stamp of a file here. Raises OSError."""
    info = os.stat(path, follow_symlinks=False)
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def here_path(copy: dict[str, Any]) -> str:
    """Return where a copy lies on this machine; "" for a copy elsewhere."""
    kind, _, top = str(copy["place"]).partition(":")
    return f"{top}/{copy['path']}" if kind == "here" else ""


def still_here(copy: dict[str, Any]) -> bool:
    """Return whether a copy on this machine still has its digest. Reads it only when its stamp has changed."""
    path = here_path(copy)
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            return False
        known = copy.get("stamp")
        if known == [info.st_size, info.st_mtime_ns, info.st_ctime_ns]:
            return True
        if known and info.st_size != known[0]:
            return False
        return bool(digest_file(path)[0] == copy["sha256"])
    except (OSError, Changed):
        return False


def standing(copies: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return (copies on this machine that stand now, paths of those that were written here and do not any more)."""
    newest: dict[str, dict[str, Any]] = {}
    for copy in copies:
        path = here_path(copy)
        if path:
            newest.pop(path, None)
            newest[path] = copy
    held = {path: copy for path, copy in newest.items() if still_here(copy)}
    return list(held.values()), [path for path in newest if path not in held]
