"""Snapshots on the box: one archive per digest, built from older ones plus what was sent.

A snapshot's digest is over its manifest (paths, modes, digests of contents), so it does not depend on
how an archive is written. The manifest is the archive's first member.
"""

import hashlib
import json
import os
import time
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from outlive.onbox.archive import MANIFEST, layout, read_at, read_manifest, whole
from outlive.onbox.part import Part
from outlive.onbox.refused import Refused
from outlive.wire.frames import read_frames
from outlive.wire.names import BoxFiles, sync_directory, sync_files

if TYPE_CHECKING:
    import tarfile

ABANDONED_S = 7 * 86400.0
"""A part file that nobody continued for so long is given up by the next push."""
SPARE_BYTES, SPARE_INODES = 1 << 20, 24
"""What a run needs beside its project's files: its directories, journal, log and exit records."""
FLUSH_BYTES = 256 * 1024
WHOLE_BYTES = 1024 * 1024
"""A content up to this size is read back at once."""


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


def push(box: BoxFiles, source: IO[bytes], answer: Callable[[Dict[str, Any]], None]) -> None:
    """One conversation: is this snapshot here; if not, what of it is missing; its bytes; it is here.

    Asked is a frame ``is`` with the ``digest``. The answer has ``have``; where that is false, ``free_bytes`` and
    ``free_inodes`` of the tier that holds the archives (None when unknown). The caller ends there, or sends the
    manifest (frames ``files``, then ``want``, with ``anew`` when nothing that older archives hold shall be used). The
    answer says which contents are missing (``need``, ranges of the list of different contents in the order of their
    paths), how many of their bytes an earlier, cut call left (``staged``), and how long the archive (``archive``) and
    its part here (``part``) are. Then come the missing bytes from there on (frames ``data``), and the answer names the
    archive's digest and length.

    What arrived before a cut stays for the next call. Raises BadSnapshot when the archive, read where it lies, does
    not hold what its manifest says; it is then dropped.
    """
    frames = read_frames(source)
    asked, _ = next(frames, ({}, b""))
    if "digest" not in asked:
        return  # opened ahead, and then not needed
    if os.path.exists(box.snapshot(asked["digest"])):
        answer({"have": True, "digest": asked["digest"]})
        return
    space = _space(box)
    answer({"have": False, "free_bytes": space.free_bytes, "free_inodes": space.free_inodes})
    text, anew = _manifest_sent(frames)
    if text is None:
        return
    files: List[Dict[str, Any]] = json.loads(text.decode("ascii"))
    digest = manifest_digest(files)
    made = _Making(box, digest, files, text, anew)
    answer({"digest": digest, "need": made.ranges, "staged": made.staged, "archive": made.size, "part": made.begun})
    made.receive(frames)
    answer({"digest": digest, "bytes": made.size})


def _space(box: BoxFiles) -> Any:
    from outlive.probes.disk import disk

    return disk(box.code)


def _manifest_sent(frames: Iterator[Tuple[Dict[str, Any], bytes]]) -> Tuple[Optional[bytes], bool]:
    """Return (the manifest, whether to begin anew); (None, False) when the caller wants nothing more."""
    parts: List[bytes] = []
    for head, payload in frames:
        if head.get("t") == "files":
            parts.append(payload)
        elif head.get("t") == "want":
            return b"".join(parts), bool(head.get("anew"))
    return None, False


class _Making:
    """An archive on its way from what older archives hold, and what is sent, to its name."""

    def __init__(self, box: BoxFiles, digest: str, files: List[Dict[str, Any]], text: bytes, anew: bool) -> None:
        self._box, self._digest, self._text = box, digest, text
        self._members = layout(files, len(text))
        self.size = whole(self._members)
        sizes: Dict[str, int] = {}
        for member in self._members:
            if member.item.get("sha256"):
                sizes.setdefault(member.item["sha256"], member.size)
        self._known = {} if anew else _known(box, set(sizes))
        self._need: List[str] = []
        self.ranges: List[List[int]] = []
        for number, sha256 in enumerate(sizes):
            if sha256 in self._known:
                continue
            self._need.append(sha256)
            if self.ranges and self.ranges[-1][1] == number:
                self.ranges[-1][1] = number + 1
            else:
                self.ranges.append([number, number + 1])
        # what is asked for is part of the name: a part that was made from other sources is not continued
        asked = hashlib.sha256(json.dumps(["laid out", self.ranges]).encode("ascii")).hexdigest()[:12]
        self._part = os.path.join(box.code, "%s-%s.part" % (digest, asked))
        try:
            self.begun = os.path.getsize(self._part)
        except FileNotFoundError:
            self.begun = 0
        if self.begun > self.size:
            _unlink(self._part)
            self.begun = 0
        self.staged = self._staged()

    def _staged(self) -> int:
        if not self.begun:
            return 0
        staged, need = 0, set(self._need)
        for member in self._members:
            if member.data >= self.begun:
                break
            if member.item.get("sha256") in need:
                need.discard(member.item["sha256"])
                staged += min(member.size, self.begun - member.data)
        return staged

    def receive(self, frames: Iterator[Tuple[Dict[str, Any], bytes]]) -> None:
        """Write what the part lacks, compare all of it with the manifest where it lies, and give it its name."""
        target = self._box.snapshot(self._digest)
        arriving = _Arriving(frames)
        arriving.begin()  # a caller that finds too little room ends here, and nothing was changed
        os.makedirs(self._box.code, exist_ok=True)
        with Part(self._part, self.begun) as sink:
            try:
                self._write(_Sink(sink), arriving)
                self._compare()
            except BadSnapshot:
                _unlink(self._part)
                raise
            sink.sync()
        try:
            os.replace(self._part, target)
        except FileNotFoundError:
            if not os.path.exists(target):  # else a second push of the same snapshot was faster
                raise
        sync_directory(self._box.code)
        _drop_abandoned(self._box)

    def _write(self, out: "_Sink", arriving: "_Arriving") -> None:
        need = set(self._need)
        here: Dict[str, int] = {}
        opened: Dict[str, int] = {}
        try:
            for member in self._members:
                sha256 = member.item.get("sha256") or ""
                first = sha256 in need
                if first:
                    need.discard(sha256)
                    here[sha256] = member.data
                if member.end <= self.begun:
                    continue
                out.put(member.head, self.begun - member.at)
                done = max(0, min(member.size, self.begun - member.data))
                left = member.size - done
                if not member.item:
                    out.put(self._text, done)
                elif first:
                    arriving.hand_on(left, out)
                elif left:
                    place, at = (self._part, here[sha256]) if sha256 in here else self._known[sha256]
                    if place == self._part:
                        out.flush()
                    if place not in opened:
                        opened[place] = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
                    for data in read_at(opened[place], at + done, left):
                        left -= len(data)
                        out.put(data)
                    if left:
                        raise BadSnapshot("an older archive on the box ended early")
                padding = member.end - member.data - member.size
                out.put(b"\0" * padding, self.begun - member.data - member.size)
            out.put(b"\0" * (self.size - self._members[-1].end), self.begun - self._members[-1].end)
            arriving.end()
        finally:
            try:
                out.flush()  # also when the connection was cut: what arrived stays
            finally:
                for fd in opened.values():
                    os.close(fd)

    def _compare(self) -> None:
        fd = os.open(self._part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for member in self._members:
                digest, head = hashlib.sha256(), len(member.head)
                first = os.pread(fd, head + min(member.size, WHOLE_BYTES), member.at)
                if first[:head] != member.head:
                    raise BadSnapshot("%r arrived torn" % member.item.get("path", MANIFEST))
                digest.update(first[head:] if head else first)
                for data in read_at(fd, member.at + len(first), member.size + head - len(first)):
                    digest.update(data)
                wanted = member.item.get("sha256") or "" if member.item else _sha256(self._text)
                if digest.hexdigest() != (wanted or NOTHING):
                    raise BadSnapshot("%r arrived with another content than announced" % member.item.get("path"))
        finally:
            os.close(fd)


class _Sink:
    """Small pieces to the part file in few writes."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._pieces: List[bytes] = []
        self._bytes = 0

    def put(self, data: bytes, skip: int = 0) -> None:
        """Write what comes after the first ``skip`` bytes."""
        if skip > 0:
            data = data[skip:]
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        self._part.write(b"".join(pieces))


class _Arriving:
    """The missing bytes as one sequence, however they were cut into frames."""

    def __init__(self, frames: Iterator[Tuple[Dict[str, Any], bytes]]) -> None:
        self._frames, self._data, self._at = frames, b"", 0

    def begin(self) -> None:
        """Wait for the first bytes, or for the end frame where none are missing. Raises Torn at a caller's end."""
        for head, payload in self._frames:
            if head.get("t") == "data" and payload:
                self._data = payload
                return

    def hand_on(self, size: int, out: _Sink) -> None:
        """Give the next ``size`` bytes to ``out``."""
        while size > 0:
            if self._at == len(self._data):
                self._data, self._at = self._next(), 0
            piece = self._data[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            out.put(piece)

    def _next(self) -> bytes:
        for head, payload in self._frames:
            if head.get("t") == "data" and payload:
                return payload
        raise BadSnapshot("fewer bytes arrived than were announced")

    def end(self) -> None:
        """Read to the end frame. Raises BadSnapshot when more came than was asked for."""
        more = len(self._data) - self._at + sum(len(payload) for _, payload in self._frames)
        if more:
            raise BadSnapshot("%d bytes more arrived than were announced" % more)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


NOTHING = _sha256(b"")


def _archives(box: BoxFiles) -> List[str]:
    try:
        names = [os.path.join(box.code, n) for n in os.listdir(box.code) if n.endswith(".tar")]
    except FileNotFoundError:
        return []
    return sorted(names, key=os.path.getmtime, reverse=True)[:3]


def _manifest(archive: str) -> List[Dict[str, Any]]:
    text = read_manifest(archive)
    files: List[Dict[str, Any]] = json.loads(text.decode("utf-8")) if text is not None else []
    return files


def _known(box: BoxFiles, wanted: Set[str]) -> Dict[str, Tuple[str, int]]:
    """Return sha256 -> (archive, place in it) of what the newest archives hold of what is wanted."""
    known: Dict[str, Tuple[str, int]] = {}
    for archive in _archives(box):
        try:
            text = read_manifest(archive)
            if text is None:
                continue
            size = os.path.getsize(archive)
            for member in layout(json.loads(text.decode("utf-8")), len(text)):
                sha256 = member.item.get("sha256")
                if sha256 in wanted and sha256 not in known and member.end <= size:
                    known[sha256] = (archive, member.data)
        except (ValueError, KeyError, OSError):
            continue  # a broken old archive only costs sending more
        if len(known) == len(wanted):
            break
    return known


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


def room(box: BoxFiles, digest: str) -> None:
    """Raise Refused ``no_space``, with the numbers, when a snapshot's files do not fit beside the archives."""
    files = _manifest(box.snapshot(digest))
    need_bytes = sum(-(-int(f["bytes"]) // 4096) * 4096 for f in files) + SPARE_BYTES
    folders = {os.path.dirname(f["path"]) for f in files}
    need_inodes = len(files) + len(folders) + SPARE_INODES
    from outlive.probes.disk import disk

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
    import shutil
    import tarfile

    count = 0
    written: List[str] = []
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


def _members(tar: "tarfile.TarFile") -> "Iterator[Tuple[tarfile.TarInfo, str]]":
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
