"""Snapshots on the box: one archive per digest, built from older ones plus what was sent.

A snapshot's digest is over its manifest (paths, modes, digests of contents), so it does not depend on
how an archive is written. The manifest is the archive's first member.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import IO, Any, Dict, Iterator, List, Optional, Tuple

from outlive.onbox.part import Part
from outlive.onbox.refused import Refused
from outlive.probes.disk import disk
from outlive.wire.frames import read_frames
from outlive.wire.names import BoxFiles, sync_directory, sync_files

MANIFEST = ".outlive-manifest.json"
ABANDONED_S = 7 * 86400.0
"""A part file that nobody continued for so long is given up by the next push."""
SPARE_BYTES, SPARE_INODES = 1 << 20, 24
"""What a run needs beside its project's files: its directories, journal, log and exit records."""


class BadSnapshot(Exception):
    """What was sent does not have the digest it was announced with."""


def manifest_digest(files: List[Dict[str, Any]]) -> str:
    """Return the digest of a snapshot: over its sorted list of ``{"path", "mode", "sha256", "bytes", "link"}``."""
    text = encode_basestring_ascii
    lines = [
        "[%s,%d,%s,%s]" % (text(f["path"]), f["mode"], text(f.get("sha256", "")), text(f.get("link", "")))
        for f in sorted(files, key=itemgetter("path"))
    ]
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()


def have(box: BoxFiles, files: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return what is missing: ``{"have": bool, "need": [sha256 in order], "staged": bytes already received}``.

    Also ``free_bytes`` and ``free_inodes`` of the tier that holds the archives; None when unknown.
    """
    digest = manifest_digest(files)
    space = disk(box.code)
    free = {"free_bytes": space.free_bytes, "free_inodes": space.free_inodes}
    if os.path.exists(box.snapshot(digest)):
        return dict(free, have=True, digest=digest, need=[], staged=0)
    known = _known(box)
    need: List[str] = []
    seen = set(known)
    for item in sorted(files, key=lambda f: f["path"]):
        sha256 = item.get("sha256")
        if sha256 and sha256 not in seen:
            seen.add(sha256)
            need.append(sha256)
    return dict(free, have=False, digest=digest, need=need, staged=_staged(box, digest, need))


def _part(box: BoxFiles, digest: str, need: List[str]) -> str:
    # the order of needs is part of the name: a part file that was made for other needs is not continued
    return os.path.join(box.code, "%s-%s.part" % (digest, hashlib.sha256("".join(need).encode()).hexdigest()[:12]))


def _staged(box: BoxFiles, digest: str, need: List[str]) -> int:
    try:
        return os.path.getsize(_part(box, digest, need))
    except FileNotFoundError:
        return 0


def _archives(box: BoxFiles) -> List[str]:
    try:
        names = [os.path.join(box.code, n) for n in os.listdir(box.code) if n.endswith(".tar")]
    except FileNotFoundError:
        return []
    return sorted(names, key=os.path.getmtime, reverse=True)[:3]


def _manifest(archive: str) -> List[Dict[str, Any]]:
    with tarfile.open(archive, "r:") as tar:
        member = tar.next()
        if member is None or member.name != MANIFEST:
            return []
        handle = tar.extractfile(member)
        files: List[Dict[str, Any]] = json.loads(handle.read().decode("utf-8")) if handle else []
        return files


def _known(box: BoxFiles) -> Dict[str, Tuple[str, str]]:
    """Return sha256 -> (archive, path in it) for the newest archives."""
    known: Dict[str, Tuple[str, str]] = {}
    for archive in _archives(box):
        try:
            for item in _manifest(archive):
                if item.get("sha256"):
                    known.setdefault(item["sha256"], (archive, item["path"]))
        except (tarfile.TarError, ValueError, OSError):
            continue  # a broken old archive only costs sending more
    return known


def put(box: BoxFiles, files: List[Dict[str, Any]], need: List[str], start: int, source: IO[bytes]) -> Dict[str, Any]:
    """Receive the bytes of the needed contents, in order, from ``start`` on, and build the archive.

    What arrived before a cut stays for the next try. Raises BadSnapshot when contents differ from
    what was announced; the received bytes are then dropped.
    """
    digest = manifest_digest(files)
    os.makedirs(box.code, exist_ok=True)
    part = _part(box, digest, need)
    if os.path.exists(box.snapshot(digest)):
        return {"digest": digest, "bytes": os.path.getsize(box.snapshot(digest))}  # somebody else was faster
    with Part(part, start) as sink:
        for header, payload in read_frames(source):
            if header.get("t") == "data":
                sink.write(payload)
        sink.sync()
    try:
        _build(box, digest, files, need, part)
    except BadSnapshot:
        _unlink(part)
        raise
    _unlink(part)
    _drop_abandoned(box)
    return {"digest": digest, "bytes": os.path.getsize(box.snapshot(digest))}


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # a second push of the same snapshot was here


def _drop_abandoned(box: BoxFiles) -> None:
    for name in os.listdir(box.code):
        path = os.path.join(box.code, name)
        try:
            if name.endswith(".part") and time.time() - os.path.getmtime(path) > ABANDONED_S:
                os.unlink(path)
        except FileNotFoundError:
            continue


def _build(box: BoxFiles, digest: str, files: List[Dict[str, Any]], need: List[str], part: str) -> None:
    known = _known(box)
    wanted = {f["sha256"] for f in files if f.get("sha256")}
    if not set(need) <= wanted or not wanted <= set(need) | set(known):
        raise BadSnapshot("what is on the box changed meanwhile; ask again")
    sizes = {f["sha256"]: int(f["bytes"]) for f in files if f.get("sha256")}
    offsets: Dict[str, int] = {}
    at = 0
    for sha256 in need:
        offsets[sha256] = at
        at += sizes[sha256]
    if os.path.getsize(part) != at:
        raise BadSnapshot("%d bytes arrived, %d were announced" % (os.path.getsize(part), at))
    aside = box.snapshot(digest) + ".%d.part" % os.getpid()
    opened: Dict[str, tarfile.TarFile] = {}
    try:
        with open(part, "rb") as sent, tarfile.open(aside, "w:", format=tarfile.PAX_FORMAT) as tar:
            text = json.dumps(files, ensure_ascii=True).encode("ascii")
            _add(tar, MANIFEST, 0o644, len(text), hashlib.sha256(text).hexdigest(), io.BytesIO(text))
            for item in sorted(files, key=lambda f: f["path"]):
                if item.get("link"):
                    info = tarfile.TarInfo(item["path"])
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, item["link"], 0o777
                    tar.addfile(info)
                    continue
                sha256 = item["sha256"]
                if sha256 in offsets:
                    sent.seek(offsets[sha256])
                    _add(tar, item["path"], int(item["mode"]), int(item["bytes"]), sha256, sent)
                else:
                    archive, path = known[sha256]
                    if archive not in opened:
                        opened[archive] = tarfile.open(archive, "r:")
                    handle = opened[archive].extractfile(path)
                    source = handle if handle is not None else io.BytesIO()
                    _add(tar, item["path"], int(item["mode"]), int(item["bytes"]), sha256, source)
        fd = os.open(aside, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        os.replace(aside, box.snapshot(digest))
        sync_directory(box.code)
    except (OSError, BadSnapshot, tarfile.TarError):
        _unlink(aside)
        raise
    finally:
        for tar in opened.values():
            tar.close()


class _Hashed:
    """A source that digests what is read of it, so that a large file is never held in memory."""

    def __init__(self, source: IO[bytes]) -> None:
        self.source, self.sha256 = source, hashlib.sha256()

    def read(self, n: int = -1) -> bytes:
        data = self.source.read(n)
        self.sha256.update(data)
        return data


def _add(tar: tarfile.TarFile, name: str, mode: int, size: int, sha256: str, source: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, mode
    hashed = _Hashed(source)
    try:
        tar.addfile(info, hashed)
    except OSError as error:
        if error.errno is not None:
            raise
        raise BadSnapshot("%r ended before its %d bytes" % (name, size))
    if hashed.sha256.hexdigest() != sha256:
        raise BadSnapshot("%r arrived with another content than announced" % name)


def room(box: BoxFiles, digest: str) -> None:
    """Raise Refused ``no_space``, with the numbers, when a snapshot's files do not fit beside the archives."""
    files = _manifest(box.snapshot(digest))
    need_bytes = sum(-(-int(f["bytes"]) // 4096) * 4096 for f in files) + SPARE_BYTES
    folders = {os.path.dirname(f["path"]) for f in files}
    need_inodes = len(files) + len(folders) + SPARE_INODES
    space = disk(box.dir)
    told = []
    if space.free_bytes is not None and space.free_bytes < need_bytes:
        told.append("%.1f MB needed, %.1f MB free" % (need_bytes / 1e6, space.free_bytes / 1e6))
    if space.free_inodes is not None and space.free_inodes < need_inodes:
        told.append("%d inodes needed, %d free" % (need_inodes, space.free_inodes))
    if told:
        raise Refused(
            "no_space",
            "the %d files of the project do not fit: %s" % (len(files), "; ".join(told)),
            bytes_needed=need_bytes,
            bytes_free=space.free_bytes,
            inodes_needed=need_inodes,
            inodes_free=space.free_inodes,
        )


def extract(box: BoxFiles, digest: str, work: str) -> int:
    """Write a snapshot's files into a work directory, durably. Returns how many. Names that leave it are refused.

    A box that loses its power must not wake up with empty files: an empty script ends with exit status 0.
    """
    written: List[str] = []
    count = 0
    with tarfile.open(box.snapshot(digest), "r:") as tar:
        for member, name in _members(tar):
            target = os.path.join(work, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if member.issym():
                os.symlink(member.linkname, target)
            else:
                handle = tar.extractfile(member)
                assert handle is not None
                fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, member.mode & 0o777)
                with os.fdopen(fd, "wb") as out:
                    shutil.copyfileobj(handle, out, 1 << 20)
                os.chmod(target, member.mode & 0o777)
                written.append(target)
            count += 1
    sync_files(written)
    return count


def _members(tar: tarfile.TarFile) -> Iterator[Tuple[tarfile.TarInfo, str]]:
    for member in tar:
        name = member.name
        if name == MANIFEST:
            continue
        if name.startswith("/") or ".." in name.split("/"):
            raise BadSnapshot("a snapshot's name leaves the work directory: %r" % name)
        if member.issym() or member.isreg():
            yield member, name


def drift(box: BoxFiles, digest: Optional[str], work: str) -> List[str]:
    """Return the snapshot's files that were changed or removed in the work directory since."""
    if not digest or not os.path.exists(box.snapshot(digest)):
        return []
    changed = []
    for item in _manifest(box.snapshot(digest)):
        path = os.path.join(work, item["path"])
        if item.get("link"):
            if not os.path.islink(path) or os.readlink(path) != item["link"]:
                changed.append(item["path"])
            continue
        try:
            if os.path.getsize(path) != int(item["bytes"]):
                changed.append(item["path"])
                continue
            with open(path, "rb") as handle:
                if hashlib.sha256(handle.read()).hexdigest() != item["sha256"]:
                    changed.append(item["path"])
        except OSError:
            changed.append(item["path"])
    return changed
