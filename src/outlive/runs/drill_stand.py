"""Where a job is rehearsed: a directory of its own on this machine, or one on a box that is reached over ssh.

Both give the rehearsal the run's files to read. Here they are the box's own; of a box elsewhere they are this client's
copies, read on with every pause. The kills happen where the job is, so that the line's delay changes nothing.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from outlive import errors
from outlive.ledger import Box
from outlive.runs import demo_work as actual
from outlive.runs.home import Home
from outlive.runs.look import Mirror
from outlive.runs.place import Place, open_place
from outlive.wire.names import DIR, BoxFiles, RunFiles

AUDIT_S = 5.0
LOOK_S = 0.5
"""A pause is no shorter where each look is a round trip."""
PATIENCE_S = 60.0
"""How long a box that does not answer is asked again before a rehearsal on it is given up."""
CLEAR_S = 45.0
LEFT = "drill_left"


@dataclass(frozen=True)
class Struck:
    """One kill: of which attempt, when by the clock of the box, and whether a save was under way."""

    attempt: int
    wall_s: float
    in_save: bool


class Stand(Protocol):
    """What a rehearsal needs of its place."""

    home: Home
    place: Place | None
    lease_s: float | None
    """The runs end by themselves after so much work; None where nobody else could leave them behind."""

    def open(self) -> None:
        """Make the directory and reach it."""
        ...

    def files(self, run: str) -> RunFiles:
        """Return the run's journal, metrics and log, to be read now and after each pause."""
        ...

    def pause(self, run: RunFiles, seconds: float) -> None:
        """Wait, and have the run's files as they are then."""
        ...

    def kill(self, run: RunFiles, saves: str, limit_s: float) -> Struck | None:
        """Kill -9 the work; with ``saves`` when that directory changes, or after ``limit_s``. None if it was over."""
        ...

    def close(self) -> str:
        """End all that runs and remove the directory. Returns what is left, if anything is."""
        ...


class Here:
    """A directory of this machine. ``base`` is removed by its owner."""

    lease_s: float | None = None

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = Home(base / "client")
        self.box = BoxFiles(str(base / "box"))
        self.place: Place | None = None

    def open(self) -> None:
        from outlive.runs.up import up

        self.place = up(self.home, ["local:"], root=str(self.base / "box"), budget_s=AUDIT_S).place

    def files(self, run: str) -> RunFiles:
        return self.box.run(run)

    def pause(self, run: RunFiles, seconds: float) -> None:
        time.sleep(seconds)

    def kill(self, run: RunFiles, saves: str, limit_s: float) -> Struck | None:
        in_save = bool(saves) and save_begins(os.path.join(run.work, saves), run.done, limit_s)
        if os.path.exists(run.done) or not actual.alive(run):
            return None
        attempt, _ = actual.kill_work(run)
        return Struck(attempt, time.time(), in_save)

    def close(self) -> str:
        if self.place is not None:
            self.place.close()
        actual.end_processes(self.box)
        return ""


def save_begins(folder: str, done: str, limit_s: float) -> bool:
    """Wait for a directory to change: that is a save under way, or one that was just done."""
    before = _listing(folder)
    until = time.monotonic() + limit_s
    while time.monotonic() < until and not os.path.exists(done):
        if _listing(folder) != before:
            return True
        time.sleep(0.001)
    return False


def _listing(folder: str) -> set[tuple[str, int, int]]:
    found = set()
    try:
        for entry in os.scandir(folder):
            info = entry.stat(follow_symlinks=False)
            found.add((entry.name, info.st_size, info.st_mtime_ns))
    except OSError:
        pass  # not there yet, or changing while it is read: the next look tells
    return found


class There:
    """A directory of its own beside ours on a known box. The user's client lends its keys; its ledger is not touched
    but for a note of what could not be removed.
    """

    def __init__(self, base: Path, owner: Home, box: Box, lease_s: float) -> None:
        self.owner, self.box = owner, box
        self.lease_s: float | None = lease_s
        self.home = Home(base / "client", owner.ssh_config)
        self.root = f"{box.root.rstrip('/')}/outlive-drill-{os.urandom(4).hex()}"
        self.place: Place | None = None
        self.began = False

    def open(self) -> None:
        from outlive.runs.up import up
        from outlive.transport import hostkeys, keys
        from outlive.transport.agent import Agent

        known = open_place(self.owner, self.box)
        try:
            known.call("hello")  # this very box, or nothing is done
            self._clear_older(known)
            self.began = True
            hello = Agent(known.agent.exec, self.root, known.agent.python).call("hello")
        finally:
            known.close()
        # the new directory is another box by its id, on a machine whose keys are known: a stranger is refused
        self.home.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = hostkeys.lines_for(hostkeys.alias_for(self.box.box_id), self.owner.dir / "known_hosts")
        renamed = [f"{hostkeys.alias_for(hello['box_id'])} {line.split(' ', 1)[1]}\n" for line in lines]
        (self.home.dir / "known_hosts").write_text("".join(renamed))
        own = self.owner.dir / keys.NAME
        if own.exists():
            (self.home.dir / keys.NAME).symlink_to(own)
        python = str(self.box.facts.get("python") or "")
        self.place = up(self.home, [self.box.address], root=self.root, python=python, budget_s=AUDIT_S).place

    def _clear_older(self, known: Place) -> None:
        """Remove what an earlier rehearsal of this client had to leave here."""
        notes = self.owner.state().notes
        gone = {n.get("drill_cleared") for n in notes}
        for note in notes:
            root = str(note.get(LEFT) or "")
            if note.get("box") == self.box.name and root and root not in gone:
                _script(known, CLEAR, [root], CLEAR_S)
                self.owner.ledger.append("note", drill_cleared=root, box=self.box.name)

    def files(self, run: str) -> RunFiles:
        assert self.place is not None
        files = RunFiles(f"{self.root}/{DIR}/runs/{run}")
        mirror = Mirror(self.home, run, self.place.box.box_id)
        files.journal, files.metrics, files.log = (str(mirror.path(p)) for p in ("journal", "metrics", "log"))
        files.done = str(mirror.dir / "done")
        self.pause(files, 0.0)
        return files

    def pause(self, run: RunFiles, seconds: float) -> None:
        from outlive.runs.watch import once

        time.sleep(max(seconds, LOOK_S) if seconds else 0.0)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                seen = once(self.home, self.home.run_of(run.id))
            except (errors.PlaceError, errors.TimeOver):
                if time.monotonic() > until:
                    raise
                time.sleep(1.0)
                continue
            if seen.woke:
                raise errors.Unknown(
                    f"{self.box.name} was restarted in the middle of the rehearsal",
                    why=["what the job does after that says nothing about kill -9"],
                    safe="Nothing of yours was touched.",
                    next=[["outlive", "drill", "--on", self.box.name]],
                )
            if seen.status is not None and seen.status["ended"]:
                Path(run.done).touch()
            return

    def kill(self, run: RunFiles, saves: str, limit_s: float) -> Struck | None:
        assert self.place is not None
        words = [run.dir, saves, str(limit_s)]
        said = _script(self.place, KILL, words, limit_s + CLEAR_S)
        self.pause(run, LOOK_S)
        return Struck(said["attempt"], said["wall_s"], said["in_save"]) if said["killed"] else None

    def close(self) -> str:
        if not self.began:
            return ""
        self.began = False
        left = f"left on {self.box.name}: {self.root}"
        try:
            known = open_place(self.owner, self.box)
            try:
                if _script(known, CLEAR, [self.root], CLEAR_S)["gone"]:
                    return ""
            finally:
                known.close()
                if self.place is not None:
                    self.place.close()
        except errors.OutliveError as error:
            left += f" ({error.what})"
        self.owner.ledger.append("note", **{LEFT: self.root, "box": self.box.name})
        hours = (self.lease_s or 0.0) / 3600
        return f"{left}; what runs there ends by itself within {hours:.1f} h of work, the next drill there removes it"


def _script(place: Place, code: str, words: list[str], timeout_s: float) -> dict[str, Any]:
    """Run a small program on the box and return what it says."""
    argv = [place.agent.python, "-I", "-S", "-c", LOOKS + code, *words]
    done = place.agent.exec.run(argv, timeout_s=timeout_s)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if done.returncode != 0 or not lines:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise errors.BoxLacks(
            f"a drill cannot be held on {place.name}: {' '.join(said) or f'status {done.returncode}'}",
            place=place.name,
            lacks="/proc",
            safe="Nothing of yours was touched.",
            next=[["outlive", "drill"]],
        )
    found: dict[str, Any] = json.loads(lines[-1])
    return found


# What runs on the box: Python 3.8, Linux. It is sent as text, because nothing of ours that stays there kills anything.

LOOKS = r"""
import json, os, shutil, signal, sys, time
if not os.path.isdir("/proc/self"):
    sys.exit("it has no /proc")
def stats():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as f:
                    words = f.read().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(name)] = (int(words[1]), int(words[19]), words[0])
    return found
def tree(pid, ticks):
    seen = stats()
    if pid not in seen or seen[pid][1] != ticks or seen[pid][2] == "Z":
        return []
    pids, more = [pid], True
    while more:
        below = [p for p, s in seen.items() if s[0] in pids and p not in pids]
        pids, more = pids + below, bool(below)
    return pids
def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
def numbers(run):
    try:
        return sorted(int(n) for n in os.listdir(run + "/attempts") if n.isdigit())
    except OSError:
        return []
def work(run, number):
    try:
        with open("%s/attempts/%d/work.json" % (run, number)) as f:
            found = json.load(f)
        return tree(found["pid"], found["start_ticks"])
    except (OSError, ValueError, KeyError):
        return []
"""

KILL = r"""
run, saves, limit_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
def listing():
    found = set()
    try:
        for entry in os.scandir(os.path.join(run, "work", saves)):
            info = entry.stat(follow_symlinks=False)
            found.add((entry.name, info.st_size, info.st_mtime_ns))
    except OSError:
        pass
    return found
in_save, before, end = False, listing() if saves else None, time.monotonic() + limit_s
while saves and time.monotonic() < end and not os.path.exists(run + "/done") and not in_save:
    in_save = listing() != before
    time.sleep(0.001)
newest = (numbers(run) or [0])[-1]
pids = work(run, newest)
kill(pids)
wall_s = time.time()
end = time.monotonic() + 15
while work(run, newest) and time.monotonic() < end:
    time.sleep(0.002)
print(json.dumps({"attempt": newest, "killed": pids, "wall_s": wall_s, "in_save": in_save}))
"""

CLEAR = r"""
root = sys.argv[1]
if "/outlive-drill-" not in root:
    sys.exit("not a directory of a drill: " + root)
def above():
    seen, pid, found = stats(), os.getpid(), []
    while pid in seen and pid not in found:
        found.append(pid)
        pid = seen[pid][0]
    return found
mine = above()
def ours():
    found = []
    runs = root + "/.outlive/runs"
    for name in os.listdir(runs) if os.path.isdir(runs) else []:
        run = runs + "/" + name
        for number in numbers(run):
            found += work(run, number)
    for pid in stats():
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                if root.encode() in f.read() or os.readlink("/proc/%d/cwd" % pid).startswith(root):
                    found.append(pid)
        except OSError:
            pass
    return [pid for pid in found if pid not in mine]
quiet, end = 0, time.monotonic() + 20
while quiet < 2 and time.monotonic() < end:
    pids = ours()
    quiet = 0 if pids else quiet + 1
    kill(pids)
    time.sleep(0.1)
shutil.rmtree(root, ignore_errors=True)
print(json.dumps({"gone": not os.path.exists(root)}))
"""
