"""Runs in memory: what the scheduler twins share. A run's journal is real, and its status is the journal's fold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.diagnose.outcome import classify
from outlive.schedulers.base import PARTS, Part, Status
from outlive.testing.memory_work import MemoryWork
from outlive.wire.runview import RunView
from outlive.wire.states import OUTCOME_CLASSES
from outlive.wire.values import Entry, Evidence, Manifest, Proof

EPOCH_S = 1_800_000_000.0


@dataclass
class MemoryRun:
    """One run of a twin. Its place decides when an attempt starts; this records what happens to it."""

    id: str
    spec: dict[str, Any]
    held: bool = False
    queues: bool = False
    """It waits in a queue between attempts; otherwise it is started at once."""
    secrets: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    work: MemoryWork | None = None
    view: RunView = field(default_factory=RunView)
    journal: bytearray = field(default_factory=bytearray)
    log: bytearray = field(default_factory=bytearray)
    machine: str = "machine-1"
    now_s: float = 0.0
    _count: int = 0

    def record(self, kind: str, **fields: Any) -> None:
        """Write one record into the journal and fold it."""
        record = {"n": self._count, "k": kind, "b": self.now_s, "w": EPOCH_S + self.now_s, **fields}
        self._count += 1
        self.journal += json.dumps(record).encode() + b"\n"
        self.view.add(record)

    def state(self, state: str, why: str) -> None:
        """Record a state unless the run is in it."""
        if (self.view.state, self.view.state_why) != (state, why):
            self.record("state", state=state, why=why)

    # ---- the life of an attempt ----

    @property
    def lacks(self) -> list[str]:
        """Names of secrets that it needs and does not hold."""
        return [name for name in self.spec["secrets"]["names"] if name not in self.secrets]

    @property
    def wants_start(self) -> bool:
        """Whether an attempt is to be started as soon as there is room for it."""
        return not self.held and not self.view.ended and self.work is None and self.view.fenced is None

    def start(self) -> None:
        """Start the next attempt of the next stage."""
        stage = self.spec["stages"][len(self.view.stages_done)]
        number = len(self.view.attempts) + 1
        self.state("starting", "the scheduler started the work")
        self.record("attempt", attempt=number, stage=stage["name"], uuid=f"{self.id}/{number}", machine=self.machine,
                    log_from=len(self.log))  # fmt: skip
        self.work = MemoryWork(stage["run"], {**self.spec["env"], **self.secrets}, self.files)

    def advance(self, seconds: float) -> None:
        """Let time pass for the work, if there is any."""
        if self.work is None:
            return
        said = self.work.advance(seconds)
        self.log += said
        if said and not self.view.first_line:
            self.record("first_line", text=said.split(b"\n")[0].decode("utf-8", "replace"))
        if self.work.code is None:
            self.state("running", "the work is alive")
        else:
            self.finish(
                exit_code=self.work.code,
                signal=self.work.signal,
                exit_seen=True,
                our_stop="asked" if self.view.stopping() else "",
            )

    def finish(self, **evidence: Any) -> None:
        """End the attempt by this evidence, and go on as its class says: next stage, another attempt, or the end."""
        last = len(self.view.stages_done) + 1 == len(self.spec["stages"])
        ok, why = self._artifacts() if last else (True, "")
        given = Evidence(oom_kill_delta=0, artifacts_ok=ok, artifacts_why=why, **evidence)
        outcome = classify(given).to_wire()
        self.work = None
        self.record("attempt_ended", outcome=outcome, evidence=given.to_wire())
        cls, fenced = outcome["cls"], self.view.fenced is not None
        if cls == "succeeded":
            self.record("stage_done", stage=self.spec["stages"][len(self.view.stages_done)]["name"])
            if not last and not fenced:
                self.state("starting", "the next stage")
                return
        elif not fenced and outcome["remedy"] == "resume" and self.view.retries <= self.spec["retry"]["max"]:
            self.state("preempted" if self.queues else "starting", outcome["sentence"])
            return
        if fenced and not last:
            self.end("stopped", "the run was continued elsewhere")
            return
        self.end(cls if cls in ("succeeded", "suspect", "stopped") else "failed", outcome["sentence"], outcome)

    def end(self, state: str, why: str, outcome: Mapping[str, Any] | None = None) -> None:
        """Record the end of the run."""
        if state in ("succeeded", "suspect"):
            self.state("finishing", "digests and copies")
        final = outcome or {"cls": state, "remedy": OUTCOME_CLASSES[state], "sentence": why, "evidence": {}}
        self.record("ended", state=state, why=why, outcome=dict(final))

    def stop(self, by: str) -> None:
        """Our own stop: ends what lives, and the run."""
        self.record("stop_asked", reason="asked", why=f"asked by {by}", grace_s=0.0)
        if self.work is not None:
            self.work.end(15)
            self.advance(0.0)
        else:
            self.end("stopped", f"asked by {by}; nothing of it was running")

    def go_on(self, by: str) -> None:
        """Somebody asked an ended run to go on."""
        self.record("resumed", by=by)
        self.state("queued" if self.queues else "starting", "asked to go on")

    def _artifacts(self) -> tuple[bool, str]:
        roster = self.spec["artifacts"]["roster"]
        missing = [name for name in roster if name not in self.files]
        if missing:
            return False, f"missing: {', '.join(missing)}"
        return bool(self.files), "" if self.files else "no file was made"

    # ---- what a client sees ----

    def status(self, *, log_bytes: int, needs_wake: bool = False) -> Status:
        """Return the status, with as many bytes of the log as can be read now."""
        view, current = self.view, self.view.attempt
        return {
            "run": self.id,
            "job": view.job,
            "token": view.token,
            "spec": view.spec_digest,
            "state": view.state,
            "why": view.state_why,
            "needs_wake": needs_wake,
            "ended": view.ended,
            "created_w": view.created_w,
            "ended_w": view.ended_w,
            "work_alive": self.work is not None,
            "attempt": current.number if current is not None else 0,
            "stage": current.stage if current is not None else "",
            "step": current.last_step if current is not None else None,
            "outcome": view.final_outcome or (current.outcome if current is not None else None),
            "log_bytes": log_bytes,
            "journal_bytes": len(self.journal),
            "checkpoint": None,
            "copied": 0,
            "alarms": [],
            "fenced": view.fenced["by"] if view.fenced else None,
            "first_line": view.first_line if log_bytes else "",
            "secret_names": list(self.spec["secrets"]["names"]),
            "lineage": self.spec["lineage"],
        }

    def part(self, name: str, offset: int, limit_bytes: int, *, log_bytes: int) -> Part | None:
        """Return a piece of a stream, None where there is no such stream yet."""
        if name not in PARTS or name in ("metrics", "samples"):
            return None
        whole = bytes(self.journal) if name == "journal" else bytes(self.log[:log_bytes])
        start = max(0, len(whole) + offset) if offset < 0 else min(offset, len(whole))
        return Part(start, whole[start : start + limit_bytes], len(whole))

    def manifest(self, status: Status) -> dict[str, Any]:
        """Return what it left; frozen once it has ended."""
        entries = tuple(
            Entry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in sorted(self.files.items())
        )
        roster = self.spec["artifacts"]["roster"]
        found = Manifest(self.id, entries, not roster, self.view.ended, tuple(n for n in roster if n not in self.files))
        return {
            "manifest": found.to_wire(),
            "changed": [],
            "proofs": {e.sha256: Proof(e.sha256, e.bytes, "bytes").to_wire() for e in entries},
            "copies": [],
            "checkpoints": [],
            "tombstones": [],
            "drift": [],
            "work": f"memory:{self.id}",
            "spec": self.spec,
            "status": status,
        }
