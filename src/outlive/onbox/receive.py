"""Files that arrive in frames: staged beside their places, read back and compared there, durable, then renamed.

Per file a ``file`` frame (path, offset, bytes, mode, mtime_ns, and ``sha256``, or ``key`` when the digest is only
known at the end), ``data`` frames, and without a digest at the head a ``sha256`` frame. What arrived of a file before a
cut is kept in a part, whose name is made of the digest or the key.
"""

import hashlib
import os
import queue
import threading
from typing import Any, Dict, List, Optional, Tuple

from outlive.onbox.part import Part
from outlive.onbox.refused import Refused
from outlive.wire.frames import Torn
from outlive.wire.names import sync_directory

PART = ".outlive-part-"
LARGE_BYTES = 4 << 20
"""From this size on a file is read back while it arrives."""
STEP_BYTES = 1 << 20
"""How far behind its writer the reader may be; waking it for less costs more than it saves."""
FLUSH_BYTES = 8 << 20
"""How much of a large file may wait for its disk."""
WAIT_FILES, WAIT_BYTES = 256, 32 << 20
"""How many small files become durable at once."""


def inside(base: str, path: str) -> str:
    """Return the absolute path of a relative one below ``base``. Raises Refused when it leaves it."""
    if not path or path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise Refused("bad_path", "a path must stay inside %s: %r" % (base, path))
    return os.path.join(base, path)


def part_of(target: str, item: Dict[str, Any]) -> str:
    """Return where a file that is to be ``target`` is staged."""
    return os.path.join(os.path.dirname(target), PART + (item.get("sha256") or item["key"])[:24])


class Behind:
    """Reads a file back in a thread, right behind its writer, and gives what arrived to the disk as it goes."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)
        self._digest = hashlib.sha256()
        self._error: Optional[BaseException] = None
        self._told = 0
        self._words = queue.Queue()  # type: queue.Queue[int]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._flushes = queue.Queue()  # type: queue.Queue[int]
        self._flusher = threading.Thread(target=self._flush, daemon=True)
        self._flusher.start()

    def upto(self, size: int) -> None:
        """Say that the file now holds ``size`` bytes."""
        if size >= self._told + STEP_BYTES:
            self._told = size
            self._words.put(size)

    def end(self, size: int) -> str:
        """Return the digest of all ``size`` bytes that lie there. Raises what reading them raised."""
        self._words.put(size)
        self.close()
        if self._error is not None:
            raise self._error
        return self._digest.hexdigest()

    def close(self) -> None:
        """Stop reading; may be called twice."""
        if not self._file.closed:
            self._words.put(-1)
            self._thread.join()
            self._flushes.put(-1)
            self._flusher.join()
            self._file.close()

    def _run(self) -> None:
        at = flushed = 0
        buffer = memoryview(bytearray(256 * 1024))  # one, used again: fresh memory costs more than the copy
        try:
            while True:
                size = self._words.get()
                if size < 0:
                    return
                while at < size:
                    count = self._file.readinto(buffer[: size - at])
                    if not count:
                        raise Torn("the part file became shorter")
                    self._digest.update(buffer[:count])
                    at += count
                if at - flushed >= FLUSH_BYTES:
                    flushed = at
                    self._flushes.put(at)
        except BaseException as error:  # told where the digest is asked for
            self._error = error

    def _flush(self) -> None:
        while self._flushes.get() >= 0:
            try:
                os.fsync(self._file.fileno())
            except OSError:
                return  # told by the last one, when the file is whole


class Receiver:
    """Where the frames of one call go. ``written`` are paths that have their name, ``wrong`` says why others not."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._item: Optional[Dict[str, Any]] = None
        self._part: Optional[Part] = None
        self._behind: Optional[Behind] = None
        self._waiting: List[Tuple[Dict[str, Any], Part]] = []
        self._namer: Optional[threading.Thread] = None
        self._ready = queue.Queue()  # type: queue.Queue[List[Tuple[Dict[str, Any], Part]]]
        self._error: Optional[BaseException] = None
        self._waiting_bytes = 0
        self._folders = set()  # type: set[str]
        self.written: List[str] = []
        self.items: Dict[str, Dict[str, Any]] = {}
        self.wrong: Dict[str, str] = {}

    def take(self, header: Dict[str, Any], payload: bytes) -> None:
        """Take one frame. Raises what giving names raised."""
        if self._error is not None:
            raise self._error
        if header["t"] == "file":
            self._close()
            self._open(header)
        elif header["t"] == "data" and self._part is not None:
            self._part.write(payload)
            if self._behind is not None:
                self._behind.upto(self._part.at)
        elif header["t"] == "sha256" and self._item is not None:
            self._item["sha256"] = header["sha256"]

    def finish(self) -> None:
        """All came."""
        self._close()
        self._name()
        self._named()
        if self._error is not None:
            raise self._error
        for folder in self._folders:
            if os.path.isdir(folder):
                sync_directory(folder)

    def drop(self) -> None:
        """Close what is open: the connection was cut, or all is done. Files that were whole get their names."""
        try:
            self._name()
            self._named()
        finally:
            if self._behind is not None:
                self._behind.close()
            if self._part is not None:
                self._part.close()

    def _open(self, item: Dict[str, Any]) -> None:
        target = inside(self._base, item["path"])
        folder = os.path.dirname(target)
        if folder not in self._folders:
            os.makedirs(folder, exist_ok=True)
            self._folders.add(folder)
        self._item = dict(item, part=None if item.get("link") else part_of(target, item))
        if item.get("link"):
            return
        try:
            self._part = Part(self._item["part"], int(item["offset"]))
        except Torn as error:
            self.wrong[item["path"]] = str(error)
            return
        if int(item["bytes"]) >= LARGE_BYTES:
            self._behind = Behind(self._item["part"])
            self._behind.upto(self._part.at)

    def _close(self) -> None:
        item, part, behind = self._item, self._part, self._behind
        self._item = self._part = self._behind = None
        if item is None:
            return
        if item.get("link"):
            self._link(item)
            return
        if part is None:
            return
        try:
            right = self._compare(item, part, behind)
        except BaseException:
            part.close()
            raise
        if not right:
            part.close()
            return
        self._waiting.append((item, part))
        self._waiting_bytes += part.at
        if len(self._waiting) >= WAIT_FILES or self._waiting_bytes >= WAIT_BYTES:
            self._name()

    def _link(self, item: Dict[str, Any]) -> None:
        target = inside(self._base, item["path"])
        aside = target + PART
        if os.path.lexists(aside):
            os.unlink(aside)  # a push that died here
        os.symlink(item["link"], aside)
        os.replace(aside, target)
        self.written.append(item["path"])

    def _compare(self, item: Dict[str, Any], part: Part, behind: Optional[Behind]) -> bool:
        """Whether what lies there, all of it, has the digest that was announced."""
        if behind is not None:
            sha256 = behind.end(part.at)
        else:
            with open(item["part"], "rb") as handle:
                sha256 = hashlib.sha256(handle.read()).hexdigest()
        if os.path.getsize(item["part"]) != part.at:
            raise Torn("somebody else writes the same part")
        if sha256 == item.get("sha256"):
            return True
        if part.at >= item["bytes"]:
            os.unlink(item["part"])
        self.wrong[item["path"]] = "what arrived has another digest"
        return False

    def _name(self) -> None:
        """Let what waits become durable and get its names, while the next files arrive."""
        if not self._waiting:
            return
        if self._namer is None:
            self._namer = threading.Thread(target=self._give_names, daemon=True)
            self._namer.start()
        self._ready.put(self._waiting)
        self._waiting, self._waiting_bytes = [], 0

    def _named(self) -> None:
        """Wait until all that was handed over has its names."""
        if self._namer is not None:
            self._ready.put([])
            self._namer.join()
            self._namer = None

    def _give_names(self) -> None:
        while True:
            waiting = self._ready.get()
            if not waiting:
                return
            try:
                self._make_durable(waiting)
            except BaseException as error:  # told by the next frame, or at the end
                self._error = self._error or error

    def _make_durable(self, waiting: List[Tuple[Dict[str, Any], Part]]) -> None:
        try:
            if len(waiting) > 1 and hasattr(os, "posix_fadvise"):
                for _, part in waiting:  # all begin to be written, so that one wait serves for many
                    part.begin_sync()
            for item, part in waiting:
                part.sync()
                os.chmod(item["part"], item.get("mode", 0o644))
                if item.get("mtime_ns"):
                    os.utime(item["part"], ns=(item["mtime_ns"], item["mtime_ns"]))
                item["ino"] = os.stat(item["part"]).st_ino
                os.replace(item["part"], inside(self._base, item["path"]))
                self.written.append(item["path"])
                self.items[item["path"]] = item
        finally:
            for _, part in waiting:
                part.close()
