"""Bring files home into a staging directory: continued per file, named finally only with the right digest.

What a box says is not trusted with this machine: names that leave the staging directory are refused, and no link is
left that points out of it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.artifacts.digest import Changed, digest_file
from outlive.artifacts.manifest import relative_path
from outlive.sync.patience import Patience, Progress
from outlive.sync.snapshot import shown
from outlive.sync.space import gate
from outlive.transport.agent import Agent, Refused

OURS = ".outlive"
"""The first part of names that are ours in a landed directory; a box cannot write there."""
LINK_NOTE = ".outlive-link"
BATCH_FILES = 2000


@dataclass(frozen=True)
class FetchResult:
    """What is in staging now.

    ``files`` and ``bytes``: with the digest that the box recorded. ``bytes_fetched`` came over the line in this call,
    ``bytes_resumed`` were here from before (an earlier call, or ``known``). ``wrong``: path -> why it is not here.
    ``links_outside``: path -> target of links that were not made, because they lead out of the result; their target
    stands in ``<path>.outlive-link``.
    """

    files: int
    bytes: int
    bytes_fetched: int
    bytes_resumed: int
    wrong: dict[str, str]
    links_outside: dict[str, str]
    cuts: int = 0

    @property
    def complete(self) -> bool:
        """Whether every entry is here, with its digest."""
        return not self.wrong


@dataclass
class _State:
    staging: Path
    parts: Path
    known: Path | None
    total: int
    fetched: int = 0
    resumed: int = 0
    done: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    folded: dict[str, str] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    """Files whose part was dropped once already."""


def fetch(
    agent: Agent,
    base: str,
    entries: Iterable[Mapping[str, Any]],
    staging_dir: str | os.PathLike[str],
    *,
    run: str | None = None,
    lease: str | None = None,
    progress: Progress | None = None,
    patience: Patience | None = None,
    known: str | os.PathLike[str] | None = None,
) -> FetchResult:
    """Bring ``entries`` (as ``wire.values.Entry``, in wire form) from below ``base`` on the box into ``staging_dir``.

    Repeatable: what is there with the right digest is kept, what is half there is continued. ``known`` is an earlier
    result: files with the same content are taken from it, and files that grew continue from it. ``run`` and ``lease``
    hold the files against pruning on the box while they travel. A file that differs from its entry (changed, shorter,
    gone, a name that leaves the directory) is named in ``wrong`` and has no final name; the others are brought.

    Raises NoSpace before anything is written, Unreachable when patience is over; then the same call continues.
    """
    patience = patience or Patience()
    staging = Path(staging_dir).absolute()
    state = _State(staging, staging.with_name(staging.name + ".parts"), Path(known) if known else None, 0)
    files, links = _sorted(entries, state)
    state.total = sum(int(e["bytes"]) for e in files)
    todo = _not_here(files, state)
    _room(todo, state)
    staging.mkdir(parents=True, exist_ok=True)
    state.parts.mkdir(exist_ok=True)
    todo = [e for e in todo if not _take_known(e, state)]
    while todo:
        try:
            todo = _round(agent, base, todo, state, run, lease, progress, patience.stall_s)
        except Refused as refused:
            raise errors.PlaceError(f"{agent.exec.describe()} does not give these files: {refused}") from refused
        except (errors.Unreachable, errors.TimeOver) as error:
            patience.cut(error, state.fetched)
            todo = [e for e in todo if e["path"] not in state.done and e["path"] not in state.wrong]
    outside = _links(links, base, state)
    if not state.wrong:
        shutil.rmtree(state.parts, ignore_errors=True)
    return FetchResult(
        files=len(state.done),
        bytes=sum(state.done.values()),
        bytes_fetched=state.fetched,
        bytes_resumed=state.resumed,
        wrong=state.wrong,
        links_outside=outside,
        cuts=patience.cuts,
    )


def _sorted(entries: Iterable[Mapping[str, Any]], state: _State) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (files, links) with safe names, small ones first: most of a result is home before its largest file."""
    files: dict[str, dict[str, Any]] = {}
    links: dict[str, dict[str, Any]] = {}
    for entry in entries:
        given = str(entry["path"])
        try:
            path = relative_path(given)
        except ValueError as error:
            state.wrong[given] = f"refused: {error}"
            continue
        if path.split("/")[0] == OURS:
            state.wrong[given] = f"refused: {OURS}/ is ours here"
            continue
        item = dict(entry, path=path)
        if item.get("link"):
            links[path] = item
        elif not item.get("sha256"):
            state.wrong[path] = "the box has no digest of it yet"
        else:
            files[path] = item
    return sorted(files.values(), key=lambda e: (int(e["bytes"]), str(e["path"]))), list(links.values())


def _not_here(files: list[dict[str, Any]], state: _State) -> list[dict[str, Any]]:
    todo = []
    for entry in files:
        target = state.staging / entry["path"]
        if _is(target, entry):
            state.done[entry["path"]] = int(entry["bytes"])
            state.resumed += int(entry["bytes"])
        else:
            todo.append(entry)
    return todo


def _is(path: Path, entry: Mapping[str, Any]) -> bool:
    """Whether a file here has the entry's content. Reads it."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size != int(entry["bytes"]):
            return False
        return digest_file(str(path))[0] == str(entry["sha256"])
    except (OSError, Changed):
        return False


def _part(entry: Mapping[str, Any], state: _State) -> Path:
    # its content is in its name: a part is never continued with another version's bytes
    key = f"{entry['path']}\0{entry['sha256']}\0{entry['bytes']}".encode("utf-8", "surrogateescape")
    return state.parts / hashlib.sha256(key).hexdigest()[:32]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _room(todo: list[dict[str, Any]], state: _State) -> None:
    there = state.staging
    while not there.exists():
        there = there.parent
    space = os.statvfs(there)
    gate(
        str(there),
        bytes_needed=sum(max(0, int(e["bytes"]) - _size(_part(e, state))) for e in todo),
        bytes_free=space.f_bavail * space.f_frsize,
        inodes_needed=len(todo),
        inodes_free=space.f_favail if space.f_files else None,
        what=f"this result ({len(todo)} files)",
    )


def _take_known(entry: dict[str, Any], state: _State) -> bool:
    """Take a file from an earlier result if it is the same, or its beginning if it grew. True when it is here now."""
    part = _part(entry, state)
    if state.known is None or part.exists():
        return False
    old = state.known / entry["path"]
    if old.is_symlink() or not old.is_file():
        return False
    if _is(old, entry):
        _copy(old, part)
        return _publish(entry, part, state, resumed=int(entry["bytes"]))
    if 0 < _size(old) < int(entry["bytes"]):
        _copy(old, part)  # a log that grew; a wrong guess is found by the digest and fetched whole
    return False


def _copy(source: Path, target: Path) -> None:
    aside = target.with_name(target.name + ".copy")
    shutil.copyfile(source, aside)
    os.replace(aside, target)


def _round(
    agent: Agent,
    base: str,
    todo: list[dict[str, Any]],
    state: _State,
    run: str | None,
    lease: str | None,
    progress: Progress | None,
    stall_s: float,
) -> list[dict[str, Any]]:
    """Ask once for what is missing. Returns what has to be asked for again."""
    batch, rest = todo[:BATCH_FILES], todo[BATCH_FILES:]
    wanted: list[dict[str, Any]] = []
    for entry in batch:
        offset = _size(_part(entry, state))
        if offset > int(entry["bytes"]):
            _part(entry, state).unlink()
            offset = 0
        wanted.append({"path": entry["path"], "bytes": int(entry["bytes"]), "offset": offset})
    by_path = {str(e["path"]): e for e in batch}
    offsets = {str(w["path"]): int(w["offset"]) for w in wanted}
    request: dict[str, Any] = {"base": base, "files": wanted}
    if run and lease:
        request.update(run=run, lease=lease, later=[e["path"] for e in rest])
    again: list[dict[str, Any]] = []
    here = sum(state.done.values())
    moving: Path | None = None
    left = 0
    handle = None
    try:
        for header, payload in agent.receive("tree_get", request, stall_s=stall_s):
            kind, path = header["t"], str(header.get("path", ""))
            if kind in ("file", "eof") and path not in by_path:
                raise errors.PlaceError(f"{agent.exec.describe()} sent a file that nobody asked for: {shown(path)}")
            if kind == "file":
                moving = _part(by_path[path], state)
                left = int(by_path[path]["bytes"]) - offsets[path]
                handle = open(moving, "ab", buffering=0)
                current = path
            elif kind == "data" and handle is not None:
                if len(payload) > left:
                    raise errors.PlaceError(f"{agent.exec.describe()} sent more of {shown(current)} than it announced")
                _write(handle.fileno(), payload)
                left -= len(payload)
                state.fetched += len(payload)
                if progress:
                    progress(here + int(by_path[current]["bytes"]) - left, state.total, current)
            elif kind == "eof":
                if handle is not None:
                    handle.close()
                    handle = None
                if _ended(by_path[path], header, offsets[path], state):
                    again.append(by_path[path])
                here += state.done.get(path, 0)
    finally:
        if handle is not None:
            handle.close()
    missing = [e for e in batch if e["path"] not in state.done and e["path"] not in state.wrong and e not in again]
    if missing:
        raise errors.PlaceError(f"{agent.exec.describe()} did not answer for {shown(str(missing[0]['path']))}")
    return again + rest


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _ended(entry: dict[str, Any], header: Mapping[str, Any], offset: int, state: _State) -> bool:
    """Judge a file whose transfer ended. Returns whether it should be asked for once more, whole."""
    path, part = str(entry["path"]), _part(entry, state)
    if header.get("error"):
        state.wrong[path] = f"the box cannot read it: {header['error']}"
        return False
    if header.get("short"):
        state.wrong[path] = f"it is {header['short']} bytes shorter on the box than its record says"
        part.unlink(missing_ok=True)
        return False
    if not part.exists():
        part.touch()
    if digest_file(str(part))[0] == entry["sha256"]:
        _publish(entry, part, state, resumed=offset)
        return False
    part.unlink()
    if offset and path not in state.again:
        state.again.add(path)  # what was here from before may have been wrong
        return True
    state.wrong[path] = "it has another content on the box than its record says"
    return False


def _publish(entry: dict[str, Any], part: Path, state: _State, resumed: int) -> bool:
    """Give a proved part its final name."""
    path = str(entry["path"])
    target = state.staging / path
    other = state.folded.setdefault(path.casefold(), path)
    try:
        _real_parents(state.staging, path)
        if target.is_symlink():
            target.unlink()
        if target.is_dir():
            shutil.rmtree(target)  # staging is ours: left by an earlier version of this result
        if other != path and target.exists():
            state.wrong[path] = f"this disk cannot tell its name from {shown(other)}"
            return True
        fd = os.open(part, os.O_RDONLY)
        try:
            os.fchmod(fd, (int(entry.get("mode") or 0o644) & 0o777) | 0o600)
            if entry.get("mtime_ns"):
                os.utime(fd, ns=(int(entry["mtime_ns"]), int(entry["mtime_ns"])))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(part, target)
    except OSError as error:
        state.wrong[path] = f"cannot be written here: {error.strerror}"
        return True
    state.done[path] = int(entry["bytes"])
    state.resumed += resumed
    return True


def _real_parents(top: Path, path: str) -> None:
    """Make the directories above ``path``; what is in their way (a link, an older file) goes."""
    here = top
    for name in path.split("/")[:-1]:
        here = here / name
        if here.is_symlink() or (here.exists() and not here.is_dir()):
            here.unlink()
        here.mkdir(exist_ok=True)


def _links(links: list[dict[str, Any]], base: str, state: _State) -> dict[str, str]:
    """Make links last, so that no file was ever written through one, then take away those that lead out."""
    outside: dict[str, str] = {}
    made: list[tuple[str, str]] = []
    for entry in links:
        path, target = str(entry["path"]), str(entry["link"])
        full = state.staging / path
        way = target
        if target.startswith(base.rstrip("/") + "/"):
            way = os.path.relpath(os.path.join(state.staging, target[len(base.rstrip("/")) + 1 :]), full.parent)
        if path in state.done:
            state.wrong[path] = "the box lists it twice: as a file and as a link"
            continue
        if os.path.isabs(way) or "\0" in way:
            outside[path] = target
            continue
        try:
            _real_parents(state.staging, path)
            if full.is_symlink():
                full.unlink()
            os.symlink(way, full)
            made.append((path, target))
        except OSError as error:
            state.wrong[path] = f"cannot be linked here: {error.strerror}"
    top = os.path.realpath(state.staging)
    for path, target in made:
        end = os.path.realpath(state.staging / path)
        if end != top and not end.startswith(top + "/"):
            outside[path] = target
    for path, target in outside.items():
        full = state.staging / path
        try:
            if full.is_symlink():
                full.unlink()
            _real_parents(state.staging, path)
            full.with_name(full.name + LINK_NOTE).write_bytes(os.fsencode(target) + b"\n")
        except OSError as error:
            state.wrong[path] = f"cannot be written here: {error.strerror}"
    return outside
