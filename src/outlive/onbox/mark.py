"""A mark of all that a poll's answer was made from, so that the next one can be "the same" without an interpreter.

``quick.sh`` makes the mark again from the same files and compares. What it cannot read again has no mark, and who has
none is answered in full: another boot, another first process, another box id; a file that grew, came, went or was
replaced; a supervisor, keeper or work that is not the same living process, or is stopped; a box lease; a system
without /proc. A file that changed in the second before the mark was made could change again unseen, so it has none
either; those that only grow are told by their size.
"""

import hashlib
import os
from typing import Any, Dict, List, Optional, Tuple

from outlive.probes import process
from outlive.wire.clock import wall_s
from outlive.wire.names import BoxFiles, RunFiles, write_aside

MAX_RUNS = 24
"""More make the command that asks longer than the answer that it saves."""
RACY_S = 2.0
GROWS = ("journal.jsonl", "log", "metrics.jsonl", "samples.jsonl")
FILES = GROWS + ("spec.json", "fence.json", "supervisor")
OF_ATTEMPT = ("work.json", "keeper", "exit")
ALIVE = "RSDI"
"""States of a process that counts as well; a stopped one is looked at closely."""


class Marker:
    """Made before the answer is read from the files, so that what changes meanwhile is seen the next time."""

    def __init__(self, box: BoxFiles, runs: List[str]) -> None:
        self.box = box
        self.runs = [(run, _newest(box.run(run))) for run in runs]
        self.up = _first_word("/proc/uptime")
        self.text = self._text() if self.up and len(runs) <= MAX_RUNS and not os.path.exists(box.lease) else None

    def mark(self, statuses: List[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
        """Return what ``quick.sh`` needs to answer this again, None where that cannot be promised."""
        if self.text is None or [(s["run"], s["attempt"]) for s in statuses] != self.runs:
            return None
        pids: List[str] = []
        for status in statuses:
            if status["needs_wake"] or status["state"] == "unknown":
                return None
            found = _pids(self.box.run(status["run"]), status)
            if found is None:
                return None
            pids += found
        script = _script(self.box)
        if script is None:
            return None
        return {
            "t": "mark",
            "mark": hashlib.sha256(self.text.encode("ascii")).hexdigest(),
            "pids": " ".join(pids),
            "runs": " ".join("%s/%d" % pair for pair in self.runs),
            "script": script,
            "up": self.up,
        }

    def _text(self) -> Optional[str]:
        boot, first = process.boot_id(), process.start_ticks(1)
        if not boot or first is None:
            return None
        with open(self.box.box_id) as text:
            lines = ["%s %d %s" % (boot, first, text.readline().strip())]
        names = ["runs"]
        for run, attempt in self.runs:
            names += ["runs/%s/%s" % (run, name) for name in FILES]
            names += ["runs/%s/attempts/%d/%s" % (run, attempt, name) for name in OF_ATTEMPT]
        now = wall_s()
        for name in names:
            try:
                info = os.stat(os.path.join(self.box.dir, name))
            except OSError:
                continue  # stat(1) leaves it out as well
            if name.rpartition("/")[2] not in GROWS and now - max(info.st_mtime, info.st_ctime) < RACY_S:
                return None
            times = (info.st_mtime_ns // 10**9, info.st_ctime_ns // 10**9)
            lines.append("%s %d %d %d %d" % ((name, info.st_size, info.st_ino) + times))
        return "\n".join(lines) + "\n"


def _newest(run: RunFiles) -> int:
    try:
        return max([int(name) for name in os.listdir(run.attempts) if name.isdigit()], default=0)
    except OSError:
        return 0


def _pids(run: RunFiles, status: Dict[str, Any]) -> Optional[List[str]]:
    """Return ``pid:ticks`` of every process that the status rests on; None where one is not as it should be."""
    wanted: List[Tuple[bool, str]] = [(bool(status["supervised"]), run.supervisor)]
    attempt = run.attempt(status["attempt"])
    wanted += [(bool(status["keeper_alive"]), attempt.keeper), (bool(status["work_alive"]), attempt.work)]
    found = []
    for alive, path in wanted:
        if not alive:
            continue
        try:
            with open(path) as text:
                raw = text.read()
            if path == attempt.work:
                import json

                identity = json.loads(raw)
                pid, ticks = int(identity["pid"]), int(identity["start_ticks"])
            else:
                pid, ticks = (int(word) for word in raw.split())
        except (OSError, ValueError, KeyError, TypeError):
            return None
        now = process.stat(pid)
        if now is None or now.ticks != ticks or now.state not in ALIVE:
            return None
        found.append("%d:%d" % (pid, ticks))
    return found


def _script(box: BoxFiles) -> Optional[str]:
    """Return the name of ``quick.sh`` in the box's directory, written there if it is not; None where that fails."""
    import pkgutil

    data = pkgutil.get_data("outlive.onbox", "quick.sh")
    if data is None:
        return None
    name = "quick-%s.sh" % hashlib.sha256(data).hexdigest()[:16]
    path = os.path.join(box.dir, name)
    try:
        if not os.path.exists(path) or os.path.getsize(path) != len(data):
            write_aside(path, data)
    except OSError:
        return None
    return name


def _first_word(path: str) -> str:
    try:
        with open(path) as text:
            return text.readline().split()[0]
    except (OSError, IndexError):
        return ""
