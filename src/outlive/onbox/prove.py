"""Children that digest and check files of the work directory: one checkpoint, or the whole roster."""

import hashlib
import os
from typing import Any, Dict, List, Tuple

from outlive.artifacts.manifest import Roster, infer, scan
from outlive.wire.names import sync_files
from outlive.wire.values import LEVELS, Entry


def checkpoint(request: Dict[str, Any]) -> Dict[str, Any]:
    """Child ``prove``: every file of one checkpoint.

    Answers ``{"entries", "proofs" (each with "path"), "sha256", "bytes", "level"}``; the digest of a
    directory is over its files' names and digests. ``level`` is the weakest reached.
    """
    top = os.path.join(request["work"], request["path"])
    paths = [top]
    if os.path.isdir(top):
        paths = sorted(os.path.join(folder, name) for folder, _d, names in os.walk(top) for name in names)
    entries: List[Dict[str, Any]] = []
    proofs: List[Dict[str, Any]] = []
    whole = hashlib.sha256()
    level = LEVELS[-1]
    for path in paths:
        relative = os.path.relpath(path, request["work"])
        entry, proof = _prove_one(path, relative, request["level"], "checkpoint")
        entries.append(entry)
        proofs.append(dict(proof, path=relative))
        whole.update(
            os.path.relpath(path, top).encode("utf-8", "surrogateescape") + b"\0" + entry["sha256"].encode() + b"\n"
        )
        level = min(level, proof["level"], key=LEVELS.index)
    single = len(paths) == 1 and not os.path.isdir(top)
    return {
        "entries": entries,
        "proofs": proofs,
        "sha256": entries[0]["sha256"] if single else whole.hexdigest(),
        "bytes": sum(e["bytes"] for e in entries),
        "level": level,
    }


def _prove_one(path: str, relative: str, level: str, role: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    from outlive.artifacts.structure import prove  # the supervisor imports this file for ``baseline`` alone

    sync_files([path])  # older ones are pruned on the word of this proof, and the cache dies with the power
    info = os.stat(path)
    proof = prove(path, level)
    entry = Entry(relative, proof.bytes, proof.sha256, info.st_mtime_ns, info.st_mode & 0o777, role)
    return entry.to_wire(), proof.to_wire()


def baseline(work: str) -> Dict[str, Any]:
    """Return what stands in the work directory before the first start: ``{path: [bytes, mtime_ns]}``."""
    return {e.path: [e.bytes, e.mtime_ns] for e in scan(work)}


def roster(request: Dict[str, Any]) -> Dict[str, Any]:
    """Child ``roster``: what the run leaves, digested and proved.

    ``request``: ``work``, ``baseline`` (from ``baseline``), ``declared`` globs, ``checkpoints`` directory,
    ``known`` (``{path: [bytes, mtime_ns, sha256, level]}``: not read again), ``strict`` paths whose values
    are scanned too. Answers ``{"entries", "proofs", "missing", "unreadable", "inferred", "links"}``.
    """
    work = request["work"]
    there = scan(work)
    declared = tuple(request["declared"])
    kept_dir = request["checkpoints"].rstrip("/")
    before = {path: (value[0], value[1]) for path, value in request["baseline"].items()}
    changed = infer(before, there)
    missing: List[str] = []
    if declared:
        matched, lacking = Roster(declared).match(there)
        missing = list(lacking)
        chosen = {e.path: e for e in matched}
    else:
        chosen = {e.path: e for e in changed}
    # checkpoints belong to the result whether or not the roster names them, also ones that a move brought along
    chosen.update({e.path: e for e in there if kept_dir and e.path.startswith(kept_dir + "/")})
    entries: List[Dict[str, Any]] = []
    proofs: List[Dict[str, Any]] = []
    links: List[str] = []
    unreadable: List[str] = []
    for path in sorted(chosen):
        found = chosen[path]
        role = "checkpoint" if kept_dir and path.startswith(kept_dir + "/") else "artifact"
        if found.link:
            links.append(path)
            entries.append(dict(found.to_wire(), role=role))
            continue
        known = request["known"].get(path)
        want = "tensors" if path in request["strict"] else "structure"
        if (
            known
            and known[0] == found.bytes
            and known[1] == found.mtime_ns
            and LEVELS.index(known[3]) >= LEVELS.index(want)
        ):
            entries.append(Entry(path, found.bytes, known[2], found.mtime_ns, found.mode, role).to_wire())
            continue
        try:
            entry, proof = _prove_one(os.path.join(work, path), path, want, role)
        except FileNotFoundError:
            continue  # gone since the scan: something of the work still tidies up
        except OSError as error:
            unreadable.append("%s: %s" % (path, error.strerror))
            continue
        entries.append(entry)
        proofs.append(dict(proof, path=path))
    return {
        "unreadable": unreadable,
        "entries": entries,
        "proofs": proofs,
        "missing": missing,
        "inferred": not declared,
        "links": links,
    }
