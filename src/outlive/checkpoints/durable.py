"""Copies at a place that outlives this machine: a path, or an rclone remote.

The same layout as the directory itself; there the record is written last, because on many such places a rename of
a directory is a copy. A copy counts when it was read back and has the digests of the record.
"""

import errno
import json
import os
import shutil
import subprocess
import tempfile
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from outlive.checkpoints.commit import FULL, NAME, Writing, full_disk, letters, replace_file, sync_path
from outlive.checkpoints.errors import Bad, CheckpointError, Damaged, DurableUnavailable, NoRoom, UnknownFormat
from outlive.checkpoints.index import survey
from outlive.checkpoints.readback import digest_from_storage
from outlive.checkpoints.record import RECORD, FileEntry, Record, parse_record, read_record
from outlive.checkpoints.room import need_room
from outlive.probes.disk import disk

REMOTE = "rclone:"


class There(NamedTuple):
    """What a durable place holds."""

    good: List[Tuple[str, Record]]
    """(name, record), complete by its sizes."""
    bad: List[Bad]


class Durable:
    """A durable place. Every method raises DurableUnavailable when the place cannot be used."""

    place = ""

    def look(self) -> There:
        """List the checkpoints that were committed there."""
        raise NotImplementedError

    def put(self, path: str, record: Record) -> str:
        """Copy a checkpoint there, read it back and commit it. Returns cache, storage or remote_hash.

        What an earlier try left is used. Raises Damaged when what is here does not have its digests any more.
        """
        raise NotImplementedError

    def fetch(self, name: str, record: Record, into: Writing) -> None:
        """Copy a checkpoint into a save that is under way here. Raises Damaged when it is not what was saved."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        """Remove a checkpoint there: the record first, so that half of it is never believed."""
        raise NotImplementedError


def open_durable(place: str, mount: Optional[str] = None) -> Durable:
    """Return the durable place that ``place`` names: an absolute path, or ``rclone:remote:path``."""
    if place.startswith(REMOTE):
        return RemotePlace(place[len(REMOTE) :])
    return PathPlace(os.path.abspath(os.path.expanduser(place)), mount)


class PathPlace(Durable):
    """A directory, usually on a mount of its own. With ``mount`` that path must be a mount point."""

    def __init__(self, path: str, mount: Optional[str] = None) -> None:
        self.place = path
        self.mount = mount

    def _there(self) -> None:
        if self.mount is not None and not os.path.ismount(self.mount):
            raise DurableUnavailable(self.place, "%s is not mounted" % self.mount)
        try:
            if not os.path.isdir(self.place):
                above = os.path.dirname(self.place)
                if not os.path.isdir(above):
                    raise DurableUnavailable(self.place, "%s is not there; is it mounted?" % above)
        except OSError as error:
            raise DurableUnavailable(self.place, error.strerror or str(error))

    def look(self) -> There:
        self._there()
        try:
            found, bad, _trace = survey(self.place)
        except OSError as error:
            raise DurableUnavailable(self.place, error.strerror or str(error))
        # a copy that was cut short has no record yet: it was never committed there
        bad = [one for one in bad if os.path.exists(os.path.join(one.where, RECORD))]
        return There([(name, record) for name, record, _pinned in found], bad)

    def put(self, path: str, record: Record) -> str:
        self._there()
        try:
            return self._put(path, record)
        except NoRoom as error:
            raise DurableUnavailable(self.place, error.what)
        except OSError as error:
            if error.errno in FULL:
                raise DurableUnavailable(self.place, full_disk(os.path.join(self.place, "x"), "the copy", 0).what)
            if error.errno == errno.EROFS:
                raise DurableUnavailable(self.place, "it is read-only")
            raise DurableUnavailable(self.place, error.strerror or str(error))

    def _put(self, path: str, record: Record) -> str:
        os.makedirs(self.place, exist_ok=True)
        name = self._name(record)
        target = os.path.join(self.place, name)
        need_room(self.place, self._lacking(target, record), len(record.files) + 2)
        os.makedirs(target, exist_ok=True)
        folders = {target}
        ways = {_copy_file(path, target, entry, folders) for entry in record.files}
        for folder in sorted(folders, key=len, reverse=True):
            sync_path(folder)
        replace_file(os.path.join(target, RECORD), record.to_json())
        sha256, direct = digest_from_storage(os.path.join(target, RECORD))
        if read_record(target) != record:
            raise DurableUnavailable(self.place, "the record that was written is not what is read there")
        sync_path(self.place)
        ways.add(direct)
        if all(ways):
            return "storage"
        if disk(self.place).network is not False:
            raise DurableUnavailable(
                self.place, "it is on a network file system that only answers from its cache; the copy cannot be proved"
            )
        return "cache"

    def _name(self, record: Record) -> str:
        """Return the folder for a record: the one that holds it or its beginning, else a new one."""
        number = 0
        while True:
            name = NAME % record.step + ("" if number == 0 else "-" + letters(number))
            target = os.path.join(self.place, name)
            if not os.path.lexists(os.path.join(target, RECORD)):
                return name
            try:
                if read_record(target).id == record.id:
                    return name
            except (Damaged, UnknownFormat):
                pass  # somebody's, and not whole: it is not ours to overwrite
            number += 1

    def _lacking(self, target: str, record: Record) -> int:
        lacking = 0
        for entry in record.files:
            try:
                there = os.path.getsize(os.path.join(target, entry.path))
            except OSError:
                there = -1
            lacking += 0 if there == entry.bytes else entry.bytes
        return lacking

    def fetch(self, name: str, record: Record, into: Writing) -> None:
        source = os.path.join(self.place, name)
        for entry in record.files:
            try:
                handle = open(os.path.join(source, entry.path), "rb")
            except FileNotFoundError:
                raise Damaged(source, "%s is missing" % entry.path)
            except OSError as error:
                raise DurableUnavailable(self.place, "%s: %s" % (entry.path, error.strerror or error))
            with handle, into.open(entry.path) as writer:
                while True:
                    try:
                        block = handle.read(1 << 20)
                    except OSError as error:
                        raise DurableUnavailable(self.place, "%s: %s" % (entry.path, error.strerror or error))
                    if not block:
                        break
                    writer.write(block)
            if writer.entry != entry:
                raise Damaged(source, "%s does not have the digest it was saved with" % entry.path)

    def remove(self, name: str) -> None:
        self._there()
        target = os.path.join(self.place, name)
        try:
            os.unlink(os.path.join(target, RECORD))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DurableUnavailable(self.place, error.strerror or str(error))
        shutil.rmtree(target, ignore_errors=True)


def _copy_file(source: str, target: str, entry: FileEntry, folders: "set[str]") -> bool:
    """Copy one file and read it back. Returns whether it was read past the cache."""
    final = os.path.join(target, entry.path)
    folder = os.path.dirname(final)
    while len(folder) > len(target):
        folders.add(folder)
        folder = os.path.dirname(folder)
    os.makedirs(os.path.dirname(final), exist_ok=True)
    if os.path.exists(final) and os.path.getsize(final) == entry.bytes:
        sha256, direct = digest_from_storage(final)
        if sha256 == entry.sha256:
            return direct
    aside = os.path.join(os.path.dirname(final), ".part-" + entry.sha256[:16])
    try:
        with open(os.path.join(source, entry.path), "rb") as read, open(aside, "wb") as write:
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            os.fsync(write.fileno())
        sha256, direct = digest_from_storage(aside)
        if sha256 != entry.sha256:
            here, _direct = digest_from_storage(os.path.join(source, entry.path))
            if here != entry.sha256:
                raise Damaged(source, "%s does not have the digest it was saved with" % entry.path)
            raise OSError(errno.EIO, "%s was read back different from what was written" % entry.path)
        os.replace(aside, final)
    except BaseException:
        try:
            os.unlink(aside)
        except OSError:
            pass  # the place is in trouble already; the next copy overwrites it
        raise
    return direct


class RemotePlace(Durable):
    """An rclone remote, driven through the ``rclone`` program."""

    def __init__(self, remote: str) -> None:
        self.remote = remote.rstrip("/")
        self.place = REMOTE + self.remote

    def look(self) -> There:
        sizes = self._sizes()
        names = sorted(
            {path.split("/", 1)[0] for path in sizes if path.endswith("/" + RECORD) and path.count("/") == 1}
        )
        good: List[Tuple[str, Record]] = []
        bad: List[Bad] = []
        for name in names:
            where = "%s/%s" % (self.place, name)
            try:
                record = parse_record(self._run(["cat", "--", "%s/%s/%s" % (self.remote, name, RECORD)]), where)
                for entry in record.files:
                    there = sizes.get("%s/%s" % (name, entry.path))
                    if there != entry.bytes:
                        said = "is missing" if there is None else "has %d bytes, %d were saved" % (there, entry.bytes)
                        raise Damaged(where, "%s %s" % (entry.path, said))
            except (Damaged, UnknownFormat) as error:
                bad.append(Bad(name, where, error.why))
                continue
            good.append((name, record))
        return There(good, bad)

    def _sizes(self) -> Dict[str, int]:
        done = self._call(["lsjson", "--recursive", "--files-only", "--no-modtime", "--", self.remote])
        if done.returncode == 3:  # rclone: directory not found
            return {}
        listing = json.loads(self._checked(done, "lsjson").decode("utf-8"))
        return {one["Path"]: int(one["Size"]) for one in listing}

    def put(self, path: str, record: Record) -> str:
        name = self._name(record)
        target = "%s/%s" % (self.remote, name)
        limit_s = 300.0 + record.bytes / 5e5
        self._run(
            ["copy", "--retries", "3", "--exclude", "/" + RECORD, "--exclude", "/pinned", "--", path, target], limit_s
        )
        read_back = self._read_back(path, target, record.files, limit_s)
        with tempfile.TemporaryDirectory() as folder:
            aside = os.path.join(folder, RECORD)
            with open(aside, "wb") as handle:
                handle.write(record.to_json())
            self._run(["copyto", "--retries", "3", "--", aside, target + "/" + RECORD])
        if self._run(["cat", "--", target + "/" + RECORD]) != record.to_json():
            raise DurableUnavailable(self.place, "the record that was written is not what is read there")
        return read_back

    def _name(self, record: Record) -> str:
        there = {name: other.id for name, other in self.look().good}
        number = 0
        while True:
            name = NAME % record.step + ("" if number == 0 else "-" + letters(number))
            if there.get(name, record.id) == record.id:
                return name
            number += 1

    def _read_back(self, path: str, target: str, files: Sequence[FileEntry], limit_s: float) -> str:
        here = {entry.path: entry.sha256 for entry in files}
        for entry in files:
            sha256, _direct = digest_from_storage(os.path.join(path, entry.path))
            if sha256 != entry.sha256:
                raise Damaged(path, "%s does not have the digest it was saved with" % entry.path)
        hashed = self._call(["hashsum", "sha256", "--", target], limit_s)
        way = "remote_hash"
        found = _hashes(hashed.stdout) if hashed.returncode == 0 else {}
        if not all(len(found.get(name, "")) == 64 for name in here):
            # a remote without sha256: md5 or whatever it has is compared by rclone itself, else all is downloaded
            checked = self._call(
                ["check", "--one-way", "--exclude", "/" + RECORD, "--exclude", "/pinned", "--", path, target], limit_s
            )
            said = checked.stderr.decode("utf-8", "replace")
            if checked.returncode == 0 and "hashes could not be checked" not in said:
                return way
            downloaded = self._run(["hashsum", "sha256", "--download", "--", target], limit_s)
            found, way = _hashes(downloaded), "storage"
        wrong = sorted(name for name, sha256 in here.items() if found.get(name) != sha256)
        if wrong:
            raise DurableUnavailable(self.place, "%s was read back different from what was written" % wrong[0])
        return way

    def fetch(self, name: str, record: Record, into: Writing) -> None:
        source = "%s/%s" % (self.remote, name)
        limit_s = 300.0 + record.bytes / 5e5
        self._run(
            ["copy", "--retries", "3", "--exclude", "/" + RECORD, "--exclude", "/pinned", "--", source, into.path],
            limit_s,
        )
        for entry in record.files:
            try:
                arrived = into.adopt(entry.path)
            except FileNotFoundError:
                raise Damaged("%s/%s" % (self.place, name), "%s is missing" % entry.path)
            if arrived != entry:
                raise Damaged(
                    "%s/%s" % (self.place, name), "%s does not have the digest it was saved with" % entry.path
                )

    def remove(self, name: str) -> None:
        target = "%s/%s" % (self.remote, name)
        self._call(["deletefile", "--", target + "/" + RECORD])
        self._run(["purge", "--", target])

    def _run(self, words: List[str], limit_s: float = 300.0) -> bytes:
        return self._checked(self._call(words, limit_s), words[0])

    def _call(self, words: List[str], limit_s: float = 300.0) -> "subprocess.CompletedProcess[bytes]":
        try:
            return subprocess.run(
                ["rclone"] + words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=limit_s,
            )
        except FileNotFoundError:
            raise DurableUnavailable(self.place, "rclone is not installed here")
        except subprocess.TimeoutExpired:
            raise DurableUnavailable(self.place, "rclone %s did not end within %d s" % (words[0], limit_s))

    def _checked(self, done: "subprocess.CompletedProcess[bytes]", word: str) -> bytes:
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise DurableUnavailable(self.place, "rclone %s: %s" % (word, said or "status %d" % done.returncode))
        return done.stdout


def _hashes(printed: bytes) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for line in printed.decode("utf-8", "surrogateescape").splitlines():
        sha256, _two, name = line.partition("  ")
        found[name] = sha256.strip()
    return found


__all__ = ["CheckpointError", "Durable", "PathPlace", "RemotePlace", "There", "open_durable"]
