"""The clauses about files: what is not safe, not proved, not pulled. One item per file."""

import functools
import posixpath
from collections.abc import Iterable

from outlive.gate.claims import BoxClaims, RunClaims, within
from outlive.gate.items import Item
from outlive.gate.levels import asked_of, reached, strongest
from outlive.gate.places import CopyIndex
from outlive.wire.values import Entry, Proof

SIDE_ROLES = frozenset({"log", "code-drift"})
"""Roles of the manifest that clause 4 judges; every other role is a result (clauses 2 and 3)."""


class RunFiles:
    """One run's files with their copies and proofs looked up once."""

    def __init__(self, run: RunClaims, claims: BoxClaims) -> None:
        self.run = run
        self.copies = CopyIndex(run, claims)
        self._box_wall_s = claims.box_wall_s
        listed = run.manifest.entries if run.manifest is not None else ()
        roster = (e for e in listed if e.role not in SIDE_ROLES)
        # The same content under the same name may stand in both lists; it is judged once.
        self.results = tuple({(e.path, e.sha256): e for e in (*run.checkpoints, *roster)}.values())
        side = (*(run.drift or ()), *(run.logs or ()), *(e for e in listed if e.role in SIDE_ROLES))
        self.side = tuple({(e.path, e.sha256): e for e in side}.values())
        self._proofs: dict[str, list[Proof]] = {}
        for proof in run.proofs:
            self._proofs.setdefault(proof.sha256, []).append(proof)
        self._work = run.work_dir or "/(a work directory that is not known)"
        self._latest = run.latest or _newest(run.checkpoints)

    def proof(self, sha256: str) -> Proof | None:
        """Return the proof that counts for a digest."""
        return strongest(tuple(self._proofs.get(sha256, ())), sha256)

    def best_or_latest(self, entry: Entry) -> bool:
        named = (p for p in (*self.run.best, *self._latest) if p)
        return any(entry.path == p or entry.path.startswith(p.rstrip("/") + "/") for p in named)

    def asked(self, entry: Entry, proof: Proof) -> str:
        """Return the level that this file must reach."""
        return asked_of(proof, self.best_or_latest(entry))

    def lost_link(self, entry: Entry) -> bool:
        """Return whether a link that the roster names would come home without its bytes.

        An inferred roster holds the link because it is new; what it leads to is judged as an entry
        of its own or, outside the work directory, as an unclaimed file.
        """
        manifest = self.run.manifest
        if manifest is not None and manifest.inferred:
            return False
        target = posixpath.normpath(posixpath.join(self._work, posixpath.dirname(entry.path), entry.link))
        return target not in self._kept_paths

    @functools.cached_property
    def _kept_paths(self) -> frozenset[str]:
        """Every path that comes home or was removed on purpose, with every directory above it."""
        manifest = self.run.manifest
        kept = [e.path for e in (*self.results, *self.side) if not e.link]
        kept += manifest.tombstones if manifest is not None else ()
        found: set[str] = set()
        for path in kept:
            at = posixpath.normpath(posixpath.join(self._work, path))
            while at not in found and within(at, self._work):
                found.add(at)
                at = posixpath.dirname(at)
        return frozenset(found)

    def item(self, entry: Entry, why: str, unknown: bool = False) -> Item:
        age_s = None
        if self._box_wall_s is not None and entry.mtime_ns:
            age_s = round(self._box_wall_s - entry.mtime_ns / 1e9, 1)
        copy = self.copies.last_known(entry.path, entry.sha256)
        return Item(self.name(entry.path), entry.bytes, age_s, copy, why, unknown, entry.sha256)

    def gap(self, name: str, why: str) -> Item:
        return Item(self.name(f"({name})"), why=why, unknown=True)

    def name(self, path: str) -> str:
        return f"{self.run.run}:{path}"


def unsafe_items(run: RunClaims, claims: BoxClaims) -> Iterable[Item]:
    """Yield every roster line, entry and checkpoint of a run that has no safe copy."""
    files = RunFiles(run, claims)
    manifest = run.manifest
    if manifest is None:
        yield files.gap("roster", "what the run left could not be read")
    else:
        for line in manifest.missing:
            yield Item(files.name(line), why="in the roster, and no file matches it")
        if not manifest.frozen:
            yield files.gap("roster", "the roster is not frozen: its last stage has not ended")
        elif not files.results and not manifest.missing and run.state in ("succeeded", "suspect"):
            yield Item(files.name("(no file)"), why="it ended well and left nothing")
    for entry in files.results:
        yield from _uncopied(entry, files)
    if files.results and run.changed is None:
        yield files.gap("stat", "nobody looked whether the files still are as recorded")
    paths = {e.path for e in files.results}
    for path in run.changed or ():
        if path in paths:
            yield Item(files.name(path), why="changed since it was recorded")


def unproved_items(run: RunClaims, claims: BoxClaims) -> Iterable[Item]:
    """Yield every entry and checkpoint whose proof is missing, too weak, or a refutation."""
    files = RunFiles(run, claims)
    if run.manifest is None:
        yield files.gap("roster", "what the run left could not be read")
    for entry in files.results:
        if entry.link:
            continue  # clause 2 judges where it leads; it has no bytes of its own
        if not entry.sha256:
            yield files.item(entry, "not digested yet", unknown=True)
            continue
        proof = files.proof(entry.sha256)
        if proof is None:
            yield files.item(entry, "digested, never proved", unknown=True)
            continue
        asked = files.asked(entry, proof)
        if not proof.ok:
            codes = ", ".join(sorted({str(f.get("code")) for f in proof.findings}))
            yield files.item(entry, f"refuted: {codes}")
        elif proof.bytes != entry.bytes:
            yield files.item(entry, f"its proof speaks of {proof.bytes} bytes")
        elif not reached(proof, asked):
            yield files.item(entry, f"proved to {proof.level}, {asked} is asked")


def drift_and_log_items(run: RunClaims, claims: BoxClaims) -> Iterable[Item]:
    """Yield every changed code file and log without a safe copy."""
    files = RunFiles(run, claims)
    if run.drift is None:
        yield files.gap("code", "the code was not compared with its snapshot")
    if run.logs is None:
        yield files.gap("log", "the logs were not listed")
    for entry in files.side:
        yield from _uncopied(entry, files)


def delivery(run: RunClaims, claims: BoxClaims) -> str:
    """Return the run's delivery state (one of ``wire.states.DELIVERY_STATES``) from the same evidence."""
    files = RunFiles(run, claims)
    entries = [e for e in files.results if not e.link]
    safe = [e for e in entries if files.copies.safe(e.sha256)]
    if not safe:
        return "none"
    manifest = run.manifest
    whole = manifest is not None and manifest.frozen and not manifest.missing
    changed = set(run.changed or ()) & {e.path for e in entries}
    if not whole or changed or len(safe) < len(entries):
        return "partial"
    return "complete" if any(True for _ in unproved_items(run, claims)) else "proved"


def _uncopied(entry: Entry, files: RunFiles) -> Iterable[Item]:
    if entry.link:
        if files.lost_link(entry):
            yield files.item(entry, f"a link to {entry.link}, which is not among the files kept")
    elif not entry.sha256:
        yield files.item(entry, "not digested yet", unknown=True)
    elif not files.copies.safe(entry.sha256):
        yield files.item(entry, "no copy with equal digest in a safe place")


def _newest(checkpoints: tuple[Entry, ...]) -> tuple[str, ...]:
    """Return the paths of the newest checkpoint when nobody said which it is."""
    if not checkpoints:
        return ()
    if all(c.step is not None for c in checkpoints):
        last_step = max(c.step or 0 for c in checkpoints)
        return tuple(c.path for c in checkpoints if c.step == last_step)
    return (max(checkpoints, key=lambda c: c.mtime_ns).path,)
