"""One round of the soak: a real run on a box, one fault, and everything that must hold after it.

``Bench`` is a box of this machine without any connection; boxes that are reached over ssh are in ``sites.py``.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import work

from outlive import errors
from outlive.ledger import Run
from outlive.runs import demo_work as actual
from outlive.runs.adopt import adopt
from outlive.runs.ask import ask, stop
from outlive.runs.demo import in_the_way
from outlive.runs.down import down
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage
from outlive.runs.look import Mirror
from outlive.runs.place import Place, open_place
from outlive.runs.pull import pull
from outlive.runs.run import run as start_run
from outlive.runs.up import up
from outlive.runs.watch import once
from outlive.wire.journal import read_all
from outlive.wire.names import BoxFiles, RunFiles

STEPS, STEP_S = 40, 0.05
LIMITS = {"scan_s": 0.2, "sample_s": 0.5, "grace_s": 2.0}
CARGO = "cargo.bin"
"""What a fault puts into the project for its round."""
END_S = 240.0
"""A machine may be busy: what takes longer than this is counted as lost."""
_STEP = re.compile(rb"step (\d+)/\d+ loss \d\.\d{5}$")
PER_BOX = 8
"""Rounds on one box before it is purged, with every result home, and made anew."""


@dataclass
class Round:
    """What one round found. Everything but the times and ``unknowable`` must stay empty or zero."""

    number: int
    fault: str
    bench: str = "local"
    lost: list[str] = field(default_factory=list)
    false_words: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Log lines lost or doubled on their way to this client."""
    unproved_destroys: list[str] = field(default_factory=list)
    unknowable: list[str] = field(default_factory=list)
    """Damage that was called good and that nothing but the work could have told: see ``Case.could_be_known``."""
    broken: list[str] = field(default_factory=list)
    """Anything else that should not have happened: an error that is none of ours, a purge refused for no reason."""
    detect_s: float | None = None
    recover_s: float | None = None
    attempts: int = 0
    took_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Bench:
    """One box with its client, used for a few rounds."""

    kind = "local"
    pauses_s: tuple[float, ...] = (0.1, 0.3, 0.9)
    """Between two looks of a client."""
    step_s = STEP_S

    def __init__(self, base: Path) -> None:
        self.base = base
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        self.home = Home(base / "client")
        self.results: dict[str, Path] = {}
        self.spoilt = False
        """A result was damaged beyond the work's own repair, and that was said: this box is not purged."""
        self.place: Place
        self.files: BoxFiles
        self.begin()

    def begin(self) -> None:
        """Make the box and reach it."""
        root = str(self.base / "box")
        self.place = up(self.home, ["local:"], root=root, python=sys.executable, budget_s=2.0).place
        self.files = BoxFiles(root)

    def pid(self, pid: int) -> int:
        """Return the pid on this machine of a process that the box knows by ``pid``."""
        return pid

    def again(self) -> None:
        """A client with an empty state takes the box over."""
        self.place.close()
        shutil.rmtree(self.home.dir)
        self.home = Home(self.home.dir, self.home.ssh_config)
        self.place = self.adopt(self.home)

    def adopt(self, home: Home) -> Place:
        """Reach the box from another client."""
        return adopt(home, [f"local:{self.files.root}"], python=sys.executable, budget_s=2.0).place

    def refuses(self, found: Round, when: str) -> None:
        """``down --purge`` before everything is proved here: it must refuse, and nothing may be gone."""
        ended = down(
            self.home, self.place.name, pull_first=False, purge=True, created_here=[str(self.place.box.box_id)]
        )
        if ended.exit_code == 0 or not os.path.exists(self.files.dir):
            found.unproved_destroys.append(f"{when}: {ended.sentence}")

    def close(self, found: Round) -> None:
        """Purge with everything home: granted, and what is here stays."""
        ended = down(
            self.home, self.place.name, pull_first=False, purge=True, created_here=[str(self.place.box.box_id)]
        )
        if ended.exit_code != 0:
            found.broken.append(f"purge refused although all is home: {in_the_way(ended)}")
        for run, target in self.results.items():
            if _result(target / "result.json") != work.final(STEPS):
                found.lost.append(f"{run}: not here after the purge")

    def end(self) -> None:
        self.place.close()
        actual.end_processes(self.files)
        shutil.rmtree(self.base, ignore_errors=True)


def play(bench: Bench, seed: int, number: int, faults: dict[str, Callable[[Case], None]], only: str = "") -> Round:
    """Play one round. What goes wrong is in the answer; nothing is raised."""
    rng = random.Random(f"{seed}/{number}")
    name = rng.choice(sorted(faults))
    if only:
        name = only
    found = Round(number, name, bench.kind)
    began = time.monotonic()
    case = Case(bench, rng, found)
    try:
        case.play(faults[name])
    except Exception:  # the outer edge: a round that breaks is a result, and the soak goes on
        found.broken.append(traceback.format_exc()[-1500:])
    (bench.base / "project" / CARGO).unlink(missing_ok=True)
    found.took_s = round(time.monotonic() - began, 2)
    return found


def could_be_known(path: Path, said: list[dict[str, Any]]) -> bool:
    """Whether a checkpoint's damage can be told without knowing the work's own format: ``said`` are its run's records.

    It can when a look before had other bytes, when the file is no JSON any more, or when it has the very bytes of
    another one. A bit that flips inside a number before anybody looked is the work's own to find: it carries a digest.
    """
    digests = [r["sha256"] for r in said if r["path"] == f"ckpt/{path.name}"]
    if len(set(digests)) > 1:
        return True
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return True
    return any(r["sha256"] in digests for r in said if r["path"] != f"ckpt/{path.name}")


class Case:
    """A round in progress; faults act on it."""

    def __init__(self, bench: Bench, rng: random.Random, found: Round) -> None:
        self.bench, self.rng, self.found = bench, rng, found
        self.noise = rng.random() < 0.2
        self.at_step = rng.randrange(2, STEPS - 4)
        self.run = ""
        self.hurt_w: float | None = None
        """Wall time of the fault, where its detection can be timed."""
        self.kind = ""
        """``attempt`` or ``supervisor``: which record shows that it was noticed."""
        self.may_stop = False
        self.damaged: dict[Path, str] = {}
        """Files that we broke -> the digest they have since."""
        self.before_pull: Callable[[Path], None] | None = None
        self.after_pull: Callable[[Path], None] | None = None
        self.mode = ""
        """How the work behaves: a word of work.py."""
        self.no_result = False
        """The work leaves no result; that has to be seen."""
        self.all_home = False
        """The fault itself brought everything of an ended run here: a purge may be granted."""

    # -- what faults use ----------------------------------------------------------------------------

    @property
    def home(self) -> Home:
        return self.bench.home

    @property
    def files(self) -> RunFiles:
        return self.bench.files.run(self.run)

    @property
    def record(self) -> Run:
        return self.home.run_of(self.run)

    def hurt(self, kind: str) -> None:
        self.hurt_w, self.kind = time.time(), kind

    def look(self) -> dict[str, Any]:
        seen = once(self.home, self.record, wake_it=True)
        status = seen.status
        assert status is not None
        if status["state"] == "succeeded" and _result(Path(self.files.work) / "result.json") != work.final(STEPS):
            self.found.false_words.append("succeeded was said, and the result is not there")
        return status

    def work_pid(self) -> int:
        return self.bench.pid(int(actual.work(self.files)["pid"]))

    def supervisor_pid(self) -> int:
        return self.bench.pid(int(Path(self.files.supervisor).read_text().split()[0]))

    def keeper_pid(self) -> int:
        newest = self.files.attempt(int(actual.work(self.files)["attempt"]))
        return self.bench.pid(int(Path(newest.keeper).read_text().split()[0]))

    def client(
        self, verb: Callable[[], Any], die_after_s: float | None, die_when: Callable[[], bool] | None = None
    ) -> int:
        """Do something in a client of its own, which is killed after a while or at a moment; its wait status."""
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, 2)
                verb()
                os._exit(0)
            except BaseException:  # the child of a fork must never come back into the parent's code
                os._exit(1)
        if die_after_s is not None:
            end = time.monotonic() + die_after_s
            while time.monotonic() < end:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    return 0
                if die_when is not None and die_when():
                    break
                time.sleep(0.005)
            os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]

    def start(self) -> None:
        home = self.home
        place = open_place(home, home.box_of(self.bench.place.name))
        try:
            self.run = start_run(home, self.job, place, wait_s=0.5).run
        finally:
            place.close()

    @property
    def job(self) -> Job:
        project = self.bench.base / "project"
        if not project.exists():
            project.mkdir()
            shutil.copy(work.__file__, project / "train.py")
        words = ["python", "train.py", str(STEPS), str(self.bench.step_s)] + (["noise"] if self.noise else [])
        words += [self.mode] if self.mode else []
        return Job(
            name=f"r{self.found.number}",
            stages=(Stage("main", tuple(words)),),
            project=project,
            checkpoints="ckpt",
            roster=("result.json",),
            keep={"latest": 2, "best": 0},
            limits=LIMITS,
            retry_wait_s=0.1,
            retry_max=6,
        )

    # -- the round ----------------------------------------------------------------------------------

    def play(self, fault: Callable[[Case], None]) -> None:
        self.mode = getattr(fault, "mode", "")
        before = getattr(fault, "before_start", None)
        if before is not None:
            before(self)
        self.start()
        self.reach(self.at_step)
        if self.rng.random() < 0.15:
            self.bench.refuses(self.found, "while the run lives")
        fault(self)
        self.finish()
        self.check_journal()
        if self.rng.random() < 0.4 and not self.all_home:
            self.bench.refuses(self.found, "ended, nothing pulled")
        self.bring_home()
        self.check_lines()

    def reach(self, step: int) -> None:
        end = time.monotonic() + END_S
        while time.monotonic() < end:
            seen = points(self.files)
            if seen and seen[-1]["step"] >= step or os.path.exists(self.files.done):
                return
            time.sleep(0.03)
        raise errors.CheckFailed(f"step {step} was not reached")

    def finish(self) -> None:
        end = time.monotonic() + END_S
        while True:
            status = self.look()
            if status["ended"] and not status["supervised"]:
                break
            if time.monotonic() > end:
                raise errors.CheckFailed(f"no end: {json.dumps(status)[:600]}")
            time.sleep(self.rng.choice(self.bench.pauses_s))
        if self.no_result:
            self.bench.spoilt = True  # there is nothing to bring home, so nothing opens the gate
            if status["state"] not in ("suspect", "failed"):
                self.found.false_words.append(f"{status['state']} was said of work that left no result")
            return
        if status["state"] == "suspect" and self.still_damaged():
            self.bench.spoilt = True  # the last save itself was hit, after the work: "suspect" is the right word
        elif status["state"] != "succeeded":
            self.found.lost.append(f"ended {status['state']}: {status['why']}")
        if _result(Path(self.files.work) / "result.json") != work.final(STEPS):
            self.found.lost.append("the result on the box is not that of an undisturbed run")
        self.found.attempts = status["attempt"]
        self.time_it()

    def still_damaged(self) -> bool:
        return any(_digest(path) == digest for path, digest in self.damaged.items())

    def time_it(self) -> None:
        if self.hurt_w is None:
            return
        records = list(read_all(self.files.journal))
        noticed = [r["w"] for r in records if r["w"] > self.hurt_w and r["k"] == {
            "attempt": "attempt_ended", "supervisor": "supervisor"
        }[self.kind]]  # fmt: skip
        if noticed:
            self.found.detect_s = round(noticed[0] - self.hurt_w, 3)
        begun = [r["w"] for r in records if r["w"] > self.hurt_w and r["k"] == "attempt"]
        if self.kind == "attempt" and begun:
            later = [p["w"] for p in points(self.files) if p["w"] > begun[0]]
            if later:
                self.found.recover_s = round(later[0] - self.hurt_w, 3)

    def check_journal(self) -> None:
        records = list(read_all(self.files.journal))
        numbers = [r["n"] for r in records]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            self.found.broken.append(f"journal numbers: {numbers[:50]}")
        if sum(1 for r in records if r["k"] == "ended") != 1 and not self.may_stop:
            self.found.false_words.append("the end was said more than once")
        for path in Path(self.files.work, "ckpt").glob("step-*.json"):
            said = [r for r in records if r["k"] == "checkpoint" and r["path"] == f"ckpt/{path.name}"]
            if said and work.load(str(path)) is None and said[-1]["sha256"] == actual.sha256(path):
                self.judge(path, "was called good with the bytes that we broke")

    def judge(self, path: Path, words: str) -> None:
        """Note that damage was called good, unless its run says what is strange about it."""
        records = list(read_all(self.files.journal))
        if any(r["k"] == "trouble" and "the very bytes" in r["why"] and path.name in r["why"] for r in records):
            return
        known = could_be_known(path, [r for r in records if r["k"] == "checkpoint"])
        (self.found.false_words if known else self.found.unknowable).append(f"{path.name} {words}")

    def bring_home(self) -> None:
        target = self.bench.base / "results" / self.run
        if self.before_pull is not None:
            self.before_pull(target)
        got = pull(self.home, self.run, to=target)
        if self.no_result:
            if got.delivery == "proved":
                self.found.false_words.append("proved was said of a run without its result")
            self.bench.refuses(self.found, "the run left no result")
            return
        here = _result(target / "result.json")
        if got.delivery == "proved" and here != work.final(STEPS):
            self.found.false_words.append("proved was said, and another result is here")
        if here != work.final(STEPS):
            self.found.lost.append(f"pulled: {got.delivery} {got.wrong} {got.refuted}")
        if self.still_damaged():  # after the last proof, with no work left to mend it: "partial" is the right word
            self.bench.spoilt = True
            for path in self.damaged if got.delivery == "proved" else ():
                if any(entry["path"] == f"ckpt/{path.name}" for entry in got.entries):
                    self.judge(path, "came home as proved, and we had broken it")
        elif got.delivery != "proved":
            self.found.broken.append(f"a whole result came home as {got.delivery}: {got.wrong} {got.refuted}")
        if self.after_pull is not None:
            self.after_pull(target)
        self.bench.results[self.run] = target

    def check_lines(self) -> None:
        """The log as this client followed it over all its looks is that on the box, byte for byte."""
        box = self.same_lines(self.home)
        steps = [p["step"] for p in points(self.files)]
        said = [int(match[1]) for match in map(_STEP.match, box.splitlines()) if match]
        if sorted(steps) != sorted(said):
            self.found.lines.append(f"{len(said)} steps in the log, {len(steps)} in the metrics")

    def same_lines(self, home: Home) -> bytes:
        """Read the log to its end as a client does, and compare; return what is on the box."""
        mirror = Mirror(home, self.run, self.bench.place.box.box_id)
        size = -1
        while mirror.offsets()["log"] != size:
            size = mirror.offsets()["log"]
            once(home, home.run_of(self.run), wake_it=False)
        box = Path(self.files.log).read_bytes()
        here = mirror.path("log").read_bytes() if mirror.path("log").exists() else b""
        if box != here:
            there, mine = box.splitlines(), here.splitlines()
            self.found.lines.append(f"{len(there)} lines on the box, {len(mine)} here")
        return box


def _result(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _digest(path: Path) -> str:
    try:
        return actual.sha256(path)
    except OSError:
        return ""


def points(run: RunFiles) -> list[dict[str, Any]]:
    try:
        lines = Path(run.metrics).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # its last line may be half written
    return found


__all__ = ["END_S", "PER_BOX", "STEPS", "Bench", "Case", "Round", "ask", "play", "pull", "stop"]
