"""Whether the bytes of a checkpoint are those that were saved."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from outlive.artifacts.digest import Changed, digest_file
from outlive.artifacts.structure import prove
from outlive.checkpoints.record import RECORD, FileEntry, Record
from outlive.wire.values import LEVELS

AT_ONCE = 4
"""Files that are read at the same time: one digest is slower than most disks."""

TOGETHER_BYTES = 32 << 20
"""Below that a thread costs more than it brings."""


class Verdict(NamedTuple):
    """What a check found. ``ok`` None: the check could not be made, which says nothing about the bytes."""

    ok: Optional[bool]
    level: str
    """The level that was reached: none, bytes, structure, tensors; the torch half adds loaded."""
    why: str = ""
    findings: Tuple[Dict[str, str], ...] = ()
    bytes: int = 0
    """How many were read."""


def verify_files(
    directory: str,
    record: Record,
    level: str = "bytes",
    from_storage: bool = False,
    on_bytes: Optional[Callable[[int], None]] = None,
) -> Verdict:
    """Compare every file with its digest and, above ``bytes``, check its container too.

    ``from_storage`` asks the system to forget its cached pages first, so that the disk is read where it can be.
    Large checkpoints are read several files at a time; ``on_bytes`` is then called from several threads.
    """
    if level not in LEVELS[1:4]:
        raise ValueError("level must be one of %s, not %r" % (", ".join(LEVELS[1:4]), level))
    enough = threading.Event()

    def look(entry: FileEntry) -> _Seen:
        if enough.is_set():
            return _Seen(Verdict(None, "none", "not looked at"), False)
        seen = _look(os.path.join(directory, entry.path), entry, level, from_storage, on_bytes)
        if seen.verdict.ok is not True:
            enough.set()  # one is enough; the others need not be read
        return seen

    files = sorted(record.files, key=lambda entry: -entry.bytes)
    at_once = min(AT_ONCE, len(files), os.cpu_count() or 1) if record.bytes >= TOGETHER_BYTES else 1
    if at_once > 1:
        with ThreadPoolExecutor(at_once, "outlive-verify") as pool:
            found = list(pool.map(look, files))
    else:
        found = [look(entry) for entry in files]
    read = sum(seen.verdict.bytes for seen in found)
    findings = tuple(one for seen in found for one in seen.verdict.findings)
    refuted = [seen.verdict for seen in found if seen.verdict.ok is False]
    unknown = [seen.verdict for seen in found if seen.verdict.ok is None and seen.verdict.why != "not looked at"]
    for verdict in refuted + unknown:
        return verdict._replace(findings=findings, bytes=read)
    levels = [seen.verdict.level for seen in found if seen.counts]
    return Verdict(True, min(levels, key=LEVELS.index) if levels else "bytes", "", findings, read)


class _Seen(NamedTuple):
    verdict: Verdict
    counts: bool
    """Whether its kind has a check, so that the level it reached says something."""


def _look(
    path: str, entry: FileEntry, level: str, from_storage: bool, on_bytes: Optional[Callable[[int], None]]
) -> _Seen:
    """Check one file."""
    reached, known, size = "bytes", level == "bytes", 0
    findings: Tuple[Dict[str, str], ...] = ()
    try:
        if from_storage:
            forget_cached(path)
        if level == "bytes":
            sha256, size = digest_file(path, on_bytes=on_bytes)
        else:
            proof = prove(path, level, on_bytes=on_bytes)
            if proof.level == "none":
                return _Seen(Verdict(None, "none", "%s: %s" % (entry.path, _texts(proof.findings))), False)
            sha256, size, reached, known = proof.sha256, proof.bytes, proof.level, counts(proof.kind)
            findings = tuple(dict(one, path=entry.path) for one in proof.findings if one["code"] != "unknown_type")
            if not proof.ok:
                why = "%s: %s" % (entry.path, _texts(proof.findings))
                return _Seen(Verdict(False, "none", why, findings, size), known)
    except FileNotFoundError:
        return _Seen(Verdict(False, "none", "%s is missing" % entry.path), False)
    except Changed as error:
        return _Seen(Verdict(None, "none", str(error)), False)
    except OSError as error:
        return _Seen(Verdict(None, "none", "%s cannot be read: %s" % (entry.path, error.strerror or error)), False)
    if size != entry.bytes:
        why = "%s has %d bytes, %d were saved" % (entry.path, size, entry.bytes)
        return _Seen(Verdict(False, "none", why, findings, size), known)
    if sha256 != entry.sha256:
        why = "%s does not have the digest it was saved with" % entry.path
        return _Seen(Verdict(False, "none", why, findings, size), known)
    return _Seen(Verdict(True, reached, "", findings, size), known)


def counts(kind: str) -> bool:
    """Files that no check is known for were compared byte by byte; they do not lower what the others reached."""
    return kind not in ("unknown", "text", "log")


def _texts(findings: Tuple[Dict[str, str], ...]) -> str:
    return "; ".join(one["text"] for one in findings)


def forget_cached(path: str) -> None:
    """Ask the system to drop its cached pages of a file. A hint: what cannot be dropped is read from the cache."""
    if not hasattr(os, "posix_fadvise"):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        pass  # not every file system takes the hint
    finally:
        os.close(fd)


def unlisted(directory: str, record: Record) -> List[str]:
    """Return files below a checkpoint that its record does not list, sorted."""
    listed = {entry.path for entry in record.files} | {RECORD, "pinned"}
    found: List[str] = []
    for folder, _dirs, names in os.walk(directory):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), directory)
            if path not in listed:
                found.append(path)
    return sorted(found)
