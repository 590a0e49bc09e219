"""``demo``: the whole life of a run on this machine, crash included, told in ten steps.

Nothing is acted: a real training is killed in the middle of a real save, and every step is done only
when a check of files, digests or processes says so. The first check that fails ends the demo.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.runs import demo_work as actual
from outlive.runs.demo_lookout import Lookout
from outlive.runs.demo_work import SAME, check, sha256, step_of
from outlive.runs.home import Home
from outlive.runs.job import Job
from outlive.runs.job import read as read_job
from outlive.runs.place import Place, open_place
from outlive.wire.names import BoxFiles, RunFiles

if TYPE_CHECKING:
    from outlive.runs.down import DownResult

VICTIM, TWIN = "tiny-char", "tiny-char-undisturbed"
KILL_TRIES = 4
AUDIT_S = 2.0
"""What is not read of this machine by then is unknown to the demo, and it needs little."""


@dataclass(frozen=True)
class Step:
    """One step of the story and the promise that its check stands for."""

    id: str
    title: str
    promise: str


STEPS = (
    Step("up", "a box", "a directory on this machine is enough; no server, no account"),
    Step("run", "push and run", "the work runs detached, on its own copy of the code"),
    Step("kill", "kill -9 in mid-save", "a save that is cut short never takes the place of a whole one"),
    Step("resume", "resumed", "killed work goes on from its newest good checkpoint, with nobody's help"),
    Step("forget", "client state deleted", "what this machine remembers may be lost; the box remembers"),
    Step("adopt", "adopted", "a new client takes over from the box alone"),
    Step("same", "identical end", "a killed and resumed run ends with the same bytes as one that nobody touched"),
    Step("refuse", "purge refused", "nothing is deleted before a copy of it is proved elsewhere"),
    Step("pull", "pulled and proved", "a copy counts when it was read back, with the digest made on the box"),
    Step("purge", "purge granted", "what is proved safe may go, and a receipt says what was where"),
)


@dataclass(frozen=True)
class Moment:
    """Something to show. ``kind``: begin, say, done, failed, point, mark.

    A point has ``series`` (``killed`` or ``undisturbed``), ``step`` and ``loss``; a mark is an event of the killed
    run at ``step``. Both have ``wall_s``. ``at_s`` counts from the beginning of the demo.
    """

    kind: str
    at_s: float
    id: str = ""
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


Show = Callable[[Moment], None]
Found = tuple[str, str]


@dataclass(frozen=True)
class Told:
    """The finished story: what each check found, and where the result is (gone after the demo, unless kept)."""

    took_s: float
    checks: dict[str, str]
    facts: dict[str, Any]
    result: Path


def play(base: Path, show: Show, *, fast: bool = False) -> Told:
    """Tell the story in the existing, empty directory ``base``. Uses no other state of outlive.

    Whatever happens, no process of the demo is left when this returns or raises; ``base`` stays, for the
    caller to remove. Raises CheckFailed naming the step and its promise.
    """
    story = Story(base, show, fast)
    try:
        return story.play()
    finally:
        with _deaf():
            story.close()
            actual.end_processes(story.box)


class Story:
    """Carries what one step learns to the next."""

    def __init__(self, base: Path, show: Show, fast: bool) -> None:
        self.base, self._show, self.fast = base, show, fast
        self.root, self.results = base / "box", base / "outlive-runs"
        self.home = Home(base / "client")
        self.began = time.monotonic()
        self.box = BoxFiles(str(self.root))
        self.place: Place | None = None
        self.lookout: Lookout | None = None
        self.created: set[str] = set()
        """Ids of boxes that this process made: only these may it approve a purge of."""
        self.ids: dict[str, str] = {}
        """Which run is the killed one, which the undisturbed one."""
        self.checks: dict[str, str] = {}
        self.facts: dict[str, Any] = {}

    def play(self) -> Told:
        for number, step in enumerate(STEPS, 1):
            self.step = step
            self.show("begin")
            try:
                text, detail = getattr(self, f"do_{step.id}")()
            except errors.OutliveError as error:
                self.show("failed", error.what)
                raise errors.CheckFailed(
                    f"step {number} of the demo ({step.title}) failed: {error.what}",
                    why=[f"the promise was: {step.promise}", *error.why],
                    safe="The demo ends its own processes and touches nothing of yours.",
                    next=[["outlive", "demo", "--keep"]],
                ) from error
            self.checks[step.id] = f"{text}; {detail}"
            self.show("done", text, detail=detail)
        return Told(time.monotonic() - self.began, self.checks, self.facts, self.results / self.ids[VICTIM])

    def show(self, kind: str, text: str = "", **facts: Any) -> None:
        self._show(Moment(kind, time.monotonic() - self.began, self.step.id, text, facts))

    def close(self) -> None:
        if self.lookout is not None:
            self.lookout.stop()
        if self.place is not None:
            self.place.close()

    def files(self, name: str) -> RunFiles:
        return self.box.run(self.ids[name])

    # -- the steps, in order: each returns what was found, in few words and in more ------------------

    def do_up(self) -> Found:
        from outlive.runs.up import up

        found = up(self.home, ["local:"], root=str(self.root), python=sys.executable, budget_s=AUDIT_S)
        self.place = found.place
        on_disk = Path(self.box.box_id).read_text("ascii").strip()
        check(found.new and on_disk == found.place.box.box_id, "the box that answers is not the one on disk")
        self.facts["box_id"] = on_disk
        self.created.add(on_disk)
        cores = found.place.box.facts.get("cores")
        known = f"{cores:g} cores, " if isinstance(cores, int | float) else ""
        return f"local: {known}Python {sys.version.split()[0]}", f"box id {on_disk[:8]} in {self.root}"

    def do_run(self) -> Found:
        from outlive.runs.run import run

        place = self.open()
        job = self.job()
        twin = run(self.home, replace(job, name=TWIN), place)
        started = run(self.home, job, place)
        self.ids = {VICTIM: started.run, TWIN: twin.run}
        self.watch(place)
        self.wait("neither run printed a loss", 60, lambda: all(self.points(name) for name in self.ids))
        check(
            not any(actual.is_child_of_ours(self.files(name)) for name in self.ids),
            "the work is a child of this process",
        )
        pids = [actual.work(self.files(name))["pid"] for name in self.ids]
        return (
            f"detached: pid {pids[0]}, and {pids[1]} to compare with",
            f"{started.run} and {twin.run}, not children of this process",
        )

    def do_kill(self) -> Found:
        from outlive.artifacts.structure import check as check_structure

        earliest = self.total // 3
        for _ in range(KILL_TRIES):
            self.show("say", "waiting for a save to begin")
            half = actual.save_under_way(self.files(VICTIM), earliest)
            number, pids = actual.kill_work(self.files(VICTIM))
            dead_wall_s = time.time()
            final = half.with_suffix("")
            if half.exists() and not final.exists():
                break
            self.show("say", "the save was finished a moment before the kill; again")
            self.wait_for_attempt(number + 1)
        else:
            raise errors.CheckFailed(f"the kill never hit the middle of a save in {KILL_TRIES} tries")
        whole = actual.checkpoints(self.files(VICTIM))
        evidence = self.base / "cut-short.json"
        shutil.copyfile(half, evidence)
        judged = check_structure(str(evidence))
        found = [f["text"] for f in judged.findings if f["code"] in ("truncated", "corrupt")]
        check(bool(found), f"{half.name} was whole after all ({evidence.stat().st_size} bytes)")
        check(bool(whole), "no whole checkpoint was there before the kill")
        step = step_of(half)
        self.facts.update(
            killed_at_step=step,
            killed_attempt=number,
            pids=pids,
            half_file=half.name,
            half_bytes=evidence.stat().st_size,
            whole_bytes=whole[-1].stat().st_size,
            resume_from=step_of(whole[-1]),
            finding=found[0],
        )
        self.show("mark", "kill -9", step=step, wall_s=dead_wall_s)
        sizes = f"{self.facts['half_bytes'] // 1000} of {self.facts['whole_bytes'] // 1000} kB"
        return f"pid {pids[0]} dead at step {step}, {sizes} written", f"{half.name}: {found[0]}"

    def do_resume(self) -> Found:
        killed, base_step = self.facts["killed_attempt"], self.facts["resume_from"]
        self.wait_for_attempt(killed + 1)
        self.wait("the next attempt printed nothing", 60, lambda: self.first_step_after(killed) is not None)
        ended = next(r for r in self.journal(VICTIM) if r["k"] == "attempt_ended" and r["attempt"] == killed)
        outcome = ended["outcome"]
        check(outcome["remedy"] == "resume", f"the end was classed {outcome['cls']}: {outcome['sentence']}")
        check(ended["evidence"]["signal"] == signal.SIGKILL, f"not seen as signal 9: {ended['evidence']}")
        first = self.first_step_after(killed)
        assert first is not None
        check(
            base_step < first <= base_step + 10,
            f"it went on at step {first}, and the newest whole checkpoint was {base_step}",
        )
        self.facts.update(outcome=outcome["cls"], sentence=outcome["sentence"])
        came_back = next(p["w"] for p in self.points(VICTIM) if p["w"] >= ended["w"])
        self.show("mark", "resumed", step=base_step, wall_s=came_back)
        return f"attempt {killed + 1} went on from step {base_step}", f"{outcome['cls']}: {outcome['sentence']}"

    def do_forget(self) -> Found:
        self.close()
        count = sum(1 for path in self.home.dir.rglob("*") if path.is_file())
        alive = [name for name in self.ids if actual.alive(self.files(name))]
        shutil.rmtree(self.home.dir)
        self.place = None
        check(not self.home.dir.exists(), f"{self.home.dir} is still there")
        self.home = Home(self.home.dir)
        check(not self.home.state().boxes, "the empty client knows a box")
        check(all(actual.alive_or_ended(self.files(name)) for name in alive), "work died with the client's state")
        gone = f"rm -r {self.home.dir} ({count} file{'s' if count != 1 else ''})"
        return f"ledger gone; {len(alive)} of 2 runs at work, untouched", gone

    def do_adopt(self) -> Found:
        from outlive.runs.adopt import adopt

        taken = adopt(self.home, [f"local:{self.root}"], python=sys.executable, budget_s=AUDIT_S)
        self.place = taken.place
        check(taken.place.box.box_id == self.facts["box_id"], "another box was adopted")
        found = {status["run"]: status for status in taken.runs}
        check(set(found) == set(self.ids.values()), f"runs found: {', '.join(sorted(found)) or 'none'}")
        check(set(self.home.state().runs) == set(found), "the new ledger does not list the runs")
        self.watch(taken.place)
        self.wait(
            "the box did not give back the curve",
            30,
            lambda: self.first_step_after(self.facts["killed_attempt"]) is not None,
        )
        now = found[self.ids[VICTIM]]
        return (
            f"by its address alone: 2 runs, one at attempt {now['attempt']}",
            f"{now['run']} {now['state']}; journal and curves came back from the box",
        )

    def do_same(self) -> Found:
        self.wait("the runs did not end", 240, lambda: all(self.status(name)["ended"] for name in self.ids))
        for name in self.ids:
            now = self.status(name)
            check(now["state"] == "succeeded", f"{now['run']} ended {now['state']}: {now['why']}")
        killed, whole = actual.digests(self.files(VICTIM)), actual.digests(self.files(TWIN))
        last, last_whole = actual.checkpoints(self.files(VICTIM))[-1], actual.checkpoints(self.files(TWIN))[-1]
        check(set(SAME) <= set(killed) and killed == whole, f"the results differ: {killed} and {whole}")
        check(
            last.name == last_whole.name and sha256(last) == sha256(last_whole),
            f"{last.name} differs: weights, optimizer or random numbers did not survive",
        )
        check(self.status(TWIN)["attempt"] == 1, "the undisturbed run was disturbed")
        self.facts.update(sha256=killed[SAME[0]], attempts=self.status(VICTIM)["attempt"])
        return (
            f"both end with sha256 {killed[SAME[0]][:16]}",
            f"{', '.join(SAME)} and {last.name} with optimizer and random numbers",
        )

    def do_refuse(self) -> Found:
        before = actual.digests(self.files(VICTIM))
        ended = self.purge(created_here=self.created)  # the leave alone, without proofs, opens nothing
        check(bool(before) and actual.digests(self.files(VICTIM)) == before, "files changed although it was refused")
        refusal = ended.refusal
        check(
            isinstance(refusal, errors.GateRefused),
            f"down --purge --no-pull ended with {ended.exit_code}: {ended.sentence}",
        )
        assert refusal is not None
        check(ended.exit_code == 3 and bool(refusal.why), f"refused with exit {ended.exit_code}: {refusal.why}")
        self.facts["refused_why"] = refusal.why
        return f"down --purge --no-pull: exit {ended.exit_code}, nothing changed", "; ".join(refusal.why)

    def do_pull(self) -> Found:
        from outlive.runs.pull import pull

        expected = actual.digests(self.files(VICTIM))
        pulled = {name: pull(self.home, run, to=self.results / run) for name, run in self.ids.items()}
        for result in pulled.values():
            check(
                result.exit_code == 0 and result.delivery == "proved",
                f"{result.run} is {result.delivery}: {result.wrong or result.refuted}",
            )
        killed = pulled[VICTIM]
        check({path: sha256(killed.dir / path) for path in SAME} == expected, "what is here is not what is on the box")
        levels = ", ".join(f"{count} to {level}" for level, count in sorted(killed.levels.items()))
        self.facts.update(delivery=killed.delivery, levels=killed.levels, pulled_bytes=killed.bytes)
        return (
            f"{len(killed.entries)} files, {killed.bytes / 1e6:.1f} MB, proved {levels}",
            f"{killed.dir}, and the undisturbed run beside it",
        )

    def do_purge(self) -> Found:
        expected = actual.digests(self.files(VICTIM))
        self.show("say", "no person is here: for this box of its own, and no other, the demo may say yes")
        recorded = actual.processes(self.box)
        done = self.purge(created_here=self.created)
        check(done.exit_code == 0, f"ended with {done.exit_code}: {in_the_way(done)}")
        check(not os.path.exists(self.box.dir), f"{self.box.dir} is still there")
        target = self.results / self.ids[VICTIM]
        check({path: sha256(target / path) for path in SAME} == expected, "the result did not survive the purge")
        check(done.receipt is not None and done.receipt.approval is not None, "no receipt was made")
        assert done.receipt is not None and done.receipt.approval is not None
        check(done.receipt.approval.by == "demo", f"the receipt says that {done.receipt.approval.by} approved")
        written = [path for path in done.receipt_paths if Path(path).is_relative_to(target) and os.path.getsize(path)]
        check(bool(written), f"no receipt lies beside the result: {done.receipt_paths}")
        actual.wait_gone(recorded)
        self.facts.update(approved_by=done.receipt.approval.by, receipt=os.path.relpath(written[0], target))
        return (
            "approved by the demo itself: it made this box",
            f"{self.box.dir} is gone; result and receipt are in {target}",
        )

    def purge(self, created_here: Collection[str] = ()) -> DownResult:
        """`outlive down BOX --purge --no-pull`, with no person at a terminal."""
        from outlive.runs.down import down

        return down(self.home, self.open().name, pull_first=False, purge=True, terminal=None, created_here=created_here)

    # -- what the steps stand on --------------------------------------------------------------------

    def job(self) -> Job:
        """The demo's project, copied out of the package, as a user's would lie in a directory."""
        project = self.base / "project"
        with resources.as_file(resources.files("outlive") / "demo_job") as source:
            shutil.copytree(source, project, ignore=shutil.ignore_patterns("__pycache__"))
        job = read_job(project / "outlive.toml")
        self.total = 600
        if self.fast:
            self.total = 240
            job = job.with_command(("python", "train.py", "--steps", str(self.total), "--save-every", "20"))
        return job

    def open(self) -> Place:
        if self.place is None:
            self.place = open_place(self.home, self.home.box_of(""))
        return self.place

    def watch(self, place: Place) -> None:
        def point(run: str, record: dict[str, Any]) -> None:
            series = "killed" if run == self.ids[VICTIM] else "undisturbed"
            self.show("point", series=series, step=record["step"], loss=record["loss"], wall_s=record["w"])

        self.lookout = Lookout(place, list(self.ids.values()), point)
        self.lookout.start()

    def status(self, name: str) -> dict[str, Any]:
        assert self.lookout is not None
        return self.lookout.status[self.ids[name]]

    def journal(self, name: str) -> list[dict[str, Any]]:
        assert self.lookout is not None
        return self.lookout.journal[self.ids[name]]

    def points(self, name: str) -> list[dict[str, Any]]:
        assert self.lookout is not None
        return self.lookout.points[self.ids[name]]

    def wait(self, else_what: str, limit_s: float, until: Callable[[], bool]) -> None:
        """Wait for what the lookout reports. Raises CheckFailed when it does not come, or a run ends badly."""
        end = time.monotonic() + limit_s
        while True:
            assert self.lookout is not None
            seen = self.lookout.seen
            if seen and until():
                return
            if self.lookout.trouble is not None:
                raise self.lookout.trouble
            bad = [s for s in self.lookout.status.values() if s["ended"] and s["state"] != "succeeded"]
            if bad:
                raise errors.CheckFailed(f"{bad[0]['run']} ended {bad[0]['state']}: {bad[0]['why']}")
            if time.monotonic() > end:
                raise errors.CheckFailed(f"{else_what} within {limit_s:.0f} s")
            time.sleep(0.05)

    def wait_for_attempt(self, number: int) -> None:
        self.wait(f"attempt {number} did not begin", 60, lambda: self.status(VICTIM)["attempt"] >= number)

    def first_step_after(self, attempt: int) -> int | None:
        """First step that a later attempt printed; its points come after the record of its start."""
        begun = [r["w"] for r in self.journal(VICTIM) if r["k"] == "attempt" and r["attempt"] > attempt]
        later = [p["step"] for p in self.points(VICTIM) if begun and p["w"] >= begun[0]]
        return int(later[0]) if later else None


def in_the_way(ended: DownResult) -> str:
    """Return what stood in the way of a `down`, with the names of what would be lost."""
    clauses = ended.decision.clauses if ended.decision is not None else ()
    items = [f"{item.path}: {item.why}" for clause in clauses if clause.state != "green" for item in clause.items]
    return "; ".join([ended.sentence, *items[:6]])


@contextmanager
def _deaf() -> Iterator[None]:
    """Do not let a second Ctrl-C end the clearing up; it is short and bounded."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
