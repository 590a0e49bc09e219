"""Bring data to a box once: a file or a directory, continued per file, proved by digest at its place."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from outlive import errors
from outlive.artifacts.digest import Changed, digest_file
from outlive.artifacts.manifest import scan
from outlive.onbox.seen import Seen, same_file
from outlive.sync import rsync
from outlive.sync.patience import Patience, Progress
from outlive.sync.snapshot import shown
from outlive.sync.space import gate
from outlive.sync.squeeze import Squeeze
from outlive.transport.agent import Agent, Frame, Refused
from outlive.transport.dialog import Dialog, dialog
from outlive.transport.local import LocalExec
from outlive.wire.frames import CHUNK_BYTES

DIGEST_BYTES_S = 20e6
"""What the slowest disk we wait for reads per second."""
SEEN_RULES = "data 1"
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
    claimed: bool = False
    """Whether the box took note that this is a copy (`claim`). If not, the caller tells it."""


@dataclass
class _Job:
    agent: Agent
    source_dir: str
    base: str
    entries: dict[str, dict[str, Any]]
    """By path there: what is sent, with ``from`` (path here), ``stat`` and, once it is known, ``sha256``."""
    progress: Progress | None
    patience: Patience
    squeeze: Squeeze
    total: int
    seen: Seen
    verify: bool
    good: set[str] = field(default_factory=set)
    sent: int = 0
    half: int = 0
    already: tuple[int, int] | None = None
    claimed: bool = False
    one: str = ""
    """The only file's name there, where the source is a file."""

    @property
    def place(self) -> str:
        """All that is there afterwards."""
        return posixpath.join(self.base, self.one) if self.one else self.base

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
    seen_dir: str | os.PathLike[str] | None = None,
    verify: bool = False,
) -> DataResult:
    """Bring ``src`` to ``dst`` on the box, absolute or beginning with ``~``. Repeatable; continues what was cut.

    A directory's content goes into ``dst``. A file goes to ``dst``, or into it where that is a directory or ends in
    ``/``. Everything below a directory is sent, hidden files too; links travel as links. Files on the box that the
    source lacks stay; others are replaced when all of their new content is there.

    ``prefer`` "auto" uses rsync where most of what is missing replaces an older version, and both ends have it over
    ssh. With ``seen_dir`` files that did not change since they were digested are not read again here; the box keeps the
    same of what it wrote (``onbox.seen`` says what is believed). ``verify`` believes neither and reads everything.
    Raises UsageError for a source that is not there, NoSpace before anything is sent, Corrupt when a source file keeps
    changing, Unreachable when patience is over.
    """
    patience = patience or Patience()
    source = os.path.abspath(os.fspath(src))
    if not os.path.exists(source):
        raise errors.UsageError(f"there is no {os.fspath(src)} to push")
    if not dst.startswith(("/", "~")):
        raise errors.UsageError(f"a destination on the box must be absolute or begin with ~: {dst!r}")
    seen = Seen(os.fspath(seen_dir) if seen_dir is not None and not verify else None, source, SEEN_RULES)
    source_dir, base, entries = _entries(agent, source, dst, seen)
    total = sum(int(e["bytes"]) for e in entries.values())
    on = not isinstance(agent.exec, LocalExec)
    job = _Job(agent, source_dir, base, entries, progress, patience, Squeeze(on), total, seen, verify)
    job.one = "" if os.path.isdir(source) else next(iter(entries))
    by = _carry(job, prefer)
    seen.save()
    already = job.already or (0, 0)
    return DataResult(
        job.base, len(entries), total, job.sent, already[0], already[1], job.half, by, patience.cuts, job.claimed
    )


def _entries(agent: Agent, source: str, dst: str, seen: Seen) -> tuple[str, str, dict[str, dict[str, Any]]]:
    """Return (source directory, destination directory, path there -> what to send), with the digests that are known."""
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
                info = os.lstat(os.path.join(source_dir, entry.path))
            except FileNotFoundError as error:
                raise _changed(entry.path) from error
            known = seen.get(entry.path, info)
            if known is not None:
                item["sha256"] = known[0]
            # a part there is continued with the bytes of this very version and no other
            about = (entry.path, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev)
            item["key"] = hashlib.sha256(repr(about).encode("utf-8", "surrogateescape")).hexdigest()
            item.update(stat=info, bytes=info.st_size, mode=stat.S_IMODE(info.st_mode), mtime_ns=info.st_mtime_ns)
        entries[path] = item
    if not entries:
        raise errors.UsageError(f"{source} holds no files to push")
    return source_dir, base, entries


def _for_box(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if k not in ("from", "stat")}


def _time_for(entries: list[dict[str, Any]]) -> float:
    return 120.0 + sum(int(e["bytes"]) for e in entries) / DIGEST_BYTES_S + len(entries) / 50


def _ask(agent: Agent, base: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    request = {"base": base, "entries": [_for_box(e) for e in entries]}
    try:
        return agent.call("tree_have", request, timeout_s=_time_for(entries))
    except Refused as refused:
        raise _no_place(base, refused) from refused


def _no_place(base: str, refused: Refused) -> errors.UsageError:
    return errors.UsageError(f"{base!r} cannot be a destination: {refused}")


def _digest(job: _Job, path: str) -> None:
    """Read a file for its digest."""
    entry = job.entries[path]
    full = os.path.join(job.source_dir, str(entry["from"]))
    began_ns = time.time_ns()
    try:
        entry["sha256"], size = digest_file(full)
        now = os.lstat(full)
        if size != entry["bytes"] or not _stands_still(now, entry):
            raise _changed(str(entry["from"]))
    except (Changed, FileNotFoundError) as error:
        raise _changed(str(entry["from"])) from error
    except OSError as error:
        raise errors.UsageError(f"{shown(str(entry['from']))} cannot be read: {error.strerror}") from error
    if same_file(now, entry["stat"]):
        job.seen.put(str(entry["from"]), now, began_ns, entry["sha256"])


def _stands_still(now: os.stat_result, entry: dict[str, Any]) -> bool:
    """The change time is not compared: making a hard link for a copy alters it and no byte."""
    then = entry["stat"]
    return (now.st_size, now.st_mtime_ns, now.st_ino, now.st_dev) == (
        then.st_size,
        then.st_mtime_ns,
        then.st_ino,
        then.st_dev,
    )


def _learn(job: _Job, ask: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> dict[str, Any]:
    """Ask about what is missing, with digests where the box needs them, note what is good, and return the answer."""
    answer = ask(job.missing)
    while True:
        job.good |= set(answer["have"])
        if not answer["ask"]:
            return answer
        for path in answer["ask"]:
            _digest(job, path)
        again = ask([job.entries[path] for path in answer["ask"]])
        again["older"] += answer["older"]
        again["staged"].update(answer["staged"])
        answer = again


def _learn_patiently(job: _Job) -> dict[str, Any]:
    while True:
        try:
            return _learn(job, lambda entries: _ask(job.agent, job.base, entries))
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


def _carry(job: _Job, prefer: str) -> Literal["rsync", "framed", "nothing"]:
    """Bring what is missing. All that is asked and sent goes through one program on the box, while it lasts."""
    by: Literal["rsync", "framed", "nothing"] = "nothing"
    tried = prefer == "framed"
    wrong_rounds = 0
    while job.missing or job.already is None:
        before, arrived = len(job.good), job.good_bytes
        try:
            asked = _have_frame(job, job.missing)
            limit_s = _time_for(job.missing)
            with dialog(job.agent, "tree_push", asked, timeout_s=limit_s, stall_s=job.patience.stall_s) as spoken:
                answer = _learn(job, _Asking(job, spoken))
                arrived = job.good_bytes + sum(int(n) for n in answer["staged"].values())
                if job.already is None:
                    job.already = (len(job.good), job.good_bytes)
                    job.base = str(answer["base"])
                    job.half = sum(int(n) for n in answer["staged"].values())
                    _gate(job, answer)
                if not job.missing:
                    spoken.send([({"t": "claim", "paths": [job.place]}, b"")])
                    job.claimed = bool(spoken.next(120.0)["claimed"])
                    return by
                by_rsync = not tried and _rsync_first(job, answer, prefer)
                tried = True
                if not by_rsync:
                    by = "framed"
                    _by_frames(job, answer, spoken)
            if by_rsync:
                by = "rsync"
                _by_rsync(job, forced=prefer == "rsync")
                before = len(job.good)
        except Refused as refused:
            if refused.code == "os":
                raise _no_write(job, refused) from refused
            if job.already is None:
                raise _no_place(job.base, refused) from refused
            if refused.code != "torn":
                raise errors.PlaceError(f"{job.agent.exec.describe()} did not take the data: {refused}") from refused
        except (errors.Unreachable, errors.TimeOver) as error:
            job.patience.cut(error, arrived)
            continue
        if job.missing and by == "framed":
            wrong_rounds = wrong_rounds + 1 if len(job.good) == before else 0
            if wrong_rounds >= WRONG_ROUNDS:
                raise _changed(str(job.missing[0]["from"]))
    return by


def _rsync_first(job: _Job, answer: dict[str, Any], prefer: str) -> bool:
    """Whether rsync is to carry: it is better than our frames where it finds most of a new version in the old one."""
    if prefer == "auto":
        older = sum(int(job.entries[path]["bytes"]) for path in answer["older"] if path not in job.good)
        # Half files of ours are worth more than another carrier.
        if answer["staged"] or 2 * older <= job.total - job.good_bytes:
            return False
    if rsync.usable(job.agent) and all(e["from"] == e["path"] for e in job.missing):
        return True
    if prefer == "rsync":
        raise errors.BoxLacks(f"{job.agent.exec.describe()} or this machine has no rsync", lacks="rsync")
    return False


def _have_frame(job: _Job, entries: list[dict[str, Any]]) -> Frame:
    request = {"base": job.base, "entries": [_for_box(e) for e in entries], "read": job.verify}
    return {"t": "have"}, json.dumps(request, ensure_ascii=True).encode("ascii")


@dataclass
class _Asking:
    """Asks in a dialog; its first question was asked when it was opened."""

    job: _Job
    spoken: Dialog
    first: bool = True

    def __call__(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        if self.first:
            self.first = False
            return self.spoken.answer
        self.spoken.send([_have_frame(self.job, entries)])
        return self.spoken.next(_time_for(entries))


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


def _by_rsync(job: _Job, forced: bool) -> None:
    """Let rsync carry what is missing, and compare what is there then."""
    for _ in range(RSYNC_CUTS if not forced else 1 << 30):
        moved = _Moved(job, job.good_bytes)
        try:
            paths = [str(e["path"]) for e in job.missing]
            rsync.carry(job.agent, job.source_dir, paths, job.base, moved, job.patience.stall_s)
            job.sent += moved.bytes
            break
        except rsync.CannotCarry as error:
            if forced:
                raise errors.BoxLacks(f"rsync does not work with {job.agent.exec.describe()}: {error}") from error
            break
        except errors.Unreachable as error:
            job.sent += moved.bytes
            job.patience.cut(error, job.good_bytes + moved.bytes)
            _learn_patiently(job)
    _learn_patiently(job)


def _by_frames(job: _Job, answer: dict[str, Any], spoken: Dialog) -> None:
    """Send what is missing in one stream. What the box wrote with the right digest is good."""
    missing = job.missing
    spoken.send(_body(job, missing, {str(k): int(v) for k, v in answer["staged"].items()}))
    spoken.send([({"t": "claim", "paths": [job.place]}, b"")])
    spoken.end()
    done = spoken.next(_time_for(missing))
    job.claimed = bool(done["claimed"])
    job.good |= set(done["written"]) & set(job.entries)


def _body(job: _Job, missing: list[dict[str, Any]], staged: dict[str, int]) -> Iterator[Frame]:
    done = job.good_bytes
    parts: set[tuple[str, str]] = set()
    for entry in sorted(missing, key=lambda e: str(e["path"])):
        path, size = str(entry["path"]), int(entry["bytes"])
        header = {"t": "file", **_for_box(entry)}
        if entry["link"]:
            yield dict(header, offset=0), b""
            continue
        # Two equal files in one directory share a part there; only the first continues it.
        place = (os.path.dirname(path), str(entry.get("sha256") or entry["key"]))
        offset = 0 if place in parts else staged.get(path, 0)
        parts.add(place)
        full = os.path.join(job.source_dir, str(entry["from"]))
        digest, began_ns = hashlib.sha256(), time.time_ns()
        try:
            with open(full, "rb", buffering=0) as handle:
                if not _stands_still(os.fstat(handle.fileno()), entry):
                    raise _changed(str(entry["from"]))
                yield dict(header, offset=offset), b""
                at = 0
                if "sha256" in entry:
                    at = handle.seek(offset)
                while at < size and (chunk := handle.read(min(CHUNK_BYTES, size - at))):
                    if "sha256" not in entry:
                        digest.update(chunk)
                    new, at = chunk[max(0, offset - at) :], at + len(chunk)
                    if new:
                        job.sent += len(new)
                        frame = job.squeeze.frame(new)
                        began_s = time.perf_counter()
                        yield frame
                        job.squeeze.wrote(time.perf_counter() - began_s)
                    if job.progress:
                        job.progress(done + at, job.total, path)
                now = os.fstat(handle.fileno())
                if at < size or not _stands_still(now, entry):
                    raise _changed(str(entry["from"]))
        except FileNotFoundError as error:
            raise _changed(str(entry["from"])) from error
        except PermissionError as error:
            raise errors.UsageError(f"{shown(str(entry['from']))} cannot be read: {error.strerror}") from error
        if "sha256" not in entry:
            entry["sha256"] = digest.hexdigest()
            if same_file(now, entry["stat"]):
                job.seen.put(str(entry["from"]), now, began_ns, entry["sha256"])
            yield {"t": "sha256", "sha256": entry["sha256"]}, b""
            # should this try end in a cut, the next one still continues the part that has the other name
            del entry["sha256"]
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
