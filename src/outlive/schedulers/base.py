"""The contract of a scheduler: what turns a command into detached work on a box or in a queue.

What a caller may rely on, and every implementation must pass (``outlive.testing.scheduler``):

* **The same token is the same submission.** ``submit`` may be sent again after any failure, by any client, at any later
  time, with any spec: it answers with the run that the token made and creates nothing.
* **The same spec is the same run.** Under a new token a job and digest that are known here attach to the live run,
  resume the ended one, or are ``finished``. Another spec of a job that has not ended is refused with the differences
  (SpecDiffers) and changes nothing. After an end it is a new run.
* **Submitted is durable.** When ``submit`` has returned, the work needs no client: not its process, its
  connection or its memory.
* **The far end's word, now.** ``poll`` is an answer to its nonce, or Unreachable. Nothing that was heard earlier
  is ever returned as an answer.
* **Unknown is not a state change.** Trouble on the way says nothing about a run. A scheduler that cannot tell says
  ``unknown`` with the reason; it never says failed, ended or gone for want of an answer.
* **Ended stays ended** until somebody asks to go on (``submit`` of the same spec with a new token, or ``retry``).
* **Evidence, never a process.** A status tells how an attempt ended as an ``Outcome`` made from ``Evidence`` alone
  (``wire.values``), with the scheduler's own word where it has one. It holds no process number: a caller that
  cannot name a process cannot kill a stranger's.
* **Every byte once.** The parts of a run (journal, metrics, samples, log) are streams that only grow. A reader that
  asks from where it stopped sees each byte exactly once, whatever died in between.
* **Asking is harmless.** A request carries its own id; the same id twice is one request with one answer.
* **Not here is said.** What a place cannot do raises NotHere with the capability and the reason, before anything was
  done. Nothing is quietly skipped.
* **Secrets** travel in ``payload`` only: not in a spec, a status, a part, an error or an argument list.
* **Every wait has an end**, and whoever asks states it.

A scheduler keeps no state of its own between calls: two clients with empty memories see the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

CAPABILITIES: dict[str, str] = {
    "durable": "storage that the end of the place does not delete is there to copy to",
    "exec": "further commands can be run beside the work",
    "files": "the files of a run can be read; where `live_log` is missing, once it has ended",
    "live_log": "the log can be read while the work is alive; without it, after an attempt has ended",
    "meter": "what it costs can be stopped from here",
    "signal": "a request (stop, save now, extend, release) reaches work that is alive",
}
"""What a place may be able to do. Verbs ask for these; nothing asks what kind a place is."""

PARTS: tuple[str, ...] = ("journal", "metrics", "log", "samples")
"""The streams of a run. ``journal`` is always there: lines of ``wire.journal`` whose fold is the status."""

HOW: tuple[str, ...] = ("created", "attached", "resumed", "finished")
"""What a submission came to."""

REQUESTS: dict[str, str] = {
    "checkpoint": "signal",
    "extend": "signal",
    "release": "signal",
    "retry": "",
    "stop": "signal",
}
"""Kinds of request and the capability that each needs of a run whose work is alive.

A run that waits in a queue can be stopped everywhere: its submission is withdrawn.
"""

STATUS: dict[str, str] = {
    "run": "its id, chosen where it runs",
    "job": "the job's name",
    "token": "the intent that created it",
    "spec": "digest of its spec",
    "state": "a word of wire.states.RUN_STATES",
    "why": "the reason for the state, in words",
    "needs_wake": "nothing there will go on by itself until `wake`",
    "ended": "no further attempt will be started",
    "created_w": "wall clock there, s",
    "ended_w": "wall clock there, s; None while it has not ended",
    "work_alive": "True, False, or None where it cannot be told",
    "attempt": "number of the newest attempt; 0 before the first",
    "stage": "name of its stage",
    "step": "last step seen; None where no line told one",
    "outcome": "how the newest attempt ended: an Outcome with the evidence that decided; None while it lives",
    "log_bytes": "bytes of the log that can be read now",
    "journal_bytes": "bytes of the journal",
    "checkpoint": "the newest proved checkpoint, or None",
    "copied": "how many files are in the safe place",
    "alarms": "open alarms",
    "fenced": "who continued it elsewhere, or None",
    "first_line": "first line of the newest attempt's output",
    "secret_names": "variables whose values it needs; never values",
    "lineage": "the run that it continues, or None",
}
"""What every status holds. A scheduler may add more; readers ignore what they do not know."""

MANIFEST: dict[str, str] = {
    "manifest": "the roster with digests (wire.values.Manifest), None before there is one",
    "proofs": "digest to Proof",
    "copies": "copies in the safe place",
    "checkpoints": "committed and proved checkpoints",
    "tombstones": "what our retention removed",
    "spec": "the spec as it was submitted, completed",
    "status": "as by poll",
}
"""What ``manifest`` answers with, at the least."""

Status = dict[str, Any]
"""One run at one moment; keys as in ``STATUS``."""


@dataclass(frozen=True)
class Submitted:
    """What a submission came to: ``how`` is one of ``HOW``."""

    run: str
    how: str
    status: Status


@dataclass(frozen=True)
class Part:
    """A piece of a stream: its bytes from ``start``; ``size`` is how long the stream was when they were read."""

    start: int
    data: bytes
    size: int

    @property
    def end(self) -> int:
        """Where the next piece begins."""
        return self.start + len(self.data)


@dataclass(frozen=True)
class Polled:
    """One fresh answer. ``absent`` names the runs that were asked for and are not there."""

    head: dict[str, Any]
    """About the place: ``nonce`` as it was asked, ``wall_s`` there, ``box_id`` where it is a box."""
    statuses: dict[str, Status] = field(default_factory=dict)
    parts: dict[str, dict[str, Part]] = field(default_factory=dict)
    """Run to part to piece. A part that has no byte yet may be left out."""
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Reply:
    """The answer to a request. ``answer`` is ``{"ok", "text", ...}``, or None when none came in the time given."""

    answer: dict[str, Any] | None
    status: Status


class Scheduler(Protocol):
    """Detached work in one place.

    Every method raises PlaceError (4) for trouble of the way or the place and TimeOver (7); both say nothing about
    runs. A run that is not there raises UnknownName (2).
    """

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of ``CAPABILITIES`` that a run has here. Asks nobody."""
        ...

    def why_not(self, capability: str) -> str:
        """Return the reason why a capability is not here, as a part of a sentence; "" where it is. Asks nobody."""
        ...

    def submit(
        self, token: str, spec: Mapping[str, Any], payload: Mapping[str, Any], *, wait_s: float, hold: bool = False
    ) -> Submitted:
        """Create the run that a spec means, or find it; returns at its first sign of life or after ``wait_s``.

        ``token``: the client's intent. ``spec``: as ``wire.spec``. ``payload``: ``{"secrets": {name: value},
        "notify": [url]}``. ``hold`` creates without starting, so that files can be put into the work directory;
        ``wake`` starts it. Raises SpecDiffers; UsageError for a spec that cannot be executed; NotHere.
        """
        ...

    def wake(self, run: str, payload: Mapping[str, Any]) -> Status:
        """See to it that a run that has not ended goes on, and give it these secrets. Harmless for one that does."""
        ...

    def poll(
        self,
        runs: Mapping[str, Mapping[str, int]] | None,
        nonce: str,
        *,
        limit_bytes: int = 4 << 20,
        timeout_s: float = 20.0,
    ) -> Polled:
        """One exchange: the status of each run and its parts from the offsets asked for.

        ``runs``: run to part to offset; None is the status of all that is there, without parts. A negative offset means
        that many bytes from the end; one behind the end gives nothing, at the end. A piece holds at most
        ``limit_bytes``. Raises Unreachable when the answer is not to this ``nonce``.
        """
        ...

    def ask(self, run: str, request: Mapping[str, Any], *, wait_s: float) -> Reply:
        """Give a run a request ``{"id", "kind", ...}`` and wait a bounded time for the answer.

        Raises NotHere where ``REQUESTS`` names a capability that is not here, UsageError for a kind that
        does not exist. A request that was taken and not yet answered stays taken.
        """
        ...

    def fence(self, run: str, by: Mapping[str, Any]) -> Status:
        """Tell a run that it was continued elsewhere: no attempt of it is started here again."""
        ...

    def manifest(self, run: str, *, timeout_s: float = 120.0) -> dict[str, Any]:
        """Return what the run left, with digests and proofs; keys as in ``MANIFEST``.

        Raises NotHere (``files``) where files can be read only after the end and the run has not ended.
        """
        ...
