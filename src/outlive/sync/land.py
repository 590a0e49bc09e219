"""Publish a complete staging directory under its final name.

Nothing that was accepted, or changed by its user, is lost. The first landing is one rename. Later ones (a live run is
pulled again and again) go file by file: equal content stays, new files come by rename, and a file with another content
is replaced atomically. What it replaces is kept under ``.outlive/old/<n>/`` unless nothing is lost with it: it is the
beginning of the new one (a log that grew), or it is what the last landing brought, untouched since, and was never
accepted (`latest.pt` of a live run).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.artifacts.digest import digest_file
from outlive.artifacts.manifest import scan
from outlive.sync.arrive import sync_names
from outlive.sync.fetch import OURS
from outlive.wire.names import sync_directory
from outlive.wire.values import Entry

RECORD = "landed.json"


@dataclass(frozen=True)
class LandResult:
    """``added``, ``replaced`` and ``same`` are paths; ``kept`` maps a path to where its earlier content is now."""

    final: Path
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)


def land(
    staging_dir: str | os.PathLike[str],
    final_dir: str | os.PathLike[str],
    *,
    accepted: Collection[str] = (),
    digests: Mapping[str, str] | None = None,
) -> LandResult:
    """Publish ``staging_dir`` as ``final_dir``; it is gone afterwards. Both must be on one file system.

    ``accepted`` are paths whose content in this staging is proved; it is remembered, and such content is never
    replaced without being kept. ``digests``: of files that were compared with them in this staging; others are read.
    Files of ``final_dir`` that staging lacks stay. Repeatable after a crash: what was
    published already is equal or gone from staging. Raises UsageError when ``final_dir`` is a file, NoSpace and
    OSError as the disk does.
    """
    staging, final = Path(staging_dir).absolute(), Path(final_dir).absolute()
    digests = digests or {}
    if final.is_symlink() or final.exists():
        if not final.is_dir():
            raise errors.UsageError(f"{final} exists and is no directory")
        return _merge(staging, final, set(accepted), digests)
    entries = scan(str(staging), ignore=())
    proved = set(accepted)
    _write_record(staging, {e.path: _record(staging, e, proved, digests) for e in entries if not e.link})
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(staging, final)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return _merge(staging, final, set(accepted), digests)  # a second pull was faster
        raise
    sync_directory(str(final.parent))
    return LandResult(final, added=[e.path for e in entries])


def _record(staging: Path, entry: Entry, accepted: set[str], digests: Mapping[str, str]) -> dict[str, Any]:
    return {
        "sha256": digests.get(entry.path) or digest_file(str(staging / entry.path))[0],
        "bytes": entry.bytes,
        "mtime_ns": entry.mtime_ns,
        "accepted": entry.path in accepted,
    }


def _write_record(top: Path, files: dict[str, dict[str, Any]]) -> None:
    """Write what landings brought. Not waited for: after a power cut an older one, or none, only keeps more aside."""
    (top / OURS).mkdir(exist_ok=True)
    data = json.dumps({"schema": "outlive/landed/1", "files": files}, separators=(",", ":"))
    aside = top / OURS / f"{RECORD}.{os.getpid()}.part"
    aside.write_bytes(data.encode("ascii"))
    os.replace(aside, top / OURS / RECORD)


def read_record(final_dir: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Return what landings brought: path -> {sha256, bytes, mtime_ns, accepted}. Empty where there is no record."""
    try:
        data = json.loads((Path(final_dir) / OURS / RECORD).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    files = data.get("files")
    return dict(files) if isinstance(files, dict) else {}


def _merge(staging: Path, final: Path, accepted: set[str], digests: Mapping[str, str]) -> LandResult:
    record = read_record(final)
    result = LandResult(final)
    old: list[Path] = []
    for entry in scan(str(staging), ignore=()):
        path = entry.path
        if path.split("/")[0] == OURS:
            continue
        source, target = staging / path, final / path
        _clear_way(final, path, old, result)
        if not os.path.lexists(target):
            result.added.append(path)
        elif entry.link and target.is_symlink() and os.readlink(target) == entry.link:
            result.same.append(path)
            source.unlink()
            continue
        elif not entry.link and _equal(source, target):
            result.same.append(path)
            now = dict(_record(staging, entry, accepted, digests), mtime_ns=target.stat().st_mtime_ns)
            before = record.get(path)
            if before and before.get("accepted") and before.get("sha256") == now["sha256"]:
                now["accepted"] = True
            record[path] = now
            source.unlink()
            continue
        else:
            if not _nothing_lost(source, target, record.get(path), bool(entry.link)):
                _keep(final, path, old, result)
            result.replaced.append(path)
        fresh = None if entry.link else _record(staging, entry, accepted, digests)
        try:
            os.replace(source, target)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise errors.UsageError(f"{staging} and {final} are on different file systems") from error
            raise
        if fresh is None:
            record.pop(path, None)
        else:
            record[path] = fresh
    _write_record(final, record)
    shutil.rmtree(staging)
    sync_names(str(final), {str(final), *(str((final / path).parent) for path in (*result.added, *result.replaced))})
    return result


def _equal(one: Path, two: Path) -> bool:
    if two.is_symlink() or not two.is_file() or one.stat().st_size != two.stat().st_size:
        return False
    with open(one, "rb") as a, open(two, "rb") as b:
        while chunk := a.read(1 << 20):
            if chunk != b.read(len(chunk)):
                return False
    return True


def _nothing_lost(new: Path, old: Path, known: dict[str, Any] | None, is_link: bool) -> bool:
    """Whether replacing ``old`` by ``new`` loses nothing that anybody could want back."""
    if old.is_symlink():
        return is_link  # `latest -> step-100` becomes `latest -> step-200`
    if is_link or not old.is_file():
        return False
    info = old.stat()
    if info.st_size == 0:
        return True
    if info.st_size < new.stat().st_size and digest_file(str(new), info.st_size)[0] == digest_file(str(old))[0]:
        return True
    if known is None or known.get("accepted"):
        return False
    return known.get("bytes") == info.st_size and known.get("sha256") == digest_file(str(old))[0]


def _clear_way(final: Path, path: str, old: list[Path], result: LandResult) -> None:
    """Make the directories above a path; a file or link that stands where a directory must be is kept aside."""
    here, names = final, path.split("/")[:-1]
    for depth, name in enumerate(names):
        here = here / name
        if here.is_symlink() or (here.exists() and not here.is_dir()):
            _keep(final, "/".join(names[: depth + 1]), old, result, move=True)
        here.mkdir(exist_ok=True)


def _keep(final: Path, path: str, old: list[Path], result: LandResult, move: bool = False) -> None:
    """Keep what is at ``path`` under ``.outlive/old/<n>``.

    A file that will be replaced keeps its own name too until then (a link, so that no reader finds it missing);
    ``move`` and all else is renamed.
    """
    if not old:
        old.append(_next(final / OURS / "old"))
    source, target = final / path, old[0] / path
    target.parent.mkdir(parents=True, exist_ok=True)
    linked = False
    if not move and source.is_file() and not source.is_symlink():
        try:
            os.link(source, target)
            linked = True
        except OSError:
            pass  # a file system without hard links
    if not linked:
        os.rename(source, target)
    result.kept[path] = str(target.relative_to(final))


def _next(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        made = directory / str(number)
        try:
            made.mkdir()
            return made
        except FileExistsError:
            number += 1
