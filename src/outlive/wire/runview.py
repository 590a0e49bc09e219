"""A run as its journal tells it: the fold that the supervisor, ``poll`` and the client share.

The fold is a claim about the past. What is true now is added by ``poll`` from processes and files;
``RunView.state`` alone is never shown as "now".
"""

from typing import Any, Dict, Iterable, List, Optional


class Attempt:
    """One start of one stage's command."""

    def __init__(self, number: int, stage: str, uuid: str, started_b: float, machine: str) -> None:
        self.number = number
        self.n = -1
        """Sequence number of its record: what was asked later has a greater one, on any clock."""
        self.stage = stage
        self.uuid = uuid
        self.started_b = started_b
        self.started_w = 0.0
        self.machine = machine
        self.host = ""
        """Its machine's name; empty in records of earlier versions."""
        self.ended = False
        self.ended_b: Optional[float] = None
        self.outcome: Optional[Dict[str, Any]] = None
        self.evidence: Dict[str, Any] = {}
        self.checkpoints = 0
        self.first_step: Optional[int] = None
        self.last_step: Optional[int] = None
        self.oom_kill_start: Optional[int] = None
        self.log_from = 0
        """Size of the log when the attempt began."""


class RunView:
    """Everything the journal says of a run. Feed records in order with ``add``."""

    def __init__(self) -> None:
        self.run = ""
        self.job = ""
        self.token = ""
        self.spec_digest = ""
        self.machine = ""
        self.state = "starting"
        self.state_why = ""
        self.state_w = 0.0
        self.created_w = 0.0
        self.ended_w: Optional[float] = None
        self.attempts: List[Attempt] = []
        self.stages_done: List[str] = []
        self.stage_failed = ""
        """The first stage that failed; ``always`` stages that failed after it are in ``stages_failed`` too."""
        self.stages_failed: List[str] = []
        self.final_outcome: Optional[Dict[str, Any]] = None
        self.stop_asked: Optional[Dict[str, Any]] = None
        self.checkpoints: Dict[str, Dict[str, Any]] = {}
        """Path of a committed checkpoint -> its last ``checkpoint`` record."""
        self.bad_checkpoints: Dict[str, Dict[str, Any]] = {}
        self.proofs: Dict[str, Dict[str, Any]] = {}
        self.copies: List[Dict[str, Any]] = []
        self.copy_failed: Dict[str, str] = {}
        self.tombstones: List[str] = []
        self.alarms: Dict[str, Dict[str, Any]] = {}
        self.answers: Dict[str, Dict[str, Any]] = {}
        self.lease_max_s: Optional[float] = None
        self.lease_used_s = 0.0
        self.retries = 0
        """Consecutive attempts of the stage without a new committed checkpoint."""
        self.then: Optional[Dict[str, Any]] = None
        """What was done after the end, the last word of it."""
        self.fenced: Optional[Dict[str, Any]] = None
        self.roster: Optional[Dict[str, Any]] = None
        self.last_n = -1
        self.first_line = ""
        self.notices: List[Dict[str, Any]] = []
        self.log_gaps: List[Dict[str, Any]] = []
        self.delivery = "none"
        self.troubles: Dict[str, str] = {}
        """Part of the supervisor that met something unexpected -> what."""
        self.resumed_n = -1
        """Sequence number of the last time that a person asked an ended run to go on."""
        self._highest: Dict[str, int] = {}
        self._digests: Dict[str, bool] = {}

    @property
    def attempt(self) -> Optional[Attempt]:
        """The newest attempt, or None before the first."""
        return self.attempts[-1] if self.attempts else None

    @property
    def ended(self) -> bool:
        return self.ended_w is not None

    def add_all(self, records: Iterable[Dict[str, Any]]) -> "RunView":
        for record in records:
            self.add(record)
        return self

    def add(self, r: Dict[str, Any]) -> None:
        """Fold one record. Kinds of a newer minor version are ignored, and so is a number that was folded before."""
        n = r.get("n")
        if n is not None:
            if int(n) <= self.last_n:
                return  # written twice because the first write was not confirmed
            self.last_n = int(n)
        fold = getattr(self, "_on_" + str(r["k"]), None)
        if fold is not None:
            fold(r)

    def _on_created(self, r: Dict[str, Any]) -> None:
        self.run, self.job, self.token = r["run"], r["job"], r.get("token", "")
        self.spec_digest = r["spec"]
        self.created_w = r["w"]
        self.lease_max_s = r.get("lease_max_s")

    def _on_state(self, r: Dict[str, Any]) -> None:
        self.state, self.state_why, self.state_w = r["state"], r.get("why", ""), r["w"]

    def _on_attempt(self, r: Dict[str, Any]) -> None:
        attempt = Attempt(r["attempt"], r["stage"], r["uuid"], r["b"], r["machine"])
        attempt.n = int(r.get("n", -1))
        attempt.started_w = r["w"]
        attempt.host = r.get("host", "")
        attempt.oom_kill_start = r.get("oom_kill")
        attempt.log_from = int(r.get("log_from", 0))
        self.attempts.append(attempt)
        self.first_line = ""
        self.machine = r["machine"]

    def _on_first_line(self, r: Dict[str, Any]) -> None:
        self.first_line = r.get("text", "")

    def _on_progress(self, r: Dict[str, Any]) -> None:
        if self.attempt is not None:
            if self.attempt.first_step is None:
                self.attempt.first_step = r.get("step")
            self.attempt.last_step = r.get("step")

    def _on_attempt_ended(self, r: Dict[str, Any]) -> None:
        attempt = self.attempt
        if attempt is None:
            return
        attempt.ended, attempt.ended_b = True, r["b"]
        attempt.outcome, attempt.evidence = r.get("outcome"), r.get("evidence", {})
        attempt.last_step = r.get("last_step", attempt.last_step)
        self.lease_used_s = r.get("lease_used_s", self.lease_used_s)
        cls = (r.get("outcome") or {}).get("cls")
        if cls in ("succeeded", "hung_exit"):
            self.retries = 0
        elif attempt.checkpoints:
            self.retries = 0
        else:
            self.retries += 1

    def _on_stage_done(self, r: Dict[str, Any]) -> None:
        self.stages_done.append(r["stage"])
        self.retries = 0

    def _on_stage_failed(self, r: Dict[str, Any]) -> None:
        self.stages_failed.append(r["stage"])
        if not self.stage_failed:
            # what a later `always` stage does wrong must not hide why the run failed
            self.stage_failed = r["stage"]
            self.final_outcome = r.get("outcome")

    def _on_resumed(self, r: Dict[str, Any]) -> None:
        """A person asked an ended run to go on with the same spec."""
        self.then = None
        self.ended_w, self.final_outcome, self.stage_failed, self.stop_asked = None, None, "", None
        if self.state == "suspect" and self.stages_done:
            self.stages_done.pop()  # its artifacts were refuted: it has to run again
        self.stages_failed = []
        self.resumed_n = int(r.get("n", -1))
        self.retries = 0
        self.notices = []
        self.roster = None

    def _on_stop_asked(self, r: Dict[str, Any]) -> None:
        self.stop_asked = r

    def _on_checkpoint(self, r: Dict[str, Any]) -> None:
        self.bad_checkpoints.pop(r["path"], None)
        self.checkpoints[r["path"]] = r
        if r["path"] in self.tombstones:
            self.tombstones.remove(r["path"])
        attempt = self.attempt
        if attempt is not None and self._is_new(attempt.stage, r):
            attempt.checkpoints += 1
            if attempt.ended:
                self.retries = 0

    def _is_new(self, stage: str, r: Dict[str, Any]) -> bool:
        """Whether a checkpoint is progress: other bytes than any before, and a higher step where steps are known.

        Work that dies after saving again what it had just loaded does not advance, whatever bytes that save has.
        """
        digest, step = str(r.get("sha256")), r.get("step")
        fresh = digest not in self._digests
        self._digests[digest] = True
        if step is None:
            return fresh
        higher = int(step) > self._highest.get(stage, -1)
        self._highest[stage] = max(int(step), self._highest.get(stage, -1))
        return fresh and higher

    def _on_checkpoint_bad(self, r: Dict[str, Any]) -> None:
        self.checkpoints.pop(r["path"], None)
        self.bad_checkpoints[r["path"]] = r

    def _on_checkpoint_gone(self, r: Dict[str, Any]) -> None:
        self.checkpoints.pop(r["path"], None)

    def _on_proof(self, r: Dict[str, Any]) -> None:
        self.proofs[r["proof"]["sha256"]] = r["proof"]

    def _on_copy(self, r: Dict[str, Any]) -> None:
        self.copies.append(r["copy"])
        self.copy_failed.pop(r["copy"]["path"], None)
        self.copy_failed.pop(r.get("of", ""), None)

    def _on_copy_failed(self, r: Dict[str, Any]) -> None:
        self.copy_failed[r["path"]] = r["why"]

    def _on_pruned(self, r: Dict[str, Any]) -> None:
        for path in r["paths"]:
            if path not in self.tombstones:
                self.tombstones.append(path)
            self.checkpoints.pop(path, None)

    def _on_alarm(self, r: Dict[str, Any]) -> None:
        if r.get("cleared"):
            self.alarms.pop(r["alarm"], None)
        else:
            self.alarms[r["alarm"]] = r

    def _on_trouble(self, r: Dict[str, Any]) -> None:
        self.troubles[r["part"]] = r.get("why", "")

    def _on_answered(self, r: Dict[str, Any]) -> None:
        self.answers[r["id"]] = r

    def _on_lease(self, r: Dict[str, Any]) -> None:
        self.lease_max_s = r.get("max_s", self.lease_max_s)
        self.lease_used_s = r.get("used_s", self.lease_used_s)

    def _on_then(self, r: Dict[str, Any]) -> None:
        self.then = r

    def _on_fenced(self, r: Dict[str, Any]) -> None:
        self.fenced = r

    def _on_roster(self, r: Dict[str, Any]) -> None:
        self.roster = r

    def _on_notified(self, r: Dict[str, Any]) -> None:
        self.notices.append(r)

    def _on_log_gap(self, r: Dict[str, Any]) -> None:
        self.log_gaps.append(r)

    def _on_ended(self, r: Dict[str, Any]) -> None:
        self.ended_w = r["w"]
        self.state, self.state_why, self.state_w = r["state"], r.get("why", ""), r["w"]
        self.final_outcome = r.get("outcome", self.final_outcome)

    def stopping(self) -> Optional[Dict[str, Any]]:
        """Our stop of the newest attempt, if we asked for one after it was started."""
        asked, attempt = self.stop_asked, self.attempt
        if asked is None or attempt is None or int(asked.get("n", 0)) < attempt.n:
            return None
        return asked

    def run_stop(self) -> Optional[Dict[str, Any]]:
        """Our stop of the whole run. Ending a hung process whose work is complete is not one."""
        asked = self.stop_asked
        return None if asked is None or asked.get("reason") == "hung" else asked

    def newest_checkpoint(self) -> Optional[Dict[str, Any]]:
        """The newest committed and proved checkpoint, by step where all have one, else by time."""
        good = list(self.checkpoints.values())
        if not good:
            return None
        if all(c.get("step") is not None for c in good):
            return max(good, key=lambda c: (c["step"], c["w"]))
        return max(good, key=lambda c: c.get("mtime_ns", 0))
