"""What every part of one run's supervisor shares: files, spec, journal, view and payload."""

import errno
import json
import os
import sys
from typing import Any, Dict, List, Optional

from outlive.probes.process import machine_identity
from outlive.wire.clock import boot_s
from outlive.wire.journal import JournalWriter, read_all
from outlive.wire.names import BoxFiles, RunFiles
from outlive.wire.runview import RunView


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
        self.started_b = boot_s()

    @property
    def limits(self) -> Dict[str, Any]:
        limits: Dict[str, Any] = self.spec["limits"]
        return limits

    def record(self, kind: str, **fields: Any) -> Dict[str, Any]:
        """Append one record and fold it. On a full disk the reserve is given up for it.

        A record that cannot be written even then is kept in memory and tried again with the next
        one, so that the order in the file is the order of events.
        """
        while self.unwritten:
            waiting = self.unwritten[0]
            if not self._append(waiting["k"], waiting["fields"]):
                break
            self.unwritten.pop(0)
        if self.unwritten or not self._append(kind, fields):
            self.unwritten.append({"k": kind, "fields": fields})
            record = dict(fields, k=kind, b=boot_s(), w=0.0, n=self.view.last_n)
            self.view.add(record)
            return record
        return self._last

    def _append(self, kind: str, fields: Dict[str, Any]) -> bool:
        for _ in range(2):
            try:
                self._last = self.journal.append(kind, **fields)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
                    raise
                if not self.release_reserve():
                    return False
                continue
            if not fields.get("_folded"):
                self.view.add(self._last)
            return True
        return False

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
        """Hold a few bytes of disk for our own journal, when there is room for them."""
        size = int(self.limits["reserve_bytes"])
        if os.path.exists(self.run.reserve) or size <= 0:
            return
        try:
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
    return [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0])]


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """Return a JSON object from a file, or None when it is missing or not whole."""
    try:
        with open(path, "rb") as handle:
            data = json.loads(handle.read().decode("utf-8", "replace"))
    except (FileNotFoundError, ValueError):
        return None
    return data if isinstance(data, dict) else None
