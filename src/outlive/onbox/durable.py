"""Copies of proved files into the durable place: a mounted path or an rclone remote.

A copy counts when what was written has been read back and has the same digest; how it was read back
is recorded honestly (``cache``, ``storage`` or ``remote_hash``).
"""

import hashlib
import os
import shutil
import subprocess
from typing import Any, Dict, List, Set

from outlive.checkpoints.readback import digest_from_storage
from outlive.onbox.children import Crew
from outlive.onbox.context import Context
from outlive.probes.disk import disk
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.values import Copy

RETRY_S = 30.0


class Durable:
    """Copies checkpoints as they are committed and the roster at the end."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.crew = Crew(1)
        self.to = str(context.spec["durable"]["to"])
        self.next_try_b: Dict[str, float] = {}
        self._copied: Set[str] = set()
        self._folded = 0

    @property
    def wanted(self) -> bool:
        return self.to not in ("none", "", "here")

    def tick(self) -> None:
        self.crew.tick()
        if not self.wanted:
            return
        for checkpoint in list(self.context.view.checkpoints.values()):
            self.copy(checkpoint["path"], checkpoint["files"])

    def copied(self, sha256: str) -> bool:
        copies = self.context.view.copies
        self._copied.update(c["sha256"] for c in copies[self._folded :])
        self._folded = len(copies)
        return sha256 in self._copied

    def copy(self, key: str, entries: List[Dict[str, Any]]) -> bool:
        """Queue what is not copied yet. Returns True when all of it already is."""
        lacking = [e for e in entries if not e.get("link") and e["sha256"] and not self.copied(e["sha256"])]
        if not lacking:
            return True
        if boot_s() < self.next_try_b.get(key, 0.0):
            return False

        def done(answer: Dict[str, Any]) -> None:
            if "error" in answer:
                self._failed(key, answer["error"])
                return
            whole = all(result["ok"] for result in answer["results"])
            for result in answer["results"]:
                if result["ok"]:
                    copy = Copy(result["sha256"], answer["place"], result["path"], result["read_back"], wall_s())
                    self.context.record("copy", copy=copy.to_wire(), of=key if whole else "")
                else:
                    self._failed(key, "%s: %s" % (result["path"], result["why"]))

        request = {"work": self.context.run.work, "to": self.to, "run": self.context.run.id, "entries": lacking}
        size = sum(e["bytes"] for e in lacking)
        self.crew.add(key, "copy", request, 120.0 + size / 1e6, done)
        return False

    def _failed(self, key: str, why: str) -> None:
        self.next_try_b[key] = boot_s() + RETRY_S
        if self.context.view.copy_failed.get(key) != why:
            self.context.record("copy_failed", path=key, why=why)


def copy(request: Dict[str, Any]) -> Dict[str, Any]:
    """Child ``copy``: copy entries of a work directory to ``<to>/<run>/``.

    Answers ``{"place", "results": [{"path", "sha256", "ok", "read_back", "why"}]}``.
    """
    to = request["to"]
    remote = to[len("rclone:") :] if to.startswith("rclone:") else None
    results = []
    for entry in request["entries"]:
        source = os.path.join(request["work"], entry["path"])
        try:
            if remote is not None:
                read_back = _to_remote(source, remote.rstrip("/") + "/" + request["run"] + "/" + entry["path"], entry)
            else:
                read_back = _to_path(source, to, os.path.join(to, request["run"], entry["path"]), entry)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            results.append({"path": entry["path"], "sha256": entry["sha256"], "ok": False, "why": _why(error)})
            continue
        results.append({"path": entry["path"], "sha256": entry["sha256"], "ok": True, "read_back": read_back})
    place = to if remote is not None else "mount:" + to
    return {"place": place, "results": results}


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _to_path(source: str, top: str, target: str, entry: Dict[str, Any]) -> str:
    if not os.path.isdir(top):
        raise ValueError("%s is not there; is it mounted?" % top)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    aside = os.path.join(os.path.dirname(target), ".outlive-part-%s" % entry["sha256"][:16])
    try:
        with open(source, "rb") as read, open(aside, "wb") as write:
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            os.fsync(write.fileno())
        sha256, direct = digest_from_storage(aside)
        if sha256 != entry["sha256"]:
            raise ValueError("what was read back differs from what was written, or the source changed")
        os.replace(aside, target)
    except (OSError, ValueError):
        if os.path.exists(aside):
            os.unlink(aside)
        raise
    _sync_directory(os.path.dirname(target))
    if direct:
        return "storage"
    if disk(top).network is not False:
        raise ValueError(
            "%s is on a network file system that only answers from its cache; the copy cannot be proved" % top
        )
    return "cache"


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # not every network file system can; the bytes were read back from it all the same
    finally:
        os.close(fd)


def _rclone(words: List[str], timeout_s: float) -> bytes:
    done = subprocess.run(
        ["rclone"] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout_s
    )
    if done.returncode:
        raise ValueError("rclone %s: %s" % (words[0], done.stderr.decode("utf-8", "replace").strip()[-300:]))
    return done.stdout


def _to_remote(source: str, target: str, entry: Dict[str, Any]) -> str:
    if shutil.which("rclone") is None:
        raise ValueError("rclone is not installed on this box")
    limit_s = 60.0 + entry["bytes"] / 5e5
    _rclone(["copyto", "--retries", "3", "--", source, target], limit_s)
    for kind in ("sha256", "md5", "sha1"):
        try:
            line = _rclone(["hashsum", kind, "--", target], limit_s).split()
        except ValueError:
            continue
        if line and len(line[0]) in (32, 40, 64):
            if line[0].decode() != _digest(source, kind):
                raise ValueError("the remote's %s differs from the file's" % kind)
            if _digest(source, "sha256") != entry["sha256"]:
                raise ValueError("the source changed while it was copied")
            return "remote_hash"
    remote = subprocess.Popen(["rclone", "cat", "--", target], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert remote.stdout is not None
    digest = hashlib.sha256()
    for chunk in iter(lambda: remote.stdout.read(1 << 20), b""):  # type: ignore[union-attr]
        digest.update(chunk)
    if remote.wait() or digest.hexdigest() != entry["sha256"]:
        raise ValueError("what was read back from the remote differs from what was written")
    return "storage"


def _digest(path: str, kind: str) -> str:
    digest = hashlib.new(kind)
    with open(path, "rb") as handle:
        for chunk in iter(lambda: handle.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()
