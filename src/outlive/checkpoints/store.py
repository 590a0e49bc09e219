"""A checkpoint directory with its lock, index, retention and durable place: what a trainer holds."""

import fcntl
import json
import os
import shutil
import threading
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set

from outlive.checkpoints.commit import ASIDE, REMOVING, WRITING, Writing, publish_as, sync_path, token
from outlive.checkpoints.durable import Durable, open_durable
from outlive.checkpoints.errors import (
    Bad,
    CheckpointError,
    Damaged,
    DurableUnavailable,
    NewerFormat,
    NoGoodCheckpoint,
    NoRoom,
    UnknownFormat,
)
from outlive.checkpoints.index import PINNED, Entry, Index, load, refuse_newer, write
from outlive.checkpoints.lock import DirectoryLock
from outlive.checkpoints.record import INDEX, Record, clean_metrics, plain_config, read_record
from outlive.checkpoints.retention import Keep, choose_removed
from outlive.checkpoints.room import need_room
from outlive.checkpoints.verify import Verdict, verify_files
from outlive.wire.clock import boot_s, wall_s

KEEP_ASIDE = 2
"""So many damaged checkpoints stay, for a person to look at."""

RESTART_SEQ = 1000000
"""A restart on purpose counts on from the next multiple: newer than anything that may lie at a place out of reach."""


class Saved(NamedTuple):
    """A committed checkpoint in the directory."""

    name: str
    path: str
    record: Record

    def file(self, name: str) -> str:
        """Return the absolute path of a file of it."""
        return os.path.join(self.path, name)


class Candidate(NamedTuple):
    """A checkpoint that could be resumed from, and where it lies: here, at the durable place, or both."""

    record: Record
    local: Optional[str]
    durable: Optional[str]


class Store:
    """The one writer of a checkpoint directory.

    ``durable`` is an absolute path or ``rclone:remote:path``; ``mount`` a path that must be a mount point before that
    path is used; ``durable_keep`` the retention there (None: nothing is removed there).
    Use it as a context manager, or ``open`` and ``close``. One thread may write while others read.
    """

    def __init__(
        self,
        directory: str,
        keep: Optional[Keep] = None,
        durable: Optional[str] = None,
        mount: Optional[str] = None,
        durable_keep: Optional[Keep] = None,
        fsync: bool = True,
    ) -> None:
        self.directory = os.path.abspath(directory)
        self.keep = keep if keep is not None else Keep()
        self.durable: Optional[Durable] = open_durable(durable, mount) if durable else None
        self.durable_keep = durable_keep
        self.fsync = fsync
        self.notes: List[str] = []
        """What a person should be told about the last ``newest_good``."""
        self.set_aside: List[Bad] = []
        """What the last ``newest_good`` set aside."""
        self.index_trouble = ""
        """Why the index could not be written the last time; what it says is then rebuilt at the next start."""
        self._lock = DirectoryLock(self.directory)
        self._index = Index()
        self._inner = threading.RLock()
        self._rejected: Dict[str, str] = {}
        self._read_now: Set[str] = set()

    # ---- life ----

    def open(self) -> "Store":
        """Take the directory. Raises Locked, NewerFormat, or CheckpointError where it cannot be written at all."""
        try:
            os.makedirs(self.directory, exist_ok=True)
            self._lock.take()
        except OSError as error:
            raise CheckpointError(
                "checkpoints cannot be kept in %s: %s" % (self.directory, error.strerror or error),
                "Nothing was changed.",
                "Give a directory that this process may write.",
            )
        try:
            refuse_newer(self.directory)
            self._clear()
            self._index = load(self.directory, strict=True)
            if self._index.known:
                self._write()
        except BaseException:
            self._lock.release()
            raise
        return self

    def close(self) -> None:
        """Give the directory back. May be called twice."""
        self._lock.release()

    def __enter__(self) -> "Store":
        return self if self._lock.held else self.open()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    @property
    def entries(self) -> List[Entry]:
        """The index, oldest first."""
        return list(self._index.entries)

    @property
    def newest(self) -> Optional[Entry]:
        return self._index.newest

    def saved(self, name: str) -> Saved:
        """Return a checkpoint of the directory by its name. Raises Damaged or UnknownFormat."""
        path = os.path.join(self.directory, name)
        return Saved(name, path, read_record(path))

    # ---- saving ----

    def begin(self, step: int, expect_bytes: int = 0, expect_files: int = 8) -> Writing:
        """Begin a save. Raises NoRoom when the disk lacks bytes or inodes for it, even after retention ran.

        Without ``expect_bytes`` the size of the newest checkpoint is expected again.
        """
        self._ours()
        last = self.newest
        if not expect_bytes and last is not None:
            expect_bytes, expect_files = last.bytes, max(expect_files, last.files)
        try:
            need_room(self.directory, expect_bytes, expect_files)
        except NoRoom:
            if not self.prune():
                raise
            need_room(self.directory, expect_bytes, expect_files)
        return Writing.create(self.directory, step, self.fsync)

    def publish(
        self,
        writing: Writing,
        kind: str = "full",
        epoch: Optional[float] = None,
        tokens: Optional[int] = None,
        metrics: Optional[Dict[str, Any]] = None,
        made_by: Optional[Dict[str, Any]] = None,
        config: Optional[Dict[str, Any]] = None,
        extra: Optional[Dict[str, Any]] = None,
        milestone: bool = False,
    ) -> Saved:
        """Commit a save: record, rename, index. After it returns the checkpoint exists, whatever happens.

        On an error nothing was published and what was written is removed. Raises NoRoom, CheckpointError, OSError.
        """
        with self._inner:
            self._ours()
            try:
                record = Record(
                    id=token() + token(),
                    seq=self._index.next_seq,
                    step=int(writing.step),
                    time=wall_s(),
                    files=tuple(writing.files),
                    kind=kind,
                    epoch=epoch,
                    tokens=tokens,
                    metrics=clean_metrics(metrics),
                    made_by=dict(made_by or {}),
                    config=plain_config(config) if config else {},
                    extra=dict(extra or {}),
                    milestone=milestone,
                )
                return self._commit(writing, record)
            except BaseException:
                writing.abandon()
                raise

    def _commit(self, writing: Writing, record: Record, verified: Optional[Dict[str, Any]] = None) -> Saved:
        writing.seal(record)
        name = publish_as(writing.path, self.directory, record.step, self.fsync)
        entry = Entry.of(name, record)
        self._index.add(entry)
        if verified is not None:
            self._index.change(name, **verified)
        self._write()
        return Saved(name, os.path.join(self.directory, name), record)

    # ---- keeping ----

    def prune(self) -> List[str]:
        """Remove what the rule lets go. Returns the names. Never the last good one, the best, or what is leased."""
        with self._inner:
            self._ours()
            with _alone_with(os.environ.get("OUTLIVE_LEASES")):
                names = choose_removed(self._index.entries, self.keep, self._leased() | self._read_now)
                names = [name for name in names if name != self._only_copy_guard()]
                if names:
                    for name in names:
                        self._index.drop(name)
                    self._write()
                    for name in names:
                        self._remove(name)
                    if self.index_trouble:
                        self._write()  # there was no room for it before
            self._thin_aside()
            if self.durable is not None and self.durable_keep is not None:
                self._prune_durable(self.durable, self.durable_keep)
            return names

    def _only_copy_guard(self) -> Optional[str]:
        """Return the newest checkpoint that has its copy at the durable place: it stays until a newer one has."""
        if self.durable is None:
            return None
        copied = [entry.name for entry in self._index.entries if entry.durable is not None]
        return copied[-1] if copied else None

    def _prune_durable(self, durable: Durable, keep: Keep) -> None:
        there = durable.look()
        entries = [Entry.of(name, record) for name, record in there.good]
        pinned = {entry.id for entry in self._index.entries if entry.pinned}
        for name in choose_removed(entries, keep, [entry.name for entry in entries if entry.id in pinned]):
            durable.remove(name)

    def pin(self, name: str, pinned: bool = True) -> None:
        """Keep a checkpoint whatever the rule says, or no longer."""
        with self._inner:
            self._ours()
            if self._index.find(name) is None:
                raise CheckpointError("there is no checkpoint %s in %s" % (name, self.directory))
            marker = os.path.join(self.directory, name, PINNED)
            if pinned:
                fd = os.open(marker, os.O_WRONLY | os.O_CREAT, 0o644)
                os.write(fd, b"kept whatever the rule says\n")
                os.close(fd)
            elif os.path.exists(marker):
                os.unlink(marker)
            self._index.change(name, pinned=pinned)
            self._write()

    def _remove(self, name: str) -> None:
        aside = os.path.join(self.directory, REMOVING + name + "-" + token())
        try:
            os.rename(os.path.join(self.directory, name), aside)
        except FileNotFoundError:
            return
        shutil.rmtree(aside, ignore_errors=True)

    def _clear(self) -> None:
        """Remove what an earlier process left: unfinished saves and removals, an index that was not renamed."""
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if name.startswith((WRITING, REMOVING)):
                shutil.rmtree(path, ignore_errors=True)
            elif name.startswith("." + INDEX + "-"):
                try:
                    os.unlink(path)
                except OSError:
                    pass  # harmless, and met again at the next start
        self._thin_aside()

    def _thin_aside(self) -> None:
        kept = []
        for name in os.listdir(self.directory):
            if name.startswith(ASIDE):
                path = os.path.join(self.directory, name)
                kept.append((os.lstat(path).st_mtime_ns, path))
        for _mtime, path in sorted(kept)[:-KEEP_ASIDE]:
            shutil.rmtree(path, ignore_errors=True)

    def _leased(self) -> Set[str]:
        """Return names that a pull or a copy by the supervisor reads now (OUTLIVE_LEASES)."""
        folder, work = os.environ.get("OUTLIVE_LEASES"), os.environ.get("OUTLIVE_WORK")
        held: Set[str] = set()
        if not folder or not work:
            return held
        try:
            names = os.listdir(folder)
        except OSError:
            return held
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as handle:
                    lease = json.loads(handle.read().decode("utf-8"))
                if float(lease["until_b"]) <= boot_s():
                    continue
                paths = [os.path.join(work, path) for path in lease["paths"]]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            for path in paths:
                inner = os.path.relpath(os.path.realpath(path), os.path.realpath(self.directory))
                held.add(inner.split(os.sep)[0])
        return held

    # ---- proving and copying ----

    def verify(self, saved: Saved, level: str = "bytes", from_storage: bool = True) -> Verdict:
        """Read a checkpoint back and compare it; the result is noted in the index. Bad bytes are no exception."""
        with self._reading(saved.name):
            verdict = verify_files(saved.path, saved.record, level, from_storage)
        if verdict.ok is not None:
            self.mark(saved, verdict.level, verdict.ok, verdict.why)
        return verdict

    def mark(self, saved: Saved, level: str, ok: bool, why: str = "") -> None:
        """Note what a check found, for instance ``loaded`` by the torch half."""
        with self._inner:
            self._ours()
            self._index.change(saved.name, verified={"level": level, "ok": ok, "why": why, "time": wall_s()})
            self._write()

    def copy_out(self, saved: Saved) -> str:
        """Copy a checkpoint to the durable place and read it back. Returns cache, storage or remote_hash.

        Raises DurableUnavailable; Damaged when the bytes here are not what was saved.
        """
        if self.durable is None:
            raise CheckpointError("no durable place was given for %s" % self.directory, "Nothing was copied.")
        with self._reading(saved.name):
            read_back = self.durable.put(saved.path, saved.record)
        with self._inner:
            self._index.change(
                saved.name, durable={"place": self.durable.place, "read_back": read_back, "time": wall_s()}
            )
            self._write()
        return read_back

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Hold a checkpoint against our own retention, which another thread may run meanwhile."""
        with self._inner:
            self._read_now.add(name)
        try:
            yield
        finally:
            with self._inner:
                self._read_now.discard(name)

    def uncopied(self) -> List[Saved]:
        """Return the checkpoints that are not at the durable place yet, newest first."""
        if self.durable is None:
            return []
        found: List[Saved] = []
        for entry in reversed(self._index.entries):
            if entry.durable is None and not entry.bad:
                try:
                    found.append(self.saved(entry.name))
                except (Damaged, UnknownFormat):
                    continue
        return found

    # ---- resuming ----

    def candidates(self) -> List[Candidate]:
        """Return what is here and at the durable place, the newest (greatest ``seq``) first. No content is read."""
        return self._candidates([])

    def _candidates(self, bad: List[Bad]) -> List[Candidate]:
        found: Dict[str, Candidate] = {}
        for entry in self._index.entries:
            try:
                record = read_record(os.path.join(self.directory, entry.name))
            except (Damaged, UnknownFormat) as error:
                bad.append(Bad(entry.name, os.path.join(self.directory, entry.name), error.why))
                continue
            found[record.id] = Candidate(record, entry.name, None)
        if self.durable is not None:
            there = self.durable.look()
            bad.extend(there.bad)
            for name, record in there.good:
                mine = found.get(record.id)
                found[record.id] = Candidate(record, mine.local if mine else None, name)
                self._index.next_seq = max(self._index.next_seq, record.seq + 1)
        return sorted(found.values(), key=lambda one: (one.record.seq, one.local or one.durable or ""), reverse=True)

    def newest_good(
        self,
        level: str = "bytes",
        allow_restart: bool = False,
        check: Optional[Callable[[Saved], str]] = None,
    ) -> Optional[Saved]:
        """Return the newest checkpoint whose bytes are those that were saved; None if nothing was ever recorded.

        Damaged newer ones are set aside (``set_aside``, ``notes``). One that lies only at the durable place is
        fetched first. ``check`` may look further and returns what is wrong, "" for nothing. Raises NoGoodCheckpoint,
        unless ``allow_restart``: then None, and what follows counts as newer than all that was there.
        """
        with self._inner:
            self._ours()
            self.notes, self.set_aside = [], []
            bad: List[Bad] = list(self._index.bad)
            out_of_reach = False
            try:
                candidates = self._candidates(bad)
            except DurableUnavailable as error:
                durable, self.durable = self.durable, None
                try:
                    candidates = self._candidates(bad)
                finally:
                    self.durable = durable
                out_of_reach = True
                bad.append(Bad("durable place", error.place, error.why))
                self.notes.append("%s; only what is on this machine was looked at" % error.what)
            local_bad: List[Bad] = []
            for one in candidates:
                saved = self._good(one, level, check, bad, local_bad)
                if saved is not None:
                    self._put_aside(local_bad + [b for b in self._index.bad if self._lies_here(b)])
                    self._index.known = True
                    self._write()
                    return saved
            if not self._index.known and not candidates and not bad:
                return None
            if not allow_restart:
                raise NoGoodCheckpoint(self.directory, list(dict.fromkeys(bad)))
            self._put_aside(local_bad + [b for b in self._index.bad if self._lies_here(b)])
            if out_of_reach or self._index.known or candidates:
                self._index.next_seq = (self._index.next_seq // RESTART_SEQ + 1) * RESTART_SEQ
            self._index.known = True
            self._write()
            return None

    def _good(
        self,
        one: Candidate,
        level: str,
        check: Optional[Callable[[Saved], str]],
        bad: List[Bad],
        local_bad: List[Bad],
    ) -> Optional[Saved]:
        if one.local is not None:
            saved = Saved(one.local, os.path.join(self.directory, one.local), one.record)
            why = self._rejected.get(saved.path, "")
            verdict = Verdict(False, "none", why) if why else verify_files(saved.path, one.record, level)
            if verdict.ok and check is not None:
                said = check(saved)
                verdict = Verdict(False, "none", said) if said else verdict
            if verdict.ok:
                self._index.change(
                    saved.name, verified={"level": verdict.level, "ok": True, "why": "", "time": wall_s()}
                )
                return saved
            found = Bad(one.local, saved.path, verdict.why)
            bad.append(found)
            if verdict.ok is False:
                local_bad.append(found)
        if one.durable is not None and self.durable is not None:
            where = "%s/%s" % (self.durable.place, one.durable)
            try:
                fetched = self._fetch(self.durable, one)
            except (Damaged, DurableUnavailable) as error:
                bad.append(Bad(one.durable, where, error.why))
                self.notes.append("%s could not be fetched from %s: %s" % (one.durable, where, error.why))
                return None
            said = check(fetched) if check is not None else ""
            if not said:
                self.notes.append("%s was fetched from %s" % (fetched.name, self.durable.place))
                return fetched
            found = Bad(fetched.name, fetched.path, said)
            bad.append(found)
            local_bad.append(found)
        return None

    def _fetch(self, durable: Durable, one: Candidate) -> Saved:
        record = one.record
        assert one.durable is not None
        need_room(self.directory, record.bytes, len(record.files) + 2)
        writing = Writing.create(self.directory, record.step, self.fsync)
        try:
            durable.fetch(one.durable, record, writing)
            now = wall_s()
            known = {
                "verified": {"level": "bytes", "ok": True, "why": "", "time": now},
                "durable": {"place": durable.place, "read_back": "storage", "time": now},
            }
            return self._commit(writing, record, known)
        except BaseException:
            writing.abandon()
            raise

    def reject(self, saved: Saved, why: str) -> None:
        """Say that a checkpoint could not be loaded. ``newest_good`` then takes the next one and sets this aside."""
        with self._inner:
            self._rejected[saved.path] = why
            self.mark(saved, "none", False, why)

    def _lies_here(self, one: Bad) -> bool:
        return os.path.dirname(one.where) == self.directory and not os.path.basename(one.where).startswith(ASIDE)

    def _put_aside(self, bad: Iterable[Bad]) -> None:
        """Rename damaged checkpoints out of the way and remember why."""
        for one in dict.fromkeys(bad):
            aside = os.path.join(self.directory, ASIDE + one.name + "-" + token())
            try:
                os.rename(one.where, aside)
            except OSError as error:
                if os.path.lexists(one.where):
                    self.notes.append("%s is damaged (%s) and cannot be set aside: %s" % (one.name, one.why, error))
                continue
            moved = Bad(one.name, aside, one.why)
            self.set_aside.append(moved)
            self.notes.append("%s was set aside: %s" % (one.name, one.why))
            self._index.drop(one.name)
            self._index.bad = [b for b in self._index.bad if b.where != one.where] + [moved]
            self._rejected.pop(one.where, None)
        if self.fsync and self.set_aside:
            sync_path(self.directory)
        self._thin_aside()

    def _write(self) -> None:
        """Bring the index up to date. A disk that refuses it stops nothing: the records are the truth."""
        try:
            write(self.directory, self._index, self.fsync)
            self.index_trouble = ""
        except (OSError, NoRoom) as error:
            self.index_trouble = str(error)

    def _ours(self) -> None:
        if not self._lock.held:
            raise CheckpointError(
                "the store of %s is not open in this process" % self.directory,
                "Nothing was changed.",
                "Open it first; a forked process has to open its own.",
            )


@contextmanager
def _alone_with(leases: Optional[str]) -> Iterator[None]:
    """Who looks at what is held and then removes it does so alone: a pull takes the same lock for its lease."""
    fd = -1
    try:
        if leases:
            fd = os.open(leases, os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass  # no leases here, or a file system without locks
    try:
        yield
    finally:
        if fd >= 0:
            os.close(fd)


__all__ = ["Candidate", "NewerFormat", "NoGoodCheckpoint", "Saved", "Store"]
