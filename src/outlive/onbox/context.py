"""What every part of one run's supervisor shares: files, spec, journal, view and payload."""

import errno
import json
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from outlive.probes.disk import disk
from outlive.probes.process import machine_identity
from outlive.wire.clock import boot_s
from outlive.wire.journal import JournalWriter, read_all
from outlive.wire.names import BoxFiles, RunFiles
from outlive.wire.runview import RunView

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
"""Refusals of a file system that may pass: what could not be written is tried again."""


class Context:
    """The supervisor's shared state. ``record`` is the only way to the journal."""

    def __init__(self, run_dir: str, payload: Dict[str, Any]) -> None:
        self.run = RunFiles(run_dir)
        self.box = BoxFiles(os.path.dirname(os.path.dirname(os.path.dirname(run_dir))))
        with open(self.run.spec, "rb") as handle:
            self.spec: Dict[str, Any] = json.loads(handle.read().decode("utf-8"))
        self.payload = payload
        with open(self.box.box_id, "r") as text:
            self.box_id = text.read().strip()
        self.machine = machine_identity(self.box_id)
        self.view = RunView().add_all(read_all(self.run.journal))
        self.journal = JournalWriter(self.run.journal)
        self.unwritten: List[Dict[str, Any]] = []
        """Records that a full disk refused, in order; folded already, written as soon as there is room."""
        self.keepers: Dict[int, Tuple[int, int]] = {}
        """Attempt -> (pid, start ticks) of the keeper we started: the file that says so may not have found room."""
        self.started_b = boot_s()

    @property
    def limits(self) -> Dict[str, Any]:
        limits: Dict[str, Any] = self.spec["limits"]
        return limits

    def record(self, kind: str, sync: bool = True, **fields: Any) -> Dict[str, Any]:
        """Append one record and fold it. On a full disk the reserve is given up for it.

        A record that cannot be written even then is kept in memory and tried again with every tick, so that the
        order in the file is the order of events.
        """
        record = self.journal.make(kind, **fields)
        self.unwritten.append(record)
        self.flush(sync)
        self.view.add(record)
        return record

    def commit(self, kind: str, **fields: Any) -> Dict[str, Any]:
        """Append one record that must be on disk before what it announces is done. Raises OSError when it is not."""
        record = self.journal.make(kind, **fields)
        self.unwritten.append(record)
        if not self.flush():
            self.unwritten.remove(record)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.run.journal)
        self.view.add(record)
        return record

    def flush(self, sync: bool = True) -> bool:
        """Write what waits to be written. Returns whether nothing waits any more."""
        while self.unwritten:
            try:
                self.journal.write(self.unwritten[0], sync)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if not self.release_reserve():
                    return False
                continue
            self.unwritten.pop(0)
        return True

    def trouble(self, part: str, why: str) -> None:
        """Journal that a part of the supervisor met something unexpected, once for each part and reason."""
        if self.view.troubles.get(part) != why:
            self.record("trouble", part=part, why=why)

    def release_reserve(self) -> bool:
        """Give up the preallocated bytes once. Returns whether there was something to give."""
        try:
            os.unlink(self.run.reserve)
        except FileNotFoundError:
            return False
        except OSError:
            return False
        return True

    def keep_reserve(self) -> None:
        """Hold a few bytes of disk for our own journal, when there is room for them and more."""
        size = int(self.limits["reserve_bytes"])
        if size <= 0 or os.path.exists(self.run.reserve):
            return
        try:
            if (disk(self.run.dir).free_bytes or 0) < 4 * size:
                return  # taking the last bytes would be the fault that the reserve is there for
            with open(self.run.reserve, "wb") as handle:
                handle.write(b"\0" * size)
        except OSError:
            self.release_reserve()

    def state(self, state: str, why: str) -> None:
        """Journal a move of the run's state; the same state for the same reason is not repeated."""
        if (self.view.state, self.view.state_why) != (state, why):
            self.record("state", state=state, why=why)


def program() -> List[str]:
    """Return the words that start this same program again."""
    return [sys.executable, "-I", "-S", "-X", "utf8", os.path.abspath(sys.argv[0])]


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """Return a JSON object from a file, or None when it is missing or not whole."""
    try:
        with open(path, "rb") as handle:
            data = json.loads(handle.read().decode("utf-8", "replace"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return data if isinstance(data, dict) else None
