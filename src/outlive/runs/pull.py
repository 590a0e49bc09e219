"""``pull``: bring a run's result home, staged aside, and say how far it is proved."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.gate.levels import asked_of, reached, strongest
from outlive.ledger import LedgerState, Run
from outlive.runs import receipts
from outlive.runs.ending import storage_of
from outlive.runs.evidence import delivery
from outlive.runs.home import Home
from outlive.runs.place import Place, open_place
from outlive.runs.result import (
    Left,
    here_path,
    let_go,
    listing,
    read_changed,
    read_left,
    stamp,
    standing,
    still_here,
)
from outlive.runs.unchanged import Last
from outlive.sync.fetch import OURS, fetch
from outlive.sync.land import land
from outlive.wire.clock import wall_s
from outlive.wire.values import Copy, Entry, Proof

Progress = Callable[[int, int, str], None]

RUNS_DIR = "outlive-runs"
RECORD_FILES = 10_000
"""Of how many files one record of the ledger tells; a torn one costs no more than these."""


@dataclass(frozen=True)
class PullResult:
    """What is here now of one run. Paths are relative to ``dir``.

    ``entries``: one plain dict per file asked for: path, bytes, sha256, role, level, kind, findings, here.
    ``delivery``: none, partial, complete, proved - of the whole run, not of this call.
    """

    run: str
    box: str
    dir: Path
    entries: list[dict[str, Any]]
    bytes: int
    """Of all entries that are here."""
    bytes_fetched: int
    """What came over the line for them in this call."""
    delivery: str
    levels: dict[str, int]
    """Proof level -> how many files reached it."""
    wrong: dict[str, str]
    """Path -> why it is not here."""
    missing: list[str]
    """Roster lines that no file answers."""
    refuted: dict[str, str]
    """Path -> what is wrong with its content. It is here, and it is not a result."""
    kept: dict[str, str]
    """Path -> where its earlier content was kept, when this pull replaced it."""
    links_outside: dict[str, str]
    receipt_path: Path
    read_back: str
    state: str
    """The run's state as its box gave it."""
    live: bool
    whole: bool
    """This call asked for the whole result, not for globs or checkpoints."""
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 when what was asked is here; 1 when a file is wrong, refuted or missing."""
        lacking = self.whole and not self.live and self.missing
        return 1 if self.wrong or self.refuted or lacking else 0


def pull(
    home: Home,
    word: str = "",
    *,
    to: str | os.PathLike[str] | None = None,
    globs: Sequence[str] = (),
    mirror: bool = False,
    progress: Progress | None = None,
) -> PullResult:
    """Bring a run's roster, kept checkpoints, logs and changed code to ``./outlive-runs/<run>/`` or ``to``.

    ``globs`` are paths of the work directory, at any time; ``mirror`` brings committed checkpoints only. What is here
    with the same digest is not sent again, and what was cut is continued. Raises PlaceError (4) with what is here
    already, NoSpace (3) before anything is written, UsageError (2) when the target cannot be written.
    """
    state = home.state()
    run = home.run_of(word, state)
    box = state.boxes.get(run.box)
    if box is None:
        raise _away(home, run, errors.PlaceError(f"the box of {run.run} is not known here any more", place=run.box))
    if box.gone:
        raise _away(home, run, errors.PlaceError(f"{run.box} is gone", place=run.box))
    place = open_place(home, box)
    try:
        return pull_run(home, place, run.run, to=to, globs=globs, mirror=mirror, progress=progress, state=state)
    except errors.PlaceError as error:
        raise _away(home, run, error) from error
    finally:
        place.close()


def mirror_once(
    home: Home, word: str = "", *, to: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> PullResult:
    """Bring the committed checkpoints that are not here yet. Call it again as often as wanted while the run lives."""
    return pull(home, word, to=to, mirror=True, progress=progress)


def target_of(run: str, to: str | os.PathLike[str] | None) -> Path:
    """Return the directory of a run's result: ``to``, else ``./outlive-runs/<run>``."""
    return Path(os.path.abspath(Path(to).expanduser())) if to is not None else Path.cwd() / RUNS_DIR / run


def pull_run(
    home: Home,
    place: Place,
    run: str,
    *,
    to: str | os.PathLike[str] | None = None,
    globs: Sequence[str] = (),
    mirror: bool = False,
    only: Collection[str] | None = None,
    progress: Progress | None = None,
    state: LedgerState | None = None,
) -> PullResult:
    """Like ``pull``, for a run found on an open place; the ledger need not know it yet.

    ``only``: these paths of the result, and always logs and changed code. ``state``: the ledger's, if it was read.
    """
    target = target_of(run, to)
    with _writable(target), _alone(home, target, run), place.talking() as talking:
        whole = not globs and not mirror and only is None
        state = state or home.state()
        last = Last(home, talking, run, target)
        # held from the look on: a live run's retention must not remove what was seen before it is asked for
        hold = f"look-{uuid.uuid4().hex[:12]}"
        left = read_changed(talking, run, last.begin(state) if whole else "", hold=hold)
        if left is None and last.here():
            return _as_before(home, talking, run, state.runs[run].job, target, last.receipt)
        left = left or read_left(talking, run, hold=hold)
        try:
            pulling = _Pull(home, talking, left, target, progress, state)
            wanted = _wanted(talking, left, globs, mirror)
            if only is not None:
                wanted = [e for e in wanted if e.path in only or e.link]
            pulling.bring(wanted)
            if not mirror:
                pulling.bring_ours()
        finally:
            let_go(talking, run, hold)
        result = pulling.finish(wanted, whole)
        if whole and left.tag and not left.live and result.exit_code == 0 and not any(e.link for e in wanted):
            last.remember(left.tag, pulling.ours)
        return result


def _as_before(home: Home, place: Place, run: str, job: str, target: Path, receipt: dict[str, Any]) -> PullResult:
    """What the last whole pull said, of files that nobody changed since, there or here."""
    home.ledger.append(
        "run",
        run=run,
        box=place.name,
        job=job,
        spec_digest=receipt["spec"],
        state=receipt["state"],
        delivery=receipt["delivery"],
        pulled_to=str(target),
    )
    entries = receipt["files"]
    return PullResult(
        run=run,
        box=place.name,
        dir=target,
        entries=entries,
        bytes=sum(e["bytes"] for e in entries),
        bytes_fetched=0,
        delivery=receipt["delivery"],
        levels=receipt["levels"],
        wrong={},
        missing=[],
        refuted={},
        kept={},
        links_outside={},
        receipt_path=target / OURS / receipts.PULL_RECEIPT,
        read_back=receipt["read_back"],
        state=receipt["state"],
        live=False,
        whole=True,
    )


def _wanted(place: Place, left: Left, globs: Sequence[str], mirror: bool) -> list[Entry]:
    if globs:
        found, _ = listing(place, left.work, globs=globs)
        if not found:
            raise errors.CheckFailed(
                f"nothing in the work directory of {left.run} matches {' '.join(globs)}",
                safe="Nothing was changed here or there.",
                next=[["outlive", "ssh", place.name]],
            )
        known = {e.path: e for e in left.entries}
        return [known[e.path] if e.path in known and known[e.path].sha256 == e.sha256 else e for e in found]
    return list(left.checkpoints if mirror else left.entries)


class _Pull:
    """One pull in progress."""

    def __init__(
        self, home: Home, place: Place, left: Left, target: Path, progress: Progress | None, state: LedgerState
    ) -> None:
        self.home, self.place, self.left, self.target, self.progress = home, place, left, target, progress
        self.name = f"here:{target}"
        known = state.runs.get(left.run)
        self.before = known.copies if known is not None else []
        self.known = {c["path"]: c for c in self.before if c["place"] == self.name}
        self.recorded = state.proofs
        self.storage = storage_of(str(target))
        self.read_back = "cache" if self.storage == "local" else "storage"
        self.proofs: dict[str, list[Proof]] = {}
        for proof in left.proofs:
            self.proofs.setdefault(proof.sha256, []).append(proof)
        self.proved: set[str] = set()
        """Digests that need no further look."""
        self.copies: list[dict[str, Any]] = []
        self.made_here: list[Proof] = []
        self.wrong: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        self.outside: dict[str, str] = {}
        self.notes: list[str] = []
        self.fetched = 0
        self.ours: list[str] = []
        """Logs, records and changed code that are here, below the target."""

    @property
    def staging(self) -> Path:
        return self.target.with_name(f".{self.target.name}.part")

    def bring(self, wanted: list[Entry]) -> None:
        """Fetch what is not here, check it, and give it its name."""
        todo = [e for e in wanted if e.link or not self._is_here(e, self.target)]
        if todo:
            self._fetch(self.left.work, todo, self.staging, self.target)
            moved = [p for p in self.wrong if any(e.path == p and e.sha256 for e in todo)]
            if moved and self.left.live:
                self._again(wanted, todo, moved)
            here = [e for e in todo if not e.link and e.path not in self.wrong]
            for entry in here:
                self._prove(entry, self.staging)
            proved = [e.path for e in here if self._ok(e)]
            landed = land(self.staging, self.target, accepted=proved, digests={e.path: e.sha256 for e in here})
            self.kept = dict(landed.kept)
        self.target.mkdir(parents=True, exist_ok=True)
        for entry in wanted:
            if not entry.link and entry.path not in self.wrong:
                self._prove(entry, self.target)
                self._record(entry, entry.path)

    def _again(self, wanted: list[Entry], todo: list[Entry], moved: list[str]) -> None:
        """The work wrote these while they were on their way: ask once for what they are now."""
        fresh, _ = listing(self.place, self.left.work, paths=moved)
        roles = {e.path: e for e in wanted}
        for path in moved:
            self.wrong.pop(path, None)
        now = [replace(roles[e.path], bytes=e.bytes, sha256=e.sha256, mtime_ns=e.mtime_ns, mode=e.mode) for e in fresh]
        for path in set(moved) - {e.path for e in now}:
            self.wrong[path] = "it is not on the box any more"
        self._fetch(self.left.work, now, self.staging, self.target)
        by_path = {e.path: e for e in now}
        for entries in (wanted, todo):
            entries[:] = [by_path.get(e.path, e) for e in entries]

    def bring_ours(self) -> None:
        """Logs, journal, spec, exit records and changed code, under ``.outlive/``."""
        aside = self.target.with_name(f".{self.target.name}.ours")
        own = self.target / OURS
        for base, entries, top in (
            (self.left.run_dir, [*self.left.logs, *self.left.records], own),
            (self.left.work, list(self.left.drift), own / "drift"),
        ):
            todo = [e for e in entries if not e.link and not self._is_here(e, top)]
            if todo:
                before = set(self.wrong)
                self._fetch(base, todo, aside, top if top.is_dir() else None, lease=False)
                for entry in todo:
                    if entry.path not in set(self.wrong) - before:
                        _publish(aside / entry.path, top / entry.path)
            for entry in entries:
                if not entry.link and entry.path not in self.wrong:
                    self.ours.append(os.path.relpath(top / entry.path, self.target))
                    self._record(entry, self.ours[-1])
        with contextlib.suppress(OSError):
            _remove_empty(aside)

    def _is_here(self, entry: Entry, top: Path) -> bool:
        path = f"{top}/{entry.path}"
        known = self.known.get(entry.path if top == self.target else os.path.relpath(path, self.target))
        if known is not None and known["sha256"] == entry.sha256:
            return still_here(known)
        try:
            info = os.lstat(path)
        except OSError:
            return False
        if stat.S_ISLNK(info.st_mode) or info.st_size != entry.bytes:
            return False
        return still_here({"place": f"here:{top}", "path": entry.path, "sha256": entry.sha256})

    def _fetch(self, base: str, todo: list[Entry], staging: Path, known: Path | None, lease: bool = True) -> None:
        got = fetch(
            self.place.agent,
            base,
            [e.to_wire() for e in todo],
            staging,
            run=self.left.run if lease else None,
            lease=f"pull-{uuid.uuid4().hex[:12]}" if lease else None,
            progress=self.progress,
            known=known if known is not None and known.is_dir() else None,
        )
        self.fetched += got.bytes_fetched
        self.wrong.update(got.wrong)
        self.outside.update(got.links_outside)

    def _prove(self, entry: Entry, top: Path) -> None:
        """Check here what the box has not proved as far as is asked of it."""
        if entry.sha256 in self.proved:
            return
        self.proved.add(entry.sha256)
        proof = self._proof(entry)
        first = self._first(entry)
        if proof is not None and (not proof.ok or reached(proof, asked_of(proof, first))):
            return
        from outlive.artifacts.structure import prove

        made = prove(str(top / entry.path), "tensors" if first else "structure", where="here", read_back=self.read_back)
        if made.sha256 == entry.sha256 and made not in self.proofs.get(entry.sha256, []):
            self.proofs.setdefault(entry.sha256, []).append(made)
            self.made_here.append(made)

    def _first(self, entry: Entry) -> bool:
        named = (*self.left.best, *self.left.latest)
        return any(entry.path == p or entry.path.startswith(p.rstrip("/") + "/") for p in named)

    def _proof(self, entry: Entry) -> Proof | None:
        """The proof that counts, of those that there are now."""
        about = self.proofs.get(entry.sha256)
        if about is None or len(about) == 1:
            return about[0] if about and entry.sha256 else None
        return strongest(tuple(about), entry.sha256)

    def _ok(self, entry: Entry) -> bool:
        proof = self._proof(entry)
        return proof is not None and proof.ok

    def _record(self, entry: Entry, path: str) -> None:
        full = f"{self.target}/{path}"
        known = self.known.get(path)
        now = stamp(full)
        if known is not None and known["sha256"] == entry.sha256 and known.get("stamp") == now:
            return
        if self.storage != "local" and receipts.digest_from_storage(full) != entry.sha256:
            self.read_back = "cache"
        copy = Copy(entry.sha256, self.name, path, self.read_back, wall_s())
        self.copies.append(dict(copy.to_wire(), stamp=now))

    def finish(self, wanted: list[Entry], whole: bool) -> PullResult:
        """Write manifest, proofs and receipt, record it all in the ledger, and say what is here."""
        home, left = self.home, self.left
        delivered = self._delivery()
        status = left.status
        about = {
            "run": left.run,
            "box": self.place.name,
            "job": status["job"],
            "spec_digest": status["spec"],
            "state": status["state"],
            "delivery": delivered,
            "pulled_to": str(self.target),
        }
        home.ledger.append_each([*self._for_ledger(), ("run", about)])
        entries = [self._line(e) for e in wanted]
        levels: dict[str, int] = {}
        for line in entries:
            if line["here"] and not line["link"]:
                levels[line["level"]] = levels.get(line["level"], 0) + 1
        result = PullResult(
            run=left.run,
            box=self.place.name,
            dir=self.target,
            entries=entries,
            bytes=sum(e["bytes"] for e in entries if e["here"]),
            bytes_fetched=self.fetched,
            delivery=delivered,
            levels=levels,
            wrong=dict(self.wrong),
            missing=list(left.manifest.missing),
            refuted={e["path"]: "; ".join(f["text"] for f in e["findings"]) for e in entries if e["refuted"]},
            kept=self.kept,
            links_outside=dict(self.outside),
            receipt_path=self.target / OURS / receipts.PULL_RECEIPT,
            read_back=self.read_back,
            state=status["state"],
            live=left.live,
            whole=whole,
            notes=self.notes + self._notes(),
        )
        receipts.write_pull(result, left, [p for ps in self.proofs.values() for p in ps], self.place)
        return result

    def _for_ledger(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield records of copies and proofs; those that are alike but for their file share one."""
        run = self.left.run
        for read_back in ("cache", "storage"):
            copies = [c for c in self.copies if c["read_back"] == read_back]
            alike = {"place": self.name, "read_back": read_back, "wall_s": wall_s()}
            for number in range(0, len(copies), RECORD_FILES):
                each = [[c["sha256"], c["path"], c["stamp"]] for c in copies[number : number + RECORD_FILES]]
                yield "copies", {"run": run, "alike": alike, "each": each}
        kinds: dict[tuple[str, ...], list[Proof]] = {}
        for proof in (p for proofs in self.proofs.values() for p in proofs):
            known = self.recorded.get(proof.sha256, ())
            if not any((p["level"], p["where"]) == (proof.level, proof.where) for p in known):
                same = (proof.level, proof.kind, proof.where, proof.read_back, repr(proof.findings))
                kinds.setdefault(same, []).append(proof)
        for proofs in kinds.values():
            wire = proofs[0].to_wire()
            alike = {k: wire[k] for k in ("level", "kind", "findings", "where", "read_back")}
            for number in range(0, len(proofs), RECORD_FILES):
                each = [[p.sha256, p.bytes, p.wall_s] for p in proofs[number : number + RECORD_FILES]]
                yield "proofs", {"run": run, "alike": alike, "each": each}

    def _notes(self) -> list[str]:
        notes = []
        if self.left.live:
            notes.append(f"the run is {self.left.status['state']}: what is here is what stood at this moment")
        if self.left.moving:
            notes.append("written while it was read: " + ", ".join(self.left.moving[:5]))
        return notes

    def _line(self, entry: Entry) -> dict[str, Any]:
        proof = self._proof(entry)
        refuted = proof is not None and not proof.ok
        return {
            "path": entry.path,
            "bytes": entry.bytes,
            "sha256": entry.sha256,
            "role": entry.role,
            "step": entry.step,
            "link": entry.link,
            "level": proof.level if proof is not None and not refuted else "none",
            "kind": proof.kind if proof is not None else "unknown",
            "findings": [dict(f) for f in proof.findings] if proof is not None else [],
            "refuted": refuted,
            "here": entry.path not in self.wrong,
        }

    def _delivery(self) -> str:
        copies, _ = standing([*self.before, *self.copies])
        return delivery(self.place, self.left, copies, tuple(p for ps in self.proofs.values() for p in ps))


def _publish(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise errors.UsageError(f"{target} is a directory; a file of ours belongs there")
    os.replace(source, target)


def _remove_empty(top: Path) -> None:
    for folder, _dirs, _files in os.walk(top, topdown=False):
        os.rmdir(folder)


@contextlib.contextmanager
def _writable(target: Path) -> Iterator[None]:
    """Turn what a disk refuses into errors with advice. What was staged stays, so that the same command continues."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target))
        yield
    except OSError as error:
        safe = "Nothing that was here is lost; the result is still on the box."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise errors.NoSpace(
                f"the disk of {target.parent} is full",
                path=str(target.parent),
                safe=safe,
                next=[["outlive", "pull", target.name, "--to", "/another/disk"]],
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise errors.UsageError(
                f"{error.filename or target} cannot be written: {error.strerror}",
                safe=safe,
                next=[["outlive", "pull", target.name, "--to", "DIR"]],
            ) from error
        raise


@contextlib.contextmanager
def _alone(home: Home, target: Path, run: str) -> Iterator[None]:
    """Only one pull of this client writes into a target at a time."""
    locks = home.dir / "locks"
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(target)).hexdigest()[:24]
    fd = os.open(locks / f"pull-{name}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.Refused(
                f"another pull of {run} into {target} is going on",
                safe="It goes on; nothing was changed.",
                next=[["outlive", "pull", run, "--to", "DIR"]],
            ) from error
        yield
    finally:
        os.close(fd)


def _away(home: Home, run: Run, error: errors.PlaceError) -> errors.PlaceError:
    """Add to an error of the place what is here, and elsewhere, of the run already."""
    stand, lost = standing(run.copies)
    by_dir: dict[str, int] = {}
    for copy in stand:
        by_dir[copy["place"].partition(":")[2]] = by_dir.get(copy["place"].partition(":")[2], 0) + 1
    where = [f"{count} file(s) of {run.run} are here: {top}" for top, count in by_dir.items()]
    elsewhere: dict[str, int] = {}
    for copy in run.copies:
        if not here_path(copy):
            elsewhere[copy["place"]] = elsewhere.get(copy["place"], 0) + 1
    where += [f"{count} file(s) were copied to {top}" for top, count in elsewhere.items()]
    where += [f"not here any more: {path}" for path in lost[:5]]
    error.why += where or [f"nothing of {run.run} is here yet"]
    error.why.append(f"delivery as of the last look: {run.delivery or 'none'}")
    error.safe = error.safe or "What is here stays here; this says nothing about the run."
    return error
