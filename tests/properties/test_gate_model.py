"""The gate over whole lives: runs that work, die, are cut off, spoilt, pulled, given up and asked for, in any order.

One law: nothing of a run is destroyed that is neither in a safe place, as it was at that moment, nor knowingly given
up. The runs are those of the in-memory twin; copies are real files, judged by the code that judges them for `down`.
"""

import dataclasses
import hashlib
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from outlive.errors import OutliveError
from outlive.gate import BoxClaims, Costs, RunClaims, SafePlace, Tier, Unclaimed, approval, decide, waiver
from outlive.runs.result import stamp, standing
from outlive.testing.memory_scheduler import MemoryPlace, MemoryScheduler
from outlive.wire.values import Copy, Entry, Manifest, Proof

BOX = "b1"
TIERS = (Tier("disk", "/", survives=False, survives_destroy=False, own_disk=True),)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Life(RuleBasedStateMachine):
    """One box that may be destroyed, its client, and somebody who answers."""

    runs = Bundle("runs")

    @initialize(target=runs, pauses=st.lists(st.sampled_from([0, 0, 2]), min_size=1, max_size=2))
    def rent(self, pauses):
        self.place = MemoryPlace(BOX)
        self.scheduler = MemoryScheduler(self.place)
        self.now_s = 1_800_000_000.0
        self.here = tempfile.mkdtemp(prefix="outlive-gate-")
        self.copies = {}
        self.given_up = {}
        """Waiver's decision digest -> what a person was shown as lost by it: {(run, path): digest}."""
        self.waivers, self.leaves = [], []
        self.destroyed = False
        self.tick = 0
        return multiple(*[self.run(pause, 0) for pause in pauses])

    def teardown(self):
        if hasattr(self, "here"):
            shutil.rmtree(self.here, ignore_errors=True)

    # -- what happens to the runs

    @precondition(lambda self: not self.destroyed and not self.place.cut)
    @rule(target=runs, pause=st.integers(0, 3), code=st.sampled_from([0, 0, 1]))
    def run(self, pause, code):
        number = len(self.place.runs)
        if number > 2:
            return multiple()
        line = f"echo begins; echo first {number} > out/a.json; sleep {pause}; echo second > out/b.json; exit {code}"
        spec = {"job": f"job{number}", "stages": [{"name": "main", "run": line}], "artifacts": {"roster": []}}
        return self.scheduler.submit(f"t{number}", spec, {}, wait_s=0.0).run

    @precondition(lambda self: not self.destroyed)
    @rule(seconds=st.sampled_from([0.5, 2.0, 400.0]))
    def time_passes(self, seconds):
        self.now_s += seconds
        self.scheduler.advance(seconds)

    @precondition(lambda self: not self.destroyed)
    @rule(run=runs)
    def kill(self, run):
        if self.place.runs[run].work is not None:
            self.place.runs[run].work.end(9)

    @precondition(lambda self: not self.destroyed and not self.place.cut)
    @rule(run=runs)
    def go_on(self, run):
        self.scheduler.wake(run, {})
        self.tick += 1
        self.scheduler.ask(run, {"id": f"r{self.tick}", "kind": "retry"}, wait_s=0.0)

    @precondition(lambda self: not self.destroyed)
    @rule()
    def restart(self):
        self.place.restart()

    @precondition(lambda self: not self.destroyed)
    @rule(cut=st.booleans())
    def line(self, cut):
        self.place.cut = cut

    @precondition(lambda self: not self.destroyed)
    @rule(run=runs, data=st.binary(min_size=1, max_size=4))
    def somebody_writes_on_the_box(self, run, data):
        self.place.runs[run].files["out/a.json"] = data

    @rule(which=st.integers(0, 9), lost=st.booleans())
    def a_copy_here_is_damaged(self, which, lost):
        if self.destroyed or not self.copies:
            return
        path = self._file(*sorted(self.copies)[which % len(self.copies)])
        if lost or not os.path.exists(path):
            if os.path.exists(path):
                os.unlink(path)
        else:
            self._write(path, bytes(byte ^ 1 for byte in open(path, "rb").read()))

    # -- what the client does

    @precondition(lambda self: not self.destroyed and not self.place.cut)
    @rule(run=runs, files=st.integers(1, 3))
    def pull(self, run, files):
        """A pull that was cut after so many files brought those."""
        left = self._left(run)
        for path, data in sorted(left.items())[: None if files == 3 else files]:
            self._write(self._file(run, path), data)
            copy = Copy(sha256(data), f"here:{self.here}", f"{run}/{path}", "cache", self.now_s).to_wire()
            self.copies[run, path] = dict(copy, stamp=stamp(self._file(run, path)))

    @precondition(lambda self: not self.destroyed and not self.place.cut)
    @rule()
    def pull_all(self):
        for run in self.place.runs:
            self.pull(run, files=3)

    @precondition(lambda self: not self.destroyed)
    @rule(numbers=st.one_of(st.just({1, 2, 3, 4, 5, 6}), st.sets(st.integers(1, 7), min_size=1, max_size=4)))
    def waive(self, numbers):
        """A person gives up what they are shown, and only then."""
        shown = decide(self._claims(), (), None, self.now_s)
        words = ",".join(map(str, sorted(n for n in numbers if shown.clause(n).state != "green")))
        try:
            given = waiver.parse(f"{BOX} lose {words}", shown, self.now_s, at_terminal=True)
        except OutliveError:
            return
        self.waivers.append(given)
        listed = {item.path for n in given.clauses for item in shown.clause(n).items}
        self.given_up[shown.digest] = (listed, self.place.cut, self._unsafe())

    @precondition(lambda self: not self.destroyed)
    @rule(kind=st.sampled_from(["now", "standing"]))
    def approve(self, kind):
        claims = self._claims()
        decision = decide(claims, self.waivers, None, self.now_s)
        try:
            until_s = self.now_s + 3600 if kind == "standing" else None
            leave = approval.mint(kind, f"a{len(self.leaves)}", decision, claims, self.now_s, True, until_s=until_s)
        except OutliveError:
            return
        self.leaves.append(leave)

    @precondition(lambda self: not self.destroyed and self.place.runs)
    @rule(fresh=st.booleans())
    def down(self, fresh):
        """The verb, with everything that was ever given; it needs a leave that holds now."""
        if fresh:
            self.approve("now")
        claims = self._claims()
        for leave in [None, *self.leaves]:
            decision = decide(claims, self.waivers, leave, self.now_s)
            if decision.verdict == "open":
                self._destroy(decision)
                return

    @precondition(lambda self: not self.destroyed and not self.place.cut)
    @rule(
        run=runs,
        meanwhile=st.sampled_from(
            ["", "write", "damage", "lose", "restart", "cut", "go on", "time", "kill", "another"]
        ),
        asked_first=st.booleans(),
        pulled=st.sampled_from(["all", "some", "none"]),
        seconds=st.sampled_from([0.0, 3.0]),
    )
    def an_evening(self, run, meanwhile, asked_first, pulled, seconds):
        """What people do, with one thing that comes between what was seen and the verb."""
        self.time_passes(seconds)
        if pulled == "all":
            self.pull_all()
        elif pulled == "some":
            self.pull(run, files=2)
        if asked_first:
            if pulled != "all":
                self.waive({1, 2, 3, 4, 5, 6})
            self.approve("standing")
            self.approve("now")
        if meanwhile == "write":
            self.somebody_writes_on_the_box(run, b"late")
        elif meanwhile in ("damage", "lose"):
            self.a_copy_here_is_damaged(len(self.copies) - 1, lost=meanwhile == "lose")
        elif meanwhile == "restart":
            self.restart()
        elif meanwhile == "cut":
            self.line(True)
        elif meanwhile == "go on":
            self.go_on(run)
        elif meanwhile == "time":
            self.time_passes(2.0)
        elif meanwhile == "kill":
            self.kill(run)
        elif meanwhile == "another":
            self.run(3, 0)
        self.down(fresh=not asked_first)

    # -- what must hold

    def _destroy(self, decision):
        self.destroyed = True
        counted = [w for w in decision.waivers]
        gone = {}
        for given in counted:
            listed, unseen, unsafe = self.given_up[given.items_digest]
            assert given.items_digest == decision.digest
            if unseen:
                assert {1, 2} <= set(decision.waived), "a box that nobody sees is given up whole or not at all"
                return
            gone.update(unsafe)
        for run in self.place.runs.values():
            asleep = run.id in self.place.asleep
            alive = run.work is not None or (not run.view.ended and not asleep)
            assert not alive or 1 in decision.waived, f"{run.id} was alive"
        for (run, path), digest in self._unsafe().items():
            assert gone.get((run, path)) == digest, f"{run}: {path} was in no safe place, and nobody gave it up"

    @invariant()
    def what_is_destroyed_is_destroyed_once(self):
        if hasattr(self, "destroyed") and not self.destroyed:
            assert decide(self._claims(), (), None, self.now_s).verdict != "open", "open without any leave"

    # -- the world as it is, and as the client sees it

    def _unsafe(self):
        """The truth: every file of every run of which no whole copy is here, with its digest on the box now."""
        found = {}
        for run in self.place.runs:
            for path, data in self._left(run).items():
                try:
                    whole = open(self._file(run, path), "rb").read() == data
                except OSError:
                    whole = False
                if not whole:
                    found[run, path] = sha256(data)
        return found

    def _left(self, run):
        found = self.place.runs[run]
        return {**found.files, "log": bytes(found.log)}

    def _claims(self):
        """What `down` would gather at this moment."""
        stand, _ = standing(list(self.copies.values()))
        copies = tuple(Copy.from_wire(copy) for copy in stand)
        claims = BoxClaims(
            box=BOX,
            action="destroy",
            provider_id="i-1",
            box_id="id1",
            tiers=TIERS,
            reachable=not self.place.cut,
            evidence_age_s=None if self.place.cut else 1.0,
            runs=None,
            places=(SafePlace(f"here:{self.here}", "local"),),
            processes=(),
            gpu_holders=(),
            unclaimed=Unclaimed(complete=True),
            costs=Costs(1.0, "USD"),
            danger_clocks=(),
        )
        if self.place.cut:
            return dataclasses.replace(claims, processes=None, gpu_holders=None, unclaimed=None)
        statuses = self.scheduler.poll(None, "n").statuses
        return dataclasses.replace(claims, runs=tuple(self._run_claims(s, copies) for s in statuses.values()))

    def _run_claims(self, status, copies):
        run = str(status["run"])
        answer = self.scheduler.manifest(run)
        manifest = Manifest.from_wire(answer["manifest"])
        log = bytes(self.place.runs[run].log)
        return RunClaims(
            run=run,
            state=status["state"],
            live=bool(status["work_alive"]),
            spec_digest=status["spec"],
            manifest=manifest,
            changed=(),
            drift=(),
            logs=(Entry("log", len(log), sha256(log), role="log"),),
            copies=tuple(c for c in copies if c.path.startswith(run + "/")),
            proofs=tuple(Proof(e.sha256, e.bytes, "bytes", "unknown") for e in manifest.entries),
        )

    def _file(self, run, path):
        return os.path.join(self.here, run, path)

    def _write(self, path, data):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(data)
        self.tick += 1
        os.utime(path, ns=(self.tick, self.tick))  # two writes within one tick of the disk's clock are still two


Life.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=25,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLife = Life.TestCase


def test_the_model_reaches_both_ends():
    """A law over lives in which nothing is ever destroyed would say nothing: this one is, and is refused before."""
    life = Life()
    life.rent(pauses=[])
    run = life.run(pause=0, code=0)
    life.time_passes(2.0)
    life.pull(run, files=1)
    life.down(fresh=True)
    assert not life.destroyed, "half a result was brought"
    life.pull(run, files=3)
    life.a_copy_here_is_damaged(0, lost=False)
    life.down(fresh=True)
    assert not life.destroyed, "a copy is damaged"
    life.somebody_writes_on_the_box(run, b"x")
    life.waive({2, 3})
    life.somebody_writes_on_the_box(run, b"y")
    life.down(fresh=True)
    assert not life.destroyed, "other content was given up"
    life.pull(run, files=3)
    life.approve("standing")
    life.time_passes(400.0)
    life.down(fresh=False)
    assert life.destroyed
    life.teardown()
