"""The code as it stands now: which files, with which content, under one digest."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import IO, Any, Literal

from outlive import errors
from outlive.onbox.archive import MANIFEST
from outlive.onbox.code import manifest_digest
from outlive.onbox.seen import Seen, same_file, settled
from outlive.sync.cautions import (
    SECRET_SCAN_BYTES,
    Caution,
    LeftOut,
    LinesNormalised,
    SecretsFound,
    biggest,
    looks_secret_file,
    too_big,
)
from outlive.sync.ignore import Ignore

HELD_BYTES, HELD_FILE_BYTES = 64 * 1024 * 1024, 256 * 1024
"""How much is kept in memory from being read to being sent, in all and of one file."""
WHOLE_BYTES = 8 * 1024 * 1024
"""Files up to this size are read at once; scripts are looked for among them only."""


@dataclass(frozen=True)
class Rules:
    """How to collect. ``extra``: ignore lines stronger than any file. ``crlf``: what to do with scripts that have
    Windows line ends: change them in the snapshot, refuse, or leave them."""

    extra: tuple[str, ...] = ()
    crlf: Literal["normalise", "refuse", "keep"] = "normalise"


@dataclass(frozen=True)
class Snapshot:
    """Files of a project at one moment.

    ``files`` are ``{"path", "mode", "bytes", "sha256", "link"}`` sorted by path; paths are relative, with ``/``, bytes
    that are not UTF-8 as surrogate escapes; modes are 0o755 or 0o644, so that two machines' umasks make one digest.
    ``digest`` names the snapshot on every box. ``normalised`` are the paths whose content differs from the disk's.
    """

    files: tuple[dict[str, Any], ...]
    digest: str
    total_bytes: int
    warnings: tuple[Caution, ...] = ()
    normalised: frozenset[str] = field(default_factory=frozenset)
    held: dict[str, tuple[bytes, os.stat_result]] = field(default_factory=dict, compare=False, repr=False)
    """Small contents that were read for this snapshot, and what the file system said of them then."""


def collect(
    project_dir: str | os.PathLike[str],
    rules: Rules | None = None,
    seen_dir: str | os.PathLike[str] | None = None,
) -> Snapshot:
    """Read the project and return its snapshot. Writes nothing there.

    With ``seen_dir`` the files that an earlier call read, and that have not changed since, are not read again
    (``onbox.seen`` says how that is known).

    Raises UsageError when the directory does not exist or holds nothing to push, when a symbolic link leads out of
    the project, a file cannot be read, or (``crlf="refuse"``) a script has Windows line ends.
    """
    rules = rules or Rules()
    top = os.path.realpath(os.fspath(project_dir))
    if not os.path.isdir(top):
        raise errors.UsageError(f"there is no directory {os.fspath(project_dir)} to push")
    files: list[dict[str, Any]] = []
    secrets: list[tuple[str, str]] = []
    left_out: list[tuple[str, str]] = []
    crlf: list[str] = []
    outside: list[str] = []
    unreadable: list[str] = []
    look = rules.crlf != "keep"
    seen = seen_of(top, seen_dir, look)
    held = _Held()
    for path, info in _walk(top, Ignore(top, rules.extra), left_out, unreadable):
        full = f"{top}/{path}"
        if stat.S_ISLNK(info.st_mode):
            link = _link(top, path)
            if link is None:
                outside.append(f"{shown(path)} -> {shown(os.readlink(full))}")
            else:
                files.append({"path": path, "mode": 0o777, "bytes": 0, "sha256": "", "link": link})
            continue
        row = seen.get(path, info)
        if row is None:
            try:
                row = _look_at(full, path, info, look, seen, held)
            except OSError as error:
                unreadable.append(f"{shown(path)}: {error.strerror}")
                continue
        sha256, size, changed, why = row
        if changed:
            crlf.append(path)
        if why:
            secrets.append((path, why))
        mode = 0o755 if info.st_mode & 0o100 else 0o644
        files.append({"path": path, "mode": mode, "bytes": size, "sha256": sha256, "link": ""})
    seen.save()
    _refuse(outside, unreadable, crlf if rules.crlf == "refuse" else [])
    if not files:
        raise errors.UsageError(f"{top} holds nothing to push: it is empty, or all of it is ignored")
    files.sort(key=itemgetter("path"))
    sizes = [(f["path"], f["bytes"]) for f in files]
    warnings: list[Caution | None] = [
        SecretsFound(tuple(sorted(secrets))) if secrets else None,
        too_big(sizes),
        LinesNormalised(tuple(sorted(crlf))) if crlf else None,
        LeftOut(tuple(sorted(left_out))) if left_out else None,
    ]
    return Snapshot(
        files=tuple(files),
        digest=manifest_digest(files),
        total_bytes=sum(size for _, size in sizes),
        warnings=tuple(w for w in warnings if w),
        normalised=frozenset(crlf),
        held=held.contents,
    )


def _refuse(outside: list[str], unreadable: list[str], crlf: list[str]) -> None:
    safe = "Nothing was sent."
    if outside:
        raise errors.UsageError(
            f"{len(outside)} symbolic links lead out of the project, where no box can follow"
            if len(outside) > 1
            else f"the symbolic link {outside[0]} leads out of the project, where no box can follow",
            why=outside if len(outside) > 1 else [],
            safe=f"{safe} Name it in .outliveignore, or send what it names with `outlive push --data`.",
        )
    if unreadable:
        raise errors.UsageError("some files cannot be read", why=unreadable, safe=safe)
    if crlf:
        raise errors.UsageError(
            "scripts have Windows line ends, which no shell understands",
            why=[shown(path) for path in crlf],
            safe=safe,
            next=[["sed", "-i", "s/\\r$//", *crlf[:5]]],
        )


def _walk(
    top: str, ignore: Ignore, left_out: list[tuple[str, str]], unreadable: list[str]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and links that belong to the snapshot. Links are not followed."""
    pending: list[tuple[str, bool]] = [("", False)]
    while pending:
        below, parent_ignored = pending.pop()
        try:
            with os.scandir(os.path.join(top, below)) as listing:
                items = sorted(listing, key=lambda item: item.name)
        except OSError as error:
            unreadable.append(f"{shown(below)}: {error.strerror}")
            continue
        names = [item.name for item in items]
        ignore.enter(below, names)
        for item in items:
            path = f"{below}/{item.name}" if below else item.name
            info = item.stat(follow_symlinks=False)
            is_dir = stat.S_ISDIR(info.st_mode)
            out = ignore.ignored(path, is_dir, parent_ignored)
            if is_dir:
                out = out or _is_environment(item.path)
                if not out or ignore.worth_entering(path):
                    pending.append((path, out))
            elif out:
                continue
            elif path == MANIFEST:
                left_out.append((path, "a name that the archive needs"))
            elif stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                yield path, info
            else:
                left_out.append((path, "neither file nor link"))


def _is_environment(directory: str) -> bool:
    """Python environments hold absolute paths of this machine, whatever they are called."""
    return os.path.exists(os.path.join(directory, "pyvenv.cfg")) or os.path.isdir(os.path.join(directory, "conda-meta"))


def _link(top: str, path: str) -> str | None:
    """Return what the link will be on the box, None when it leads out. Absolute ones inside become relative."""
    full = os.path.join(top, path)
    target = os.readlink(full)
    end = os.path.realpath(full)
    if end != top and not end.startswith(top + "/"):
        return None
    here = os.path.dirname(full)
    if os.path.isabs(target):
        absolute = os.path.normpath(target)
        real = absolute if absolute == top or absolute.startswith(top + "/") else end
        return os.path.relpath(real, here)
    # On the box only the project is there: a way that leaves it and comes back through its own name is none.
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return os.path.relpath(end, here)
    return target


def seen_of(top: str, seen_dir: str | os.PathLike[str] | None, look: bool) -> Seen:
    """Return the record of what was read below ``top``; an empty one without a place for it."""
    rules = _rules()
    place = os.fspath(seen_dir) if seen_dir is not None and rules else None
    return Seen(place, top, f"snapshot {rules} {look}")


def _rules() -> str:
    """Return a digest of all that decides what is said of a file: with other rules every file is read again."""
    from outlive.probes import secret_values
    from outlive.sync import cautions, suspects

    digest = hashlib.sha256(sys.version.encode())
    for source in (__file__, cautions.__file__, suspects.__file__, secret_values.__file__):
        try:
            with open(source, "rb") as text:
                digest.update(text.read())
        except OSError:
            return ""
    return digest.hexdigest()


class _Held:
    """Contents kept in memory between being read and being sent, as far as they are small."""

    def __init__(self) -> None:
        self.began_ns = time.time_ns()
        self.contents: dict[str, tuple[bytes, os.stat_result]] = {}
        self._bytes = 0

    def hold(self, path: str, data: bytes, info: os.stat_result) -> None:
        """Keep a content if there is room and its file cannot change without showing it."""
        if info.st_size > HELD_FILE_BYTES or self._bytes + len(data) > HELD_BYTES:
            return
        if settled(info, self.began_ns):
            self.contents[path] = (data, info)
            self._bytes += len(data)


def _look_at(full: str, path: str, info: os.stat_result, look: bool, seen: Seen, held: _Held) -> list[Any]:
    """Read a file and return [sha256, bytes, whether line ends are changed, why it looks like a secret]."""
    fd = os.open(full, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sha256, size, head, changed = _content(fd, path, info.st_size, look)
        why = looks_secret_file(path.rsplit("/", 1)[-1], head if size <= SECRET_SCAN_BYTES else None)
        row = [sha256, size, changed, why]
        if same_file(info, os.fstat(fd)):
            seen.put(path, info, held.began_ns, *row)
            held.hold(path, head, info)
        return row
    finally:
        os.close(fd)


def _content(fd: int, path: str, size: int, look: bool) -> tuple[str, int, bytes, bool]:
    """Return (sha256, bytes, content if it is small else its head, whether line ends are changed)."""
    if size > WHOLE_BYTES:
        digest, total = hashlib.sha256(), 0
        head = b""
        while chunk := os.read(fd, 1 << 20):
            head = head or chunk[:8192]
            digest.update(chunk)
            total += len(chunk)
        return digest.hexdigest(), total, head, False
    data = os.read(fd, size + 1)
    while len(data) != size and (more := os.read(fd, 1 << 20)):  # a file that grows, or a read that stopped short
        data += more
    changed = look and has_windows_lines(path, data)
    if changed:
        data = unix_lines(data)
    return hashlib.sha256(data).hexdigest(), len(data), data, changed


def has_windows_lines(path: str, data: bytes) -> bool:
    """Whether a file is a script (by its name or first line) with CRLF line ends."""
    script = path.endswith((".sh", ".bash", ".zsh")) or data.startswith(b"#!")
    return script and b"\r\n" in data and b"\0" not in data


def unix_lines(data: bytes) -> bytes:
    """Return the content with LF line ends."""
    return data.replace(b"\r\n", b"\n")


def open_content(source_dir: str, snapshot: Snapshot, path: str) -> IO[bytes]:
    """Return a file's content as the snapshot has it."""
    import io

    handle = open(os.path.join(source_dir, path), "rb")
    if path in snapshot.normalised:
        with handle:
            return io.BytesIO(unix_lines(handle.read()))
    return handle


def preview(snapshot: Snapshot, bytes_to_send: int | None = None, rate_bytes_s: float | None = None) -> dict[str, Any]:
    """Return what a push would send, as plain data.

    ``bytes_to_send`` is what the box lacks (all of it when None); ``eta_s`` is None without a measured rate.
    """
    sending = snapshot.total_bytes if bytes_to_send is None else bytes_to_send
    sizes = [(str(f["path"]), int(f["bytes"])) for f in snapshot.files]
    return {
        "digest": snapshot.digest,
        "files": len(snapshot.files),
        "bytes": snapshot.total_bytes,
        "bytes_to_send": sending,
        "biggest": [{"path": path, "bytes": size} for path, size in biggest(sizes)],
        "rate_bytes_s": rate_bytes_s,
        "eta_s": sending / rate_bytes_s if rate_bytes_s else None,
        "warnings": [w.to_json() for w in snapshot.warnings],
    }


def shown(path: str) -> str:
    """Return a path for a person: one line, nothing that a terminal would obey."""
    plain = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return plain if plain.isprintable() and plain == path else repr(path)
