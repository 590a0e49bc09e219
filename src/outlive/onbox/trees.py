"""Files in both directions, resumable per file: the box's half of `pull`, `push --data` and moves."""

import fnmatch
import hashlib
import json
import os
import stat
import time
from typing import IO, Any, Callable, Dict, List, Optional

from outlive.artifacts.manifest import scan
from outlive.onbox.leases import LEASE_S
from outlive.onbox.receive import Receiver, inside, part_of
from outlive.onbox.refused import Refused
from outlive.onbox.seen import FINE_NS, Seen, same_file
from outlive.probes.disk import disk
from outlive.wire.clock import boot_s
from outlive.wire.frames import CHUNK_BYTES, read_frames, write_frame
from outlive.wire.names import BoxFiles
from outlive.wire.values import Entry

PACK_FILES = 1000
SEEN, SEEN_RULES = "seen", "digests 1"
REMEMBER_BYTES = 32 << 20
"""From so much on a push waits a moment to remember what it wrote; less is quickly read again."""


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


def have(request: Dict[str, Any], seen_dir: Optional[str] = None) -> Dict[str, Any]:
    """Return, for files about to be sent, ``{"have": [paths], "staged": {path: bytes}, "base", "is_dir", ...}``.

    A file of which the caller does not say the digest yet is in ``ask`` when its size is here under its name: its
    digest decides. ``older`` are paths under which something else is. ``base`` is the destination's absolute path;
    ``free_bytes`` and ``free_inodes`` are those of the tier that holds it. With ``seen_dir`` a file that did not change
    since it was digested is not read again, unless the request has ``read``.
    """
    base = expand(request["base"])
    present: List[str] = []
    ask: List[str] = []
    older: List[str] = []
    staged: Dict[str, int] = {}
    seen = Seen(seen_dir, base, SEEN_RULES)
    for item in request["entries"]:
        path = item["path"]
        target = inside(base, path)
        if item.get("link"):
            if os.path.islink(target) and os.readlink(target) == item["link"]:
                present.append(path)
            continue
        try:
            info = os.stat(target)
        except OSError:
            pass  # not there yet
        else:
            if info.st_size == item["bytes"]:
                if "sha256" not in item:
                    ask.append(path)
                    continue
                if _digest_now(seen, path, target, bool(request.get("read"))) == item["sha256"]:
                    present.append(path)
                    continue
            older.append(path)
        if "sha256" not in item and "key" not in item:
            continue
        try:
            staged[path] = os.path.getsize(part_of(target, item))
        except OSError:
            continue
    seen.keep()
    seen.save()
    top = base
    while not os.path.exists(top):
        top = os.path.dirname(top)
    space = disk(top)
    return {
        "have": present,
        "ask": ask,
        "older": older,
        "staged": staged,
        "free_bytes": space.free_bytes,
        "free_inodes": space.free_inodes,
        "base": base,
        "is_dir": os.path.isdir(base),
    }


def _digest_now(seen: Seen, path: str, target: str, read: bool) -> str:
    """The digest of a file as it stands, "" when it cannot be read or moves."""
    try:
        began_ns, before = time.time_ns(), os.stat(target)
        known = None if read else seen.get(path, before)
        if known is not None:
            return str(known[0])
        sha256, size = _digest(target, before.st_size)
        if size != before.st_size or not same_file(before, os.stat(target)):
            return ""
    except OSError:
        return ""
    seen.put(path, before, began_ns, sha256)
    return str(sha256)


def put(request: Dict[str, Any], source: IO[bytes]) -> Dict[str, Any]:
    """Receive files, each named when what lies there has its digest. What arrived of a file before a cut is kept.

    Answers ``{"written": [paths], "wrong": {path: why}}``; the frames are those of ``onbox.receive``.
    """
    receiver = Receiver(expand(request["base"]))
    try:
        for header, payload in read_frames(source):
            receiver.take(header, payload)
        receiver.finish()
    finally:
        receiver.drop()
    return {"written": receiver.written, "wrong": receiver.wrong}


def push(box: BoxFiles, source: IO[bytes], answer: Callable[[Dict[str, Any]], None]) -> None:
    """One conversation: what of these files is here (frames ``have``, answered as by ``have``), and then their bytes
    (frames of ``onbox.receive``, answered as by ``put``). The caller may end after any answer.

    A frame ``claim`` names paths that are copies once all is here: at once, or when all that was sent is right.
    """
    receiver: Optional[Receiver] = None
    base = ""
    claims: List[str] = []
    try:
        for header, payload in read_frames(source):
            if header["t"] == "have":
                request = json.loads(payload.decode("ascii"))
                answer(have(request, os.path.join(box.dir, SEEN)))
                base = expand(request["base"])
            elif header["t"] == "claim" and receiver is None:
                answer({"claimed": _claim(box, header["paths"])})
            elif header["t"] == "claim":
                claims = header["paths"]
            else:
                receiver = receiver or Receiver(base)
                receiver.take(header, payload)
        if receiver is None:
            return
        receiver.finish()
    finally:
        if receiver is not None:
            receiver.drop()
    claimed = bool(claims) and not receiver.wrong and _claim(box, claims)
    answer({"written": receiver.written, "wrong": receiver.wrong, "claimed": claimed})
    _remember(box, base, receiver)  # nobody waits for it


def _claim(box: BoxFiles, paths: List[str]) -> bool:
    """Take note that these are copies. Where that fails all arrived still; the caller asks again, and hears why."""
    from outlive.onbox import scan

    try:
        scan.claim(box, paths)
    except OSError:
        return False
    return True


def _remember(box: BoxFiles, base: str, receiver: Receiver) -> None:
    """Note the digests of what we just wrote and compared, so that the next push need not read it again.

    Their times are of this moment. So we let the clock move on, and note a file only when it then still is the one that
    we named, with the time that we gave it: a write of somebody else since would show in either.
    """
    size = sum(int(item["bytes"]) for item in receiver.items.values())
    if size < REMEMBER_BYTES:
        return
    time.sleep(1.5 * FINE_NS / 1e9)
    seen = Seen(os.path.join(box.dir, SEEN), base, SEEN_RULES)
    now_ns = time.time_ns()
    for path, item in receiver.items.items():
        try:
            info = os.lstat(inside(base, path))
        except OSError:
            continue
        if (info.st_size, info.st_mtime_ns, info.st_ino) == (item["bytes"], item.get("mtime_ns"), item["ino"]):
            seen.put(path, info, now_ns, item["sha256"])
    seen.keep()
    seen.save()


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
