"""The end of a run: its roster frozen and proved, the last copies made, the word that stays."""

import json
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from outlive.onbox.children import Crew
from outlive.onbox.context import Context, read_json
from outlive.wire.clock import boot_s
from outlive.wire.names import write_aside
from outlive.wire.states import OUTCOME_CLASSES, REMEDIES
from outlive.wire.values import REFUTING

ROSTER_TRIES = 5


class Finishing:
    """From the last stage's end to the journal's ``ended``.

    A restarted supervisor begins it again from the same evidence.
    """

    def __init__(self, context: Context, notify: Callable[[str, str, Dict[str, Any]], None]) -> None:
        self.context = context
        self.notify = notify
        self.copied_all: Callable[[], bool] = lambda: True
        """Set by the supervisor: whether the roster is in the safe place, or none is wanted."""
        self.retain: Callable[[], None] = lambda: None
        """Set by the supervisor: carry out the retention of checkpoints, for the last time before the roster."""
        self.crew = Crew(1)
        self.forget()

    def forget(self) -> None:
        """Begin anew: an ended run was asked to go on."""
        self.ending: Optional[Tuple[str, str]] = None
        self.roster_answer: Optional[Dict[str, Any]] = None
        self.since_b: Optional[float] = None
        self._roster_tries = 0
        self._roster_retry_b = 0.0

    @property
    def under_way(self) -> bool:
        """Whether the roster is being made, or is."""
        view = self.context.view
        return self.ending is not None or view.state == "finishing" or view.ended

    def begin(self) -> None:
        view = self.context.view
        if view.stage_failed:
            outcome = view.final_outcome or {}
            asked = view.run_stop()
            if asked is not None and asked["reason"] in ("asked", "fenced"):
                self.ending = ("stopped", str(asked["why"]))
            elif outcome.get("cls") == "suspect":
                self.ending = ("suspect", str(outcome.get("sentence", "")))
            elif asked is not None:
                self.ending = ("stopped", str(asked["why"]))
            else:
                self.ending = ("failed", str(outcome.get("sentence", "")))
        elif view.run_stop() is not None and self._cut_short():
            self.ending = ("stopped", str((view.stop_asked or {})["why"]))
        else:
            self.ending = ("succeeded", "every stage ended with status 0")
        self.since_b = boot_s()
        self.context.state("finishing", "digests and copies")

    def _cut_short(self) -> bool:
        """Whether a stage was left out because of our stop; one that came after the last stage stopped nothing."""
        return any(s["name"] not in self.context.view.stages_done for s in self.context.spec["stages"])

    def tick(self) -> None:
        context = self.context
        if self.ending is None:
            self.begin()  # a restarted supervisor picks the end up from the same evidence
        if self.roster_answer is None:
            self._queue_roster()
            return
        assert self.ending is not None
        state, why = self.ending
        problem = self._roster_problem()
        if state == "succeeded" and problem:
            state, why = "suspect", problem
        if not self.copied_all():
            waited = boot_s() - (self.since_b or boot_s())
            if not context.view.copy_failed or waited < float(context.limits["final_copy_s"]):
                return
            why += (
                "; NOT all of it is in the safe place: "
                + "; ".join(sorted(set(context.view.copy_failed.values())))[:300]
            )
        outcome = dict(
            context.view.final_outcome or {"cls": state, "remedy": OUTCOME_CLASSES.get(state, "none"), "sentence": why}
        )
        outcome["remedy_text"] = REMEDIES.get(str(outcome.get("remedy")), "")
        context.record("ended", state=state, why=why, outcome=outcome)
        self.notify("ended", "%s: %s" % (state, why), {"state": state, "outcome": outcome})

    def _queue_roster(self) -> None:
        context = self.context
        if boot_s() < self._roster_retry_b or not self.crew.idle:
            return
        self.retain()  # from here on nothing is removed: the roster must not name what is gone
        known: Dict[str, List[Any]] = {}
        for checkpoint in context.view.checkpoints.values():
            for entry in checkpoint["files"]:
                proof = context.view.proofs.get(entry["sha256"], {})
                known[entry["path"]] = [entry["bytes"], entry["mtime_ns"], entry["sha256"], proof.get("level", "none")]
        newest = context.view.newest_checkpoint()
        strict = [e["path"] for e in newest["files"]] if newest else []
        strict += [
            e["path"] for c in context.view.checkpoints.values() if "best" in c["path"].lower() for e in c["files"]
        ]
        request = {
            "work": context.run.work,
            "baseline": read_json(context.run.baseline) or {},
            "declared": context.spec["artifacts"]["roster"],
            "checkpoints": context.spec["artifacts"]["checkpoints"],
            "known": known,
            "strict": strict,
        }

        def done(answer: Dict[str, Any]) -> None:
            if "error" in answer:
                self._roster_tries += 1
                self._roster_retry_b = boot_s() + min(60.0, 2.0**self._roster_tries)
                context.state("finishing", answer["error"])
                if self._roster_tries >= ROSTER_TRIES:
                    self.roster_answer = {"entries": [], "missing": [], "failed": answer["error"]}
                return
            for proof in answer["proofs"]:
                context.record("proof", sync=False, proof=proof)
            manifest = {
                "run": context.run.id,
                "entries": answer["entries"],
                "inferred": answer["inferred"],
                "frozen": True,
                "missing": answer["missing"],
                "tombstones": context.view.tombstones,
            }
            try:
                write_aside(context.run.roster, json.dumps(manifest).encode("utf-8"))
            except OSError as error:
                self._roster_retry_b = boot_s() + (0.0 if context.release_reserve() else 5.0)
                context.state("finishing", "the manifest cannot be written: %s" % error.strerror)
                return
            context.record(
                "roster",
                entries=len(answer["entries"]),
                bytes=sum(e["bytes"] for e in answer["entries"]),
                inferred=answer["inferred"],
                missing=answer["missing"],
            )
            self.roster_answer = answer

        self.crew.add("roster", "roster", request, 6 * 3600.0, done)

    def _roster_problem(self) -> str:
        """Return why a run with status 0 is only suspect, or an empty string."""
        answer = self.roster_answer or {}
        if answer.get("failed"):
            return "exit status 0, but what it left could not be listed: %s" % answer["failed"]
        if answer.get("unreadable"):
            return "exit status 0, but unreadable: " + ", ".join(answer["unreadable"])[:400]
        if answer.get("missing"):
            return "exit status 0, but missing: " + ", ".join(answer["missing"])
        if not answer.get("entries"):
            return "exit status 0, but it left no file"
        declared = bool(self.context.spec["artifacts"]["roster"])
        bad = [
            "%s: %s" % (e["path"], f["text"])
            for e in answer["entries"]
            for f in (self.context.view.proofs.get(e["sha256"], {}).get("findings") or ())
            if f["code"] in REFUTING and (f["code"] != "empty" or declared or _may_not_be_empty(e))
        ]
        return "exit status 0, but " + "; ".join(bad)[:400] if bad else ""


def _may_not_be_empty(entry: Dict[str, Any]) -> bool:
    """Whether an empty file refutes a run that declared nothing: a container does, a mark or an error log does not."""
    from outlive.artifacts.kinds import PROMISED  # the readers of all formats come with it, wanted at an end only

    return entry["role"] == "checkpoint" or os.path.splitext(entry["path"])[1].lower() in PROMISED
