"""Bring files home into a staging directory: continued per file, named finally only with the right digest.

What a box says is not trusted with this machine: names that leave the staging directory are refused, and no link is
left that points out of it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.artifacts.digest import Changed, digest_file
from outlive.artifacts.manifest import relative_path
from outlive.sync.arrive import Arrived, Folders, Trail, clear, dress, make_durable, write_small
from outlive.sync.patience import Patience, Progress
from outlive.sync.snapshot import shown
from outlive.sync.space import gate
from outlive.transport.agent import Agent, Refused

OURS = ".outlive"
"""The first part of names that are ours in a landed directory; a box cannot write there."""
LINK_NOTE = ".outlive-link"
BATCH_FILES = 100_000
PACK_FILE_BYTES = 64 * 1024
"""Files up to this size travel many to a frame."""


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
    sizes: dict[str, int] = field(default_factory=dict)
    """Parts that were there when this call began; most calls meet none."""
    unsynced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folders = Folders(str(self.staging))

    def full(self, path: str) -> str:
        return f"{self.staging}/{path}"


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
    with contextlib.suppress(FileNotFoundError):
        state.sizes = {item.name: item.stat().st_size for item in os.scandir(state.parts)}
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
    make_durable(str(staging), state.unsynced)
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
    if not state.staging.exists():
        return files
    for entry in files:
        target = state.staging / entry["path"]
        if _is(target, entry):
            state.done[entry["path"]] = int(entry["bytes"])
            state.resumed += int(entry["bytes"])
            state.unsynced.append(str(target))  # a call that was cut left that to us
        else:
            todo.append(entry)
    return todo


def _is(path: Path, entry: Mapping[str, Any]) -> bool:
    """Whether a file here has the entry's content. Reads it."""
    try:
        info = os.lstat(path)
        if not stat.S_ISREG(info.st_mode) or info.st_size != int(entry["bytes"]):
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


def _held(entry: Mapping[str, Any], state: _State) -> int:
    """Return how much of a file lies in its part."""
    return _size(_part(entry, state)) if state.sizes else 0


def _room(todo: list[dict[str, Any]], state: _State) -> None:
    there = state.staging
    while not there.exists():
        there = there.parent
    space = os.statvfs(there)
    gate(
        str(there),
        bytes_needed=sum(max(0, int(e["bytes"]) - _held(e, state)) for e in todo),
        bytes_free=space.f_bavail * space.f_frsize,
        inodes_needed=len(todo),
        inodes_free=space.f_favail if space.f_files else None,
        what=f"this result ({len(todo)} files)",
    )


def _take_known(entry: dict[str, Any], state: _State) -> bool:
    """Take a file from an earlier result if it is the same, or its beginning if it grew. True when it is here now."""
    if state.known is None or _held(entry, state):
        return False
    old = state.known / entry["path"]
    try:
        info = os.lstat(old)
    except OSError:
        return False
    if not stat.S_ISREG(info.st_mode) or info.st_size > int(entry["bytes"]):
        return False
    if _is(old, entry):
        part = _copy(old, entry, state)
        if digest_file(str(part))[0] == entry["sha256"]:
            return _publish(entry, part, state, resumed=int(entry["bytes"]))
        part.unlink()
    elif 0 < info.st_size < int(entry["bytes"]):
        _copy(old, entry, state)  # a log that grew; a wrong guess is found by the digest and fetched whole
    return False


def _copy(source: Path, entry: Mapping[str, Any], state: _State) -> Path:
    part = _part(entry, state)
    aside = part.with_name(part.name + ".copy")
    shutil.copyfile(source, aside)
    os.replace(aside, part)
    state.sizes[part.name] = part.stat().st_size
    return part


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
    offsets: dict[str, int] = {}
    for entry in batch:
        offset = _held(entry, state)
        if offset > int(entry["bytes"]):
            _part(entry, state).unlink()
            offset = 0
        offsets[entry["path"]] = offset
        wanted.append({"path": entry["path"], "bytes": int(entry["bytes"]), "offset": offset})
    by_path = {str(e["path"]): e for e in batch}
    request: dict[str, Any] = {"base": base, "files": wanted, "pack": PACK_FILE_BYTES}
    if run and lease:
        request.update(run=run, lease=lease, later=[e["path"] for e in rest])
    again: list[dict[str, Any]] = []
    here = sum(state.done.values())
    left, fd, current = 0, -1, ""

    def judged(wait: bool) -> None:
        for arrived in trail.done(wait):
            if _ended(arrived, state):
                again.append(arrived.entry)

    with Trail() as trail:
        try:
            for header, payload in agent.receive("tree_get", request, stall_s=stall_s):
                kind = header["t"]
                if kind == "pack":
                    for name, size in _unpack(header, payload, batch, state, agent):
                        here, current = here + size, name
                    if progress:
                        progress(here, state.total, current)
                    continue
                if kind == "data" and fd >= 0:
                    if len(payload) > left:
                        raise errors.PlaceError(
                            f"{agent.exec.describe()} sent more of {shown(current)} than it announced"
                        )
                    _write(fd, payload)
                    trail.wrote(len(payload))
                    left -= len(payload)
                    state.fetched += len(payload)
                    if progress:
                        progress(here + int(by_path[current]["bytes"]) - left, state.total, current)
                    continue
                if kind not in ("file", "eof"):
                    continue
                path = str(header.get("path", ""))
                if path not in by_path:
                    raise errors.PlaceError(f"{agent.exec.describe()} sent a file that nobody asked for: {shown(path)}")
                entry = by_path[path]
                if kind == "file" and fd < 0:
                    part = _part(entry, state)
                    fd = os.open(part, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    current, left = path, int(entry["bytes"]) - offsets[path]
                    trail.begin(part, offsets[path])
                elif kind == "eof" and fd >= 0:
                    os.close(fd)
                    fd = -1
                    trail.end(Arrived(entry, header, offsets[path]))
                    here += int(entry["bytes"])
                    judged(wait=False)
                elif kind == "eof" and header.get("error"):
                    state.wrong[path] = f"the box cannot read it: {header['error']}"
                elif kind == "eof":
                    state.wrong[path] = f"it is {header.get('short')} bytes shorter on the box than its record says"
        finally:
            if fd >= 0:
                os.close(fd)
            state.sizes.update((p.name, 1) for p in state.parts.glob("*"))
        judged(wait=True)
    asked = {e["path"] for e in again}
    for path in by_path:
        if path not in state.done and path not in state.wrong and path not in asked:
            raise errors.PlaceError(f"{agent.exec.describe()} did not answer for {shown(path)}")
    return again + rest


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _unpack(
    header: Mapping[str, Any], payload: bytes, batch: list[dict[str, Any]], state: _State, agent: Agent
) -> Iterator[tuple[str, int]]:
    """Write the small files of one frame; yield (path, bytes) of those that are what they should be."""
    view, at = memoryview(payload), 0
    for number, size in header["files"]:
        entry = batch[number] if isinstance(number, int) and 0 <= number < len(batch) else {}
        path = str(entry.get("path", ""))
        if not entry or path in state.done:
            raise errors.PlaceError(f"{agent.exec.describe()} sent a file that nobody asked for: number {number}")
        if size != int(entry["bytes"]) or at + size > len(view):
            raise errors.PlaceError(f"{agent.exec.describe()} sent more or less of {shown(path)} than it announced")
        data = view[at : at + size]
        at += size
        state.fetched += size
        if _write_one(path, entry, data, state):
            yield path, size
    if at != len(view):
        raise errors.PlaceError(f"{agent.exec.describe()} sent more than it announced")


def _write_one(path: str, entry: Mapping[str, Any], data: memoryview, state: _State) -> bool:
    full = state.full(path)
    try:
        state.folders.above(path)
        try:
            right = write_small(full, entry, data)
        except FileExistsError:
            if _twin(path, state):
                return False
            clear(full)
            state.folders.forget()
            right = write_small(full, entry, data)
    except OSError as error:
        _refused(path, error, state)
        return False
    if not right:
        state.wrong[path] = "it has another content on the box than its record says"
        return False
    state.folded.setdefault(path.casefold(), path)
    state.unsynced.append(full)
    state.done[path] = len(data)
    return True


def _refused(path: str, error: OSError, state: _State) -> None:
    """Name a file that this disk does not take. A full disk takes none: that ends the transfer."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
        raise error
    state.wrong[path] = f"cannot be written here: {error.strerror}"


def _twin(path: str, state: _State) -> bool:
    """Whether what stands under this name is another file of this result, which the disk cannot tell from it."""
    other = state.folded.get(path.casefold(), path)
    if other == path:
        return False
    state.wrong[path] = f"this disk cannot tell its name from {shown(other)}"
    return True


def _ended(arrived: Arrived, state: _State) -> bool:
    """Judge a file whose transfer ended. Returns whether it should be asked for once more, whole."""
    entry, header = arrived.entry, arrived.header
    path, part = str(entry["path"]), _part(entry, state)
    if header.get("error"):
        state.wrong[path] = f"the box cannot read it: {header['error']}"
        return False
    if header.get("short"):
        state.wrong[path] = f"it is {header['short']} bytes shorter on the box than its record says"
        part.unlink(missing_ok=True)
        return False
    if arrived.error is not None:
        raise arrived.error
    if arrived.sha256 == entry["sha256"]:
        _publish(entry, part, state, resumed=arrived.offset, synced=True)
        return False
    part.unlink()
    if arrived.offset and path not in state.again:
        state.again.add(path)  # what was here from before may have been wrong
        return True
    state.wrong[path] = "it has another content on the box than its record says"
    return False


def _publish(entry: dict[str, Any], part: Path, state: _State, resumed: int, synced: bool = False) -> bool:
    """Give a proved part its final name."""
    path = str(entry["path"])
    full = state.full(path)
    try:
        state.folders.above(path)
        if os.path.lexists(full):
            if _twin(path, state):
                return True
            if os.path.islink(full) or os.path.isdir(full):
                clear(full)  # staging is ours: left by an earlier version of this result
                state.folders.forget()
        fd = os.open(part, os.O_RDONLY)
        try:
            dress(fd, entry)
        finally:
            os.close(fd)
        os.replace(part, full)
    except OSError as error:
        _refused(path, error, state)
        return True
    state.folded.setdefault(path.casefold(), path)
    if not synced:
        state.unsynced.append(full)
    state.done[path] = int(entry["bytes"])
    state.resumed += resumed
    return True


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
            state.folders.above(path)
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
            state.folders.above(path)
            full.with_name(full.name + LINK_NOTE).write_bytes(os.fsencode(target) + b"\n")
        except OSError as error:
            state.wrong[path] = f"cannot be written here: {error.strerror}"
    return outside
