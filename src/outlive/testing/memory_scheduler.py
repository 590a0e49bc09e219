"""The in-memory twin of a box with our supervisor: work starts at once, its log is live, requests reach it.

No real time passes: ``advance`` moves the clock. Faults: ``place.cut`` (nothing answers), ``place.restart()`` (every
process is gone, and nothing goes on until a client comes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from outlive.errors import NotHere, SpecDiffers, UnknownName, Unreachable, UsageError
from outlive.schedulers.base import REQUESTS, Part, Polled, Reply, Status, Submitted
from outlive.testing.memory_runs import EPOCH_S, MemoryRun
from outlive.wire import spec as specs
from outlive.wire.names import new_run_id


@dataclass
class MemoryPlace:
    """What is there, whoever looks. Several schedulers over one place are several clients of it."""

    name: str = "memory"
    runs: dict[str, MemoryRun] = field(default_factory=dict)
    now_s: float = 0.0
    cut: bool = False
    machine: int = 1
    asleep: set[str] = field(default_factory=set)
    """Runs that nobody looks after since the restart."""

    def restart(self) -> None:
        """Let the machine restart: keeper, supervisor and work die at once."""
        self.machine += 1
        self.asleep = {run.id for run in self.runs.values() if not run.view.ended}


class MemoryScheduler:
    """``base.Scheduler`` over a MemoryPlace."""

    CAPABILITIES: ClassVar[frozenset[str]] = frozenset({"exec", "files", "live_log", "signal"})
    BECAUSE: ClassVar[dict[str, str]] = {
        "durable": "memory ends with its process",
        "meter": "nothing bills in memory",
    }
    QUEUES: ClassVar[bool] = False

    def __init__(self, place: MemoryPlace | None = None) -> None:
        self.place = place or MemoryPlace()

    @property
    def capabilities(self) -> frozenset[str]:
        """See ``base.Scheduler.capabilities``."""
        return self.CAPABILITIES

    def why_not(self, capability: str) -> str:
        """See ``base.Scheduler.why_not``."""
        return "" if capability in self.CAPABILITIES else self.BECAUSE[capability]

    # ---- the contract ----

    def submit(
        self, token: str, spec: Mapping[str, Any], payload: Mapping[str, Any], *, wait_s: float, hold: bool = False
    ) -> Submitted:
        """See ``base.Scheduler.submit``."""
        self._reach()
        try:
            whole = specs.complete(dict(spec))
        except ValueError as error:
            raise UsageError(f"{self.place.name}: {error}", safe="Nothing was started.") from error
        digest = specs.digest(whole)
        of_job = [r for r in self.place.runs.values() if r.view.job == whole["job"]]
        made = [r for r in of_job if r.view.token == token]
        same = made or [r for r in of_job if r.view.fenced is None]
        newest = same[-1] if same else None
        if newest is not None and not made and newest.view.spec_digest != digest:
            if not newest.view.ended:
                raise SpecDiffers(
                    f"{newest.id} is {newest.view.state}, and this job has another spec",
                    why=specs.differences(newest.spec, whole),
                    safe="The run goes on unchanged.",
                )
            newest = None
        if newest is None:
            run = self._create(whole, digest, token, hold)
            how = "created"
        else:
            run, how = newest, self._go_on(newest, token)
        if not hold:
            self._bring(run, payload)
        return Submitted(run.id, how, self._status(run))

    def wake(self, run: str, payload: Mapping[str, Any]) -> Status:
        """See ``base.Scheduler.wake``."""
        found = self._run(run)
        self._bring(found, payload)
        return self._status(found)

    def poll(
        self,
        runs: Mapping[str, Mapping[str, int]] | None,
        nonce: str,
        *,
        limit_bytes: int = 4 << 20,
        timeout_s: float = 20.0,
    ) -> Polled:
        """See ``base.Scheduler.poll``."""
        self._reach()
        head = {"nonce": nonce, "wall_s": EPOCH_S + self.place.now_s, "box_id": self.place.name}
        wanted: Mapping[str, Mapping[str, int]] = dict.fromkeys(self.place.runs, {}) if runs is None else runs
        statuses: dict[str, Status] = {}
        parts: dict[str, dict[str, Part]] = {}
        for name, offsets in wanted.items():
            run = self.place.runs.get(name)
            if run is None:
                continue
            statuses[name] = self._status(run)
            for part, offset in offsets.items():
                piece = run.part(part, offset, limit_bytes, log_bytes=self._log_bytes(run))
                if piece is not None:
                    parts.setdefault(name, {})[part] = piece
        return Polled(head, statuses, parts, frozenset(wanted) - frozenset(statuses))

    def ask(self, run: str, request: Mapping[str, Any], *, wait_s: float) -> Reply:
        """See ``base.Scheduler.ask``."""
        found = self._run(run)
        kind = request.get("kind")
        if kind not in REQUESTS:
            raise UsageError(f"no request is called {kind!r}", safe="Nothing was asked.")
        if request["id"] not in found.view.answers:
            if found.work is not None and REQUESTS[kind]:
                self._need(REQUESTS[kind], f"{kind} {run}")
            ok, text = self._answer(found, kind, request)
            found.record("answered", id=request["id"], asked=kind, ok=ok, text=text)
        return Reply(found.view.answers[request["id"]], self._status(found))

    def fence(self, run: str, by: Mapping[str, Any]) -> Status:
        """See ``base.Scheduler.fence``. Work that cannot be signalled ends by itself; nothing follows it."""
        found = self._run(run)
        if found.view.fenced is None:
            found.record("fenced", by=dict(by))
            if not found.view.ended and (found.work is None or "signal" in self.capabilities):
                found.stop("the run moved")
        return self._status(found)

    def manifest(self, run: str, *, timeout_s: float = 120.0) -> dict[str, Any]:
        """See ``base.Scheduler.manifest``."""
        found = self._run(run)
        if "live_log" not in self.capabilities and not found.view.ended:
            raise NotHere.of(f"files of {run}", "files", "they can be read once it has ended", place=self.place.name)
        return found.manifest(self._status(found))

    # ---- time ----

    def advance(self, seconds: float = 1.0) -> None:
        """Let time pass in the place."""
        self.place.now_s += seconds
        for run in list(self.place.runs.values()):
            run.now_s = self.place.now_s
            if run.id not in self.place.asleep:
                self._step(run, seconds)

    def _step(self, run: MemoryRun, seconds: float) -> None:
        if run.work is None and run.wants_start:
            self._start(run)
        run.advance(seconds)

    def _start(self, run: MemoryRun) -> None:
        if run.lacks:
            run.state("waiting", f"secrets are not here: {', '.join(run.lacks)}")
        else:
            run.start()

    # ---- pieces ----

    def _create(self, spec: dict[str, Any], digest: str, token: str, hold: bool) -> MemoryRun:
        name = new_run_id(spec["job"], EPOCH_S)
        run = MemoryRun(name, spec, hold, self.QUEUES, now_s=self.place.now_s)
        run.record("created", run=name, job=spec["job"], token=token, spec=digest, lease_max_s=spec["lease"]["max_s"])
        self.place.runs[name] = run
        return run

    def _go_on(self, run: MemoryRun, token: str) -> str:
        if run.view.token == token:
            return "attached"
        if run.view.ended and run.view.state == "succeeded":
            return "finished"
        if not run.view.ended:
            return "attached"
        # the token is the request's id: sent twice it is one wish to go on
        self.ask(run.id, {"id": f"retry-{token}", "kind": "retry", "by": "submit"}, wait_s=0.0)
        return "resumed"

    def _bring(self, run: MemoryRun, payload: Mapping[str, Any]) -> None:
        """Give a run its secrets, and somebody who looks after it."""
        run.secrets.update(payload.get("secrets") or {})
        run.held = False
        if run.view.ended:
            return
        if run.id in self.place.asleep:
            self.place.asleep.discard(run.id)
            run.machine = f"machine-{self.place.machine}"
            if run.work is not None:
                run.finish(machine_changed=True)
        self._step(run, 0.0)

    def _answer(self, run: MemoryRun, kind: str, request: Mapping[str, Any]) -> tuple[bool, str]:
        if kind == "stop":
            if run.view.ended:
                return True, f"the run has already ended: {run.view.state}"
            run.stop(str(request.get("by", "a client")))
            return True, "stopped"
        if kind == "retry":
            if not run.view.ended:
                return True, "the run is going on"
            if run.view.state == "succeeded":
                return True, "the run has succeeded; nothing to do"
            if run.view.fenced is not None:
                return False, "the run moved away from here"
            run.go_on(str(request.get("by", "a client")))
            self._step(run, 0.0)
            return True, "going on"
        if kind == "extend":
            if run.view.lease_max_s is None:
                return False, "this run has no lease; nothing ends it but itself"
            limit_s = request.get("max_s") or run.view.lease_max_s + float(request.get("add_s") or 0.0)
            run.record("lease", max_s=limit_s, used_s=run.view.lease_used_s)
            return True, f"the run may use {limit_s:.0f} s in all"
        if kind == "checkpoint":
            return run.work is not None, "asked" if run.work is not None else "nothing is running"
        return False, "the run is not hung"

    def _status(self, run: MemoryRun) -> Status:
        asleep = run.id in self.place.asleep and not run.view.ended
        status = run.status(log_bytes=self._log_bytes(run), needs_wake=asleep)
        if asleep:
            status.update(state="preempted", why="the machine restarted", work_alive=False)
        return status

    def _log_bytes(self, run: MemoryRun) -> int:
        return len(run.log)

    def _run(self, name: str) -> MemoryRun:
        self._reach()
        if name not in self.place.runs:
            raise UnknownName.of("run", name, self.place.runs)
        return self.place.runs[name]

    def _need(self, capability: str, wanted: str) -> None:
        if self.why_not(capability):
            raise NotHere.of(wanted, capability, self.why_not(capability), place=self.place.name)

    def _reach(self) -> None:
        if self.place.cut:
            raise Unreachable(f"{self.place.name} did not answer", place=self.place.name)
