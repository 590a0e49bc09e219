"""Files in both directions, resumable per file: the box's half of `pull`, `push --data` and moves."""

import fnmatch
import hashlib
import os
import stat
from typing import IO, Any, Callable, Dict, List, Optional

from outlive.artifacts.manifest import scan
from outlive.onbox.leases import LEASE_S
from outlive.onbox.part import Part
from outlive.onbox.refused import Refused
from outlive.probes.disk import disk
from outlive.wire.clock import boot_s
from outlive.wire.frames import CHUNK_BYTES, Torn, read_frames, write_frame
from outlive.wire.names import sync_directory
from outlive.wire.values import Entry

PACK_FILES = 1000
PART = ".outlive-part-"
"""How long a pull's hold on files outlives its last sign of life."""


def inside(base: str, path: str) -> str:
    """Return the absolute path of a relative one below ``base``. Raises Refused when it leaves it."""
    if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise Refused("bad_path", "a path must stay inside %s: %r" % (base, path))
    return os.path.join(base, path)


def expand(path: str) -> str:
    """Return a destination's absolute path; ``~`` is the home of the user we run as."""
    full = os.path.expanduser(path)
    if not os.path.isabs(full):
        raise Refused("bad_path", "a destination on the box must be absolute or begin with ~: %r" % path)
    return os.path.normpath(full)


def listing(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the files below ``base`` that match any of ``globs``, with digests as they stand now.

    ``paths`` instead of ``globs`` asks for exactly these and walks nothing; what is not there is left out.
    ``digests: false`` reads no file. ``{"base", "entries": [{path, bytes, sha256, mtime_ns, mode, link}], "moving":
    [paths that changed while read]}``.
    """
    base = expand(request["base"])
    globs = request.get("globs") or ["**"]
    entries: List[Dict[str, Any]] = []
    moving: List[str] = []
    if request.get("paths") is not None:
        wanted = [e for e in (_entry(base, path) for path in request["paths"]) if e is not None]
    else:
        wanted = [e for e in scan(base) if any(matches(e.path, g) for g in globs)]
    for entry in wanted:
        data = entry.to_wire()
        if not entry.link and request.get("digests", True):
            path = os.path.join(base, entry.path)
            try:
                before = os.stat(path)
                data["sha256"], data["bytes"] = _digest(path, before.st_size)
                after = os.stat(path)
            except OSError:
                moving.append(entry.path)  # gone, or not to be read, since it was listed
                continue
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                moving.append(entry.path)
        entries.append(data)
    return {"base": base, "entries": entries, "moving": moving}


def _entry(base: str, path: str) -> Optional[Entry]:
    """Return the entry of one file or link, None when there is none."""
    full = inside(base, path)
    try:
        info = os.lstat(full)
        target = os.readlink(full) if stat.S_ISLNK(info.st_mode) else ""
    except OSError:
        return None
    if target:
        return Entry(path, 0, mtime_ns=info.st_mtime_ns, mode=stat.S_IMODE(info.st_mode), link=target)
    if not stat.S_ISREG(info.st_mode):
        return None
    return Entry(path, info.st_size, mtime_ns=info.st_mtime_ns, mode=stat.S_IMODE(info.st_mode))


def matches(path: str, glob: str) -> bool:
    """Return whether a relative path matches a glob; ``**`` crosses directories, a directory means all below it."""
    glob = glob[2:] if glob.startswith("./") else glob
    if glob in ("**", "", ".") or path == glob or path.startswith(glob.rstrip("/") + "/"):
        return True
    if "/" not in glob and fnmatch.fnmatchcase(os.path.basename(path), glob):
        return True
    return fnmatch.fnmatchcase(path, glob) or fnmatch.fnmatchcase(path, glob.replace("**/", ""))


def _digest(path: str, limit: int) -> Any:
    """Return (sha256, bytes) of the first ``limit`` bytes, so that a growing file has one digest."""
    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as handle:
        while done < limit:
            chunk = handle.read(min(1 << 20, limit - done))
            if not chunk:
                break
            digest.update(chunk)
            done += len(chunk)
    return digest.hexdigest(), done


def have(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return, for files about to be sent, ``{"have": [paths], "staged": {path: bytes}, "base", "is_dir", ...}``.

    ``base`` is the destination's absolute path; ``free_bytes`` and ``free_inodes`` are those of the tier that holds it.
    """
    base = expand(request["base"])
    present: List[str] = []
    staged: Dict[str, int] = {}
    for item in request["entries"]:
        target = inside(base, item["path"])
        if item.get("link"):
            if os.path.islink(target) and os.readlink(target) == item["link"]:
                present.append(item["path"])
            continue
        try:
            if os.path.getsize(target) == item["bytes"] and _digest(target, item["bytes"])[0] == item["sha256"]:
                present.append(item["path"])
                continue
        except OSError:
            pass  # not there yet
        try:
            staged[item["path"]] = os.path.getsize(_part(target, item["sha256"]))
        except OSError:
            continue
    top = base
    while not os.path.exists(top):
        top = os.path.dirname(top)
    space = disk(top)
    return {
        "have": present,
        "staged": staged,
        "free_bytes": space.free_bytes,
        "free_inodes": space.free_inodes,
        "base": base,
        "is_dir": os.path.isdir(base),
    }


def _part(target: str, sha256: str) -> str:
    return os.path.join(os.path.dirname(target), PART + sha256[:24])


def put(request: Dict[str, Any], source: IO[bytes]) -> Dict[str, Any]:
    """Receive files: per file a ``file`` frame (path, offset, bytes, sha256, mode) and ``data`` frames.

    Each is staged beside its target, compared, and renamed. What arrived of a file before a cut is
    kept. Answers ``{"written": [paths], "wrong": {path: why}}``.
    """
    base = expand(request["base"])
    written: List[str] = []
    wrong: Dict[str, str] = {}
    current: Optional[Dict[str, Any]] = None
    handle: Optional[Part] = None
    folders = set()
    try:
        for header, payload in read_frames(source):
            if header["t"] == "file":
                if current is not None:
                    done, current, handle = (current, handle), None, None
                    _close(base, done[0], done[1], written, wrong)
                current, handle = header, _open(base, header, wrong)
                folders.add(os.path.dirname(inside(base, header["path"])))
            elif header["t"] == "data" and handle is not None:
                handle.write(payload)
        if current is not None:
            done, handle = (current, handle), None
            _close(base, done[0], done[1], written, wrong)
    finally:
        if handle is not None:
            handle.close()
    for folder in folders:
        if os.path.isdir(folder):
            sync_directory(folder)
    return {"written": written, "wrong": wrong}


def _open(base: str, item: Dict[str, Any], wrong: Dict[str, str]) -> Optional[Part]:
    target = inside(base, item["path"])
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if item.get("link"):
        return None
    try:
        return Part(_part(target, item["sha256"]), int(item["offset"]))
    except Torn as error:
        wrong[item["path"]] = str(error)
        return None


def _close(base: str, item: Dict[str, Any], handle: Optional[Part], written: List[str], wrong: Dict[str, str]) -> None:
    target = inside(base, item["path"])
    if item.get("link"):
        aside = target + PART
        if os.path.lexists(aside):
            os.unlink(aside)  # a push that died here
        os.symlink(item["link"], aside)
        os.replace(aside, target)
        written.append(item["path"])
        return
    if handle is None:
        return
    try:
        handle.sync()
    finally:
        handle.close()
    part = _part(target, item["sha256"])
    sha256, size = _digest(part, 1 << 62)
    if sha256 != item["sha256"]:
        if size >= item["bytes"]:
            os.unlink(part)
        wrong[item["path"]] = "what arrived has another digest"
        return
    os.chmod(part, item.get("mode", 0o644))
    if item.get("mtime_ns"):
        os.utime(part, ns=(item["mtime_ns"], item["mtime_ns"]))
    os.replace(part, target)
    written.append(item["path"])


def get(request: Dict[str, Any], out: IO[bytes], renew: Callable[[], None] = lambda: None) -> None:
    """Send files from offsets: per file a ``file`` frame, ``data`` frames and an ``eof`` frame.

    Exactly ``bytes`` of each file are sent, so a growing file ends where its digest ended; a shorter
    one is said in ``eof``. With ``pack``, a size, whole files up to it travel many to a ``pack`` frame that names them
    by their places in the request: ``[[number, bytes]]``. ``renew`` is called at the start and then often enough to
    keep a lease.
    """
    base = expand(request["base"])
    renew()
    renewed = boot_s()
    packed_bytes = int(request.get("pack") or -1)
    pack = _Pack(out)
    for number, item in enumerate(request["files"]):
        if boot_s() - renewed > LEASE_S / 10:
            renew()
            renewed = boot_s()
        path = inside(base, item["path"])
        left = int(item["bytes"]) - int(item["offset"])
        try:
            handle = open(path, "rb", buffering=0)
        except OSError as error:
            write_frame(out, {"t": "eof", "path": item["path"], "error": error.strerror})
            continue
        with handle:
            if not item["offset"] and left <= packed_bytes:
                data = handle.read(left) or b""
                if len(data) == left:
                    pack.add(number, data)
                else:
                    write_frame(out, {"t": "eof", "path": item["path"], "short": left - len(data)})
                continue
            pack.send()
            handle.seek(int(item["offset"]))
            write_frame(out, {"t": "file", "path": item["path"], "offset": item["offset"]})
            while left > 0:
                if boot_s() - renewed > LEASE_S / 10:
                    renew()
                    renewed = boot_s()
                chunk = handle.read(min(CHUNK_BYTES, left))
                if not chunk:
                    break
                write_frame(out, {"t": "data"}, chunk)
                left -= len(chunk)
        write_frame(out, {"t": "eof", "path": item["path"], "short": left})
    pack.send()


class _Pack:
    """Small files on their way into one frame."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._files: List[List[int]] = []
        self._parts: List[bytes] = []
        self._bytes = 0

    def add(self, number: int, data: bytes) -> None:
        self._files.append([number, len(data)])
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes >= CHUNK_BYTES or len(self._files) >= PACK_FILES:
            self.send()

    def send(self) -> None:
        if self._files:
            write_frame(self._out, {"t": "pack", "files": self._files}, b"".join(self._parts))
            self._files, self._parts, self._bytes = [], [], 0
