"""Bring data to a box once: a file or a directory, continued per file, proved by digest at its place."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from outlive import errors
from outlive.artifacts.digest import Changed, digest_file
from outlive.artifacts.manifest import scan
from outlive.sync import rsync
from outlive.sync.patience import Patience, Progress
from outlive.sync.snapshot import shown
from outlive.sync.space import gate
from outlive.sync.squeeze import Squeeze
from outlive.transport.agent import Agent, Frame, Refused
from outlive.transport.local import LocalExec
from outlive.wire.frames import CHUNK_BYTES

DIGEST_BYTES_S = 20e6
"""What the slowest disk we wait for reads per second."""
WRONG_ROUNDS = 3
RSYNC_CUTS = 2
"""After so many cuts in a row without gain the next try is our own."""


@dataclass(frozen=True)
class DataResult:
    """All of it is below ``base`` on the box, with equal digests. ``by`` is the carrier that did the (last) work.

    ``already_files``/``already_bytes`` were there before. ``sent_bytes`` counts content sent in this call, what was
    sent twice included; by rsync, what it says it read. ``resumed_from`` are bytes of half files found there.
    """

    base: str
    files: int
    bytes: int
    sent_bytes: int = 0
    already_files: int = 0
    already_bytes: int = 0
    resumed_from: int = 0
    by: Literal["rsync", "framed", "nothing"] = "nothing"
    cuts: int = 0


@dataclass
class _Job:
    agent: Agent
    source_dir: str
    base: str
    entries: dict[str, dict[str, Any]]
    progress: Progress | None
    patience: Patience
    squeeze: Squeeze
    total: int
    good: set[str] = field(default_factory=set)
    sent: int = 0
    half: int = 0

    @property
    def missing(self) -> list[dict[str, Any]]:
        return [e for path, e in self.entries.items() if path not in self.good]

    @property
    def good_bytes(self) -> int:
        return sum(int(self.entries[path]["bytes"]) for path in self.good)


def push_data(
    agent: Agent,
    src: str | os.PathLike[str],
    dst: str,
    progress: Progress | None = None,
    *,
    prefer: Literal["auto", "rsync", "framed"] = "auto",
    patience: Patience | None = None,
) -> DataResult:
    """Bring ``src`` to ``dst`` on the box, absolute or beginning with ``~``. Repeatable; continues what was cut.

    A directory's content goes into ``dst``. A file goes to ``dst``, or into it where that is a directory or ends in
    ``/``. Everything below a directory is sent, hidden files too; links travel as links. Files on the box that the
    source lacks stay; others are replaced when all of their new content is there.

    ``prefer`` "auto" uses rsync where both ends have it over ssh. Raises UsageError for a source that is not there,
    NoSpace before anything is sent, Corrupt when a source file keeps changing, Unreachable when patience is over.
    """
    patience = patience or Patience()
    source = os.path.abspath(os.fspath(src))
    if not os.path.exists(source):
        raise errors.UsageError(f"there is no {os.fspath(src)} to push")
    if not dst.startswith(("/", "~")):
        raise errors.UsageError(f"a destination on the box must be absolute or begin with ~: {dst!r}")
    source_dir, base, entries = _entries(agent, source, dst)
    total = sum(int(e["bytes"]) for e in entries.values())
    on = not isinstance(agent.exec, LocalExec)
    job = _Job(agent, source_dir, base, entries, progress, patience, Squeeze(on), total)
    first = _ask_patiently(job)
    already = (len(job.good), job.good_bytes)
    _gate(job, first)
    job.base = str(first["base"])
    job.half = sum(int(size) for path, size in first["staged"].items())
    by = _carry(job, first, prefer)
    return DataResult(job.base, len(entries), total, job.sent, already[0], already[1], job.half, by, patience.cuts)


def _entries(agent: Agent, source: str, dst: str) -> tuple[str, str, dict[str, dict[str, Any]]]:
    """Return (source directory, destination directory, path -> what to send) with digests."""
    names: dict[str, str] = {}
    if os.path.isdir(source):
        source_dir, base = source, dst
        found = scan(source, ignore=())
    else:
        source_dir, name = os.path.split(source)
        into = dst.endswith("/") or dst == "~" or _ask(agent, dst, []).get("is_dir")
        base, far = (dst, name) if into else os.path.split(dst)
        names[name] = far
        found = [e for e in scan(source_dir, ignore=()) if e.path == name]
    entries: dict[str, dict[str, Any]] = {}
    for entry in found:
        path = names.get(entry.path, entry.path)
        item: dict[str, Any] = {"path": path, "bytes": entry.bytes, "link": entry.link, "from": entry.path}
        if not entry.link:
            try:
                item["sha256"], item["bytes"] = digest_file(os.path.join(source_dir, entry.path))
            except Changed as error:
                raise _changed(entry.path) from error
            except OSError as error:
                raise errors.UsageError(f"{shown(entry.path)} cannot be read: {error.strerror}") from error
            item.update(mode=entry.mode, mtime_ns=entry.mtime_ns)
        entries[path] = item
    if not entries:
        raise errors.UsageError(f"{source} holds no files to push")
    return source_dir, base, entries


def _ask(agent: Agent, base: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    size = sum(int(e["bytes"]) for e in entries)
    asked = [{k: v for k, v in e.items() if k != "from"} for e in entries]
    try:
        return agent.call(
            "tree_have", {"base": base, "entries": asked}, timeout_s=120.0 + size / DIGEST_BYTES_S + len(entries) / 200
        )
    except Refused as refused:
        raise errors.UsageError(f"{base!r} cannot be a destination: {refused}") from refused


def _ask_patiently(job: _Job) -> dict[str, Any]:
    """Ask what is still missing, note what is good, and return the answer."""
    while True:
        try:
            answer = _ask(job.agent, job.base, job.missing)
            job.good |= set(answer["have"])
            return answer
        except (errors.Unreachable, errors.TimeOver) as error:
            job.patience.cut(error, job.good_bytes)


def _gate(job: _Job, answer: dict[str, Any]) -> None:
    # a part that is larger than its file, or that does not belong to it, saves nothing
    staged = {path: int(size) for path, size in answer["staged"].items()}
    needed = sum(max(0, int(e["bytes"]) - staged.get(str(e["path"]), 0)) for e in job.missing)
    gate(
        f"{answer['base']} of {job.agent.exec.describe()}",
        bytes_needed=needed,
        bytes_free=answer.get("free_bytes"),
        inodes_needed=len(job.missing),
        inodes_free=answer.get("free_inodes"),
        what=f"this data ({len(job.missing)} files)",
    )


def _carry(job: _Job, answer: dict[str, Any], prefer: str) -> Literal["rsync", "framed", "nothing"]:
    by: Literal["rsync", "framed", "nothing"] = "nothing"
    if not job.missing:
        return by
    if prefer != "framed":
        usable = rsync.usable(job.agent) and all(e["from"] == e["path"] for e in job.missing)
        if not usable and prefer == "rsync":
            raise errors.BoxLacks(f"{job.agent.exec.describe()} or this machine has no rsync", lacks="rsync")
        # Half files of ours are worth more than another carrier.
        if usable and not answer["staged"]:
            by = "rsync"
            answer = _by_rsync(job, forced=prefer == "rsync")
    wrong_rounds = 0
    while job.missing:
        by = "framed"
        before = len(job.good)
        try:
            _by_frames(job, answer)
        except Refused as refused:
            if refused.code == "os":
                raise _no_write(job, refused) from refused
            if refused.code != "torn":
                raise errors.PlaceError(f"{job.agent.exec.describe()} did not take the data: {refused}") from refused
        except (errors.Unreachable, errors.TimeOver) as error:
            job.patience.cut(error, job.good_bytes + sum(int(n) for n in answer["staged"].values()))
            answer = _ask_patiently(job)
            continue
        if job.missing:
            wrong_rounds = wrong_rounds + 1 if len(job.good) == before else 0
            if wrong_rounds >= WRONG_ROUNDS:
                raise _changed(str(job.missing[0]["from"]))
            answer = _ask_patiently(job)
    return by


@dataclass
class _Moved:
    """What rsync says that it moved, told to whoever watches."""

    job: _Job
    before: int
    bytes: int = 0

    def __call__(self, count: int) -> None:
        self.bytes = count
        if self.job.progress:
            self.job.progress(min(self.job.total, self.before + count), self.job.total, "")


def _by_rsync(job: _Job, forced: bool) -> dict[str, Any]:
    """Let rsync carry what is missing; return the box's answer about what is still missing then."""
    for _ in range(RSYNC_CUTS if not forced else 1 << 30):
        moved = _Moved(job, job.good_bytes)
        try:
            paths = [str(e["path"]) for e in job.missing]
            rsync.carry(job.agent, job.source_dir, paths, job.base, moved, job.patience.stall_s)
            job.sent += moved.bytes
            return _ask_patiently(job)
        except rsync.CannotCarry as error:
            if forced:
                raise errors.BoxLacks(f"rsync does not work with {job.agent.exec.describe()}: {error}") from error
            break
        except errors.Unreachable as error:
            job.sent += moved.bytes
            job.patience.cut(error, job.good_bytes + moved.bytes)
            _ask_patiently(job)
    return _ask_patiently(job)


def _by_frames(job: _Job, answer: dict[str, Any]) -> None:
    """Send what is missing in one stream. What the box wrote with the right digest is good."""
    missing = job.missing
    size = sum(int(e["bytes"]) for e in missing)
    body = _body(job, missing, {str(k): int(v) for k, v in answer["staged"].items()})
    done = job.agent.send(
        "tree_put",
        {"base": job.base},
        body,
        timeout_s=120.0 + size / DIGEST_BYTES_S + len(missing) / 50,
        stall_s=job.patience.stall_s,
    )
    job.good |= set(done["written"]) & set(job.entries)


def _body(job: _Job, missing: list[dict[str, Any]], staged: dict[str, int]) -> Iterator[Frame]:
    done = job.good_bytes
    parts: set[tuple[str, str]] = set()
    for entry in sorted(missing, key=lambda e: str(e["path"])):
        path, size = str(entry["path"]), int(entry["bytes"])
        header = {"t": "file", **{k: v for k, v in entry.items() if k != "from"}}
        if entry["link"]:
            yield dict(header, offset=0), b""
            continue
        # Two equal files in one directory share a part there; only the first continues it.
        place = (os.path.dirname(path), str(entry["sha256"]))
        offset = 0 if place in parts else staged.get(path, 0)
        parts.add(place)
        full = os.path.join(job.source_dir, str(entry["from"]))
        try:
            with open(full, "rb") as handle:
                info = os.fstat(handle.fileno())
                if (info.st_size, info.st_mtime_ns) != (size, entry["mtime_ns"]):
                    raise _changed(str(entry["from"]))
                yield dict(header, offset=offset), b""
                handle.seek(offset)
                left = size - offset
                while left > 0 and (chunk := handle.read(min(CHUNK_BYTES, left))):
                    left -= len(chunk)
                    job.sent += len(chunk)
                    frame = job.squeeze.frame(chunk)
                    began_s = time.perf_counter()
                    yield frame
                    job.squeeze.wrote(time.perf_counter() - began_s)
                    if job.progress:
                        job.progress(done + size - left, job.total, path)
        except FileNotFoundError as error:
            raise _changed(str(entry["from"])) from error
        done += size


def _changed(path: str) -> errors.Corrupt:
    return errors.Corrupt(
        f"{shown(path)} changed while it was being pushed",
        path=path,
        safe="Its earlier version on the box, if there was one, is untouched; files that were complete stay.",
    )


def _no_write(job: _Job, refused: Refused) -> errors.OutliveError:
    import errno

    where = f"{job.base} of {job.agent.exec.describe()}"
    if refused.facts.get("errno") in (errno.ENOSPC, errno.EDQUOT):
        return errors.NoSpace(
            f"{where} ran out of space on the way: {refused}",
            path=job.base,
            safe="Complete files stay, half ones are continued by the same command.",
        )
    return errors.PlaceError(f"{where} cannot be written: {refused}")
