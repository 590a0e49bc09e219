"""Bring a snapshot to a box: only what it lacks, continued after a cut, compared at the end."""

from __future__ import annotations

import hashlib
import os
import posixpath
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from outlive import errors
from outlive.onbox.archive import manifest_text
from outlive.onbox.seen import same_file
from outlive.sync.patience import Patience, Progress
from outlive.sync.snapshot import WHOLE_BYTES, Snapshot, open_content, shown
from outlive.sync.space import gate
from outlive.sync.squeeze import Squeeze
from outlive.transport.agent import Agent, Frame, Refused
from outlive.transport.dialog import Ahead, Dialog, dialog
from outlive.transport.local import LocalExec
from outlive.wire.frames import CHUNK_BYTES

CALL = "code_push"
PART_REFUSALS = 3
"""How often a box may say that its part file is not what we continue before we believe that something is wrong."""


@dataclass(frozen=True)
class PushResult:
    """A snapshot that is on the box under ``digest``, compared there content by content.

    ``sent_bytes`` and ``sent_files`` count contents sent in this call, with what was sent twice; ``wire_bytes`` is what
    they weighed on the way. ``already``: nothing had to be sent. ``resumed_from``: bytes that an earlier, cut push had
    left there. ``cuts``: how often the connection was lost on the way.
    """

    digest: str
    sent_bytes: int = 0
    sent_files: int = 0
    already: bool = False
    resumed_from: int = 0
    wire_bytes: int = 0
    cuts: int = 0


@dataclass
class _Sent:
    bytes: int = 0
    wire_bytes: int = 0


def push_code(
    agent: Agent,
    snapshot: Snapshot,
    source_dir: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    patience: Patience | None = None,
    compress: bool | None = None,
    ahead: Ahead | None = None,
) -> PushResult:
    """Bring ``snapshot`` of ``source_dir`` to the box. Repeatable; an interrupted call is continued by the next.

    ``compress`` None decides by measurement (and never on this machine). ``ahead`` is this call's dialog (`CALL`),
    opened while the snapshot was collected. Raises NoSpace before anything is sent, Corrupt when a file changed since
    the snapshot was collected, Unreachable when patience is over.
    """
    patience = patience or Patience()
    on = not isinstance(agent.exec, LocalExec) if compress is None else compress
    job = _Push(agent, snapshot, os.fspath(source_dir), progress, patience, on)
    refused = 0
    while True:
        try:
            limit_s = _time_for(len(snapshot.files))
            asked = {"t": "is", "digest": snapshot.digest}, b""
            with dialog(agent, CALL, asked, ahead=ahead, timeout_s=limit_s, stall_s=patience.stall_s) as spoken:
                if not spoken.answer["have"]:
                    job.bring(spoken, anew=refused > 0)
                elif job.first_staged < 0:
                    return PushResult(snapshot.digest, already=True, cuts=patience.cuts)
            return PushResult(
                snapshot.digest,
                job.sent.bytes,
                job.sent_files,
                resumed_from=max(0, job.first_staged),
                wire_bytes=job.sent.wire_bytes,
                cuts=patience.cuts,
            )
        except Refused as error:
            refused += 1
            if error.code == "os":
                raise _no_write(agent, error) from error
            if error.code not in ("bad_snapshot", "torn") or refused > PART_REFUSALS:
                raise errors.Corrupt(f"{agent.exec.describe()} did not accept the snapshot: {error}") from error
        except (errors.Unreachable, errors.TimeOver) as error:
            patience.cut(error, job.staged)


@dataclass
class _Push:
    """One snapshot on its way to one box, over as many connections as it takes."""

    agent: Agent
    snapshot: Snapshot
    top: str
    progress: Progress | None
    patience: Patience
    compress: bool
    sent: _Sent = field(default_factory=_Sent)
    sent_files: int = 0
    staged: int = 0
    first_staged: int = -1

    def bring(self, spoken: Dialog, anew: bool) -> None:
        """Send the manifest, hear what is missing, send that."""
        files, total_bytes = self.snapshot.files, self.snapshot.total_bytes
        room = spoken.answer
        squeeze = Squeeze(self.compress)
        spoken.send(_manifest(list(files), squeeze, anew))
        answer = spoken.next(_time_for(len(files)))
        _same(self.snapshot.digest, answer["digest"], self.agent)
        need = _named(self.snapshot, answer["need"])
        self.staged = int(answer["staged"])
        total = sum(size for _, size, _ in need)
        if self.first_staged < 0:
            self.first_staged, self.sent_files = self.staged, len(need)
        gate(
            f"{self.agent.root} of {self.agent.exec.describe()}",
            # the rest of the archive; and the run that this is pushed for unpacks it
            bytes_needed=max(0, int(answer["archive"]) - int(answer["part"])) + total_bytes,
            bytes_free=room.get("free_bytes"),
            inodes_needed=3 + len(files) + len({posixpath.dirname(str(f["path"])) for f in files}),
            inodes_free=room.get("free_inodes"),
            what=f"this code ({len(files)} files)",
        )
        spoken.send(_body(self.snapshot, self.top, need, self.staged, self.sent, squeeze, self.progress, total))
        spoken.end()
        # After the last byte the box compares and writes back the archive: disks of rentals can be slow.
        _same(self.snapshot.digest, spoken.next(_time_for(len(files), 2 * total_bytes))["digest"], self.agent)


def _manifest(files: list[dict[str, Any]], squeeze: Squeeze, anew: bool) -> Iterator[Frame]:
    text = manifest_text(files)
    for at in range(0, len(text), CHUNK_BYTES):
        header, payload = squeeze.frame(text[at : at + CHUNK_BYTES])
        yield dict(header, t="files"), payload
    yield {"t": "want", "anew": anew}, b""


def _named(snapshot: Snapshot, ranges: list[list[int]]) -> list[tuple[str, int, str]]:
    """Return (digest, bytes, a path that has it) of each content that the box lacks, in its order."""
    different: dict[str, tuple[str, int, str]] = {}
    for item in snapshot.files:
        sha256 = item["sha256"]
        if sha256 and sha256 not in different:
            different[sha256] = (sha256, item["bytes"], item["path"])
    contents = list(different.values())
    return [one for start, end in ranges for one in contents[start:end]]


def _time_for(files: int, size_bytes: int = 0) -> float:
    """A generous limit for work that the box does without a word: 1 MB/s, 200 files/s."""
    return 120.0 + files / 200.0 + size_bytes / 1e6


def _same(ours: str, theirs: str, agent: Agent) -> None:
    if ours != theirs:
        raise errors.Corrupt(
            f"{agent.exec.describe()} computed another digest for this snapshot ({theirs[:12]}, not {ours[:12]})"
        )


def _no_write(agent: Agent, error: Refused) -> errors.OutliveError:
    import errno

    if error.facts.get("errno") in (errno.ENOSPC, errno.EDQUOT):
        return errors.NoSpace(
            f"{agent.exec.describe()} ran out of space while the code arrived: {error}",
            path=agent.root,
            safe="The unfinished part is kept and continued; no run sees it.",
        )
    return errors.PlaceError(f"{agent.exec.describe()} could not write the snapshot: {error}")


def _body(
    snapshot: Snapshot,
    top: str,
    need: list[tuple[str, int, str]],
    start: int,
    sent: _Sent,
    squeeze: Squeeze,
    progress: Progress | None,
    total: int,
) -> Iterator[Frame]:
    """Yield the contents that the box needs, from byte ``start`` of their sequence on."""
    at, done = 0, start
    pending = bytearray()
    path = ""
    for sha256, size, path in need:
        skip = max(0, start - at)
        at += size
        if skip >= size:
            continue
        for chunk in _checked(top, snapshot, path, sha256, size):
            if skip:
                chunk, skip = chunk[skip:], max(0, skip - len(chunk))
            pending += chunk
            # Small files share frames: five thousand of them are not five thousand packets.
            while len(pending) >= CHUNK_BYTES:
                piece = bytes(pending[:CHUNK_BYTES])
                del pending[:CHUNK_BYTES]
                yield from _frame(piece, squeeze, sent)
                done += len(piece)
                if progress:
                    progress(done, total, path)
    if pending:
        yield from _frame(bytes(pending), squeeze, sent)
    if progress:
        progress(total, total, path)


def _frame(chunk: bytes, squeeze: Squeeze, sent: _Sent) -> Iterator[Frame]:
    before = squeeze.sent_bytes
    frame = squeeze.frame(chunk)
    sent.bytes += len(chunk)
    sent.wire_bytes += squeeze.sent_bytes - before
    began_s = time.perf_counter()
    yield frame
    squeeze.wrote(time.perf_counter() - began_s)


def _checked(top: str, snapshot: Snapshot, path: str, sha256: str, size: int) -> Iterator[bytes]:
    """Yield a file's content, and raise when it is not what the snapshot has. Small ones are compared before."""
    try:
        if path in snapshot.held:
            data, info = snapshot.held[path]
            if not same_file(info, os.lstat(os.path.join(top, path))):
                raise _changed(path)
            yield data
            return
        with open_content(top, snapshot, path) as handle:
            if size <= WHOLE_BYTES:
                data = handle.read(size + 1)
                if hashlib.sha256(data).hexdigest() != sha256:
                    raise _changed(path)
                if size <= CHUNK_BYTES:
                    yield data
                    return
                yield from (data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES))
                return
            digest, left = hashlib.sha256(), size
            while left and (chunk := handle.read(min(CHUNK_BYTES, left))):
                digest.update(chunk)
                left -= len(chunk)
                yield chunk
            if left or handle.read(1) or digest.hexdigest() != sha256:
                raise _changed(path)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise _changed(path, error.strerror or "") from error


def _changed(path: str, why: str = "") -> errors.Corrupt:
    return errors.Corrupt(
        f"{shown(path)} changed while it was being pushed" + (f": {why}" if why else ""),
        path=path,
        safe="No snapshot was made on the box; runs there are untouched.",
        next=[["outlive", "push"]],
    )
