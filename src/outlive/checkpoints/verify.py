"""Whether the bytes of a checkpoint are those that were saved."""

import os
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from outlive.artifacts.digest import Changed, digest_file
from outlive.artifacts.structure import prove
from outlive.checkpoints.record import RECORD, Record
from outlive.wire.values import LEVELS


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
    """
    if level not in LEVELS[1:4]:
        raise ValueError("level must be one of %s, not %r" % (", ".join(LEVELS[1:4]), level))
    reached, looked = level, False
    findings: List[Dict[str, str]] = []
    read = 0
    for entry in record.files:
        path = os.path.join(directory, entry.path)
        try:
            if from_storage:
                forget_cached(path)
            if level == "bytes":
                sha256, size = digest_file(path, on_bytes=on_bytes)
            else:
                proof = prove(path, level, on_bytes=on_bytes)
                if proof.level == "none":
                    return Verdict(None, "none", "%s: %s" % (entry.path, _texts(proof.findings)), (), read)
                sha256, size = proof.sha256, proof.bytes
                findings += [dict(one, path=entry.path) for one in proof.findings if one["code"] != "unknown_type"]
                if not proof.ok:
                    why = "%s: %s" % (entry.path, _texts(proof.findings))
                    return Verdict(False, "none", why, tuple(findings), read + size)
                if counts(proof.kind):
                    reached, looked = min(reached, proof.level, key=LEVELS.index), True
        except FileNotFoundError:
            return Verdict(False, "none", "%s is missing" % entry.path, (), read)
        except Changed as error:
            return Verdict(None, "none", str(error), (), read)
        except OSError as error:
            return Verdict(None, "none", "%s cannot be read: %s" % (entry.path, error.strerror or error), (), read)
        read += size
        if size != entry.bytes:
            return Verdict(False, "none", "%s has %d bytes, %d were saved" % (entry.path, size, entry.bytes), (), read)
        if sha256 != entry.sha256:
            return Verdict(False, "none", "%s does not have the digest it was saved with" % entry.path, (), read)
    return Verdict(True, reached if looked else "bytes", "", tuple(findings), read)


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
