"""``down``: bring home what is missing, ask the gate, stop the meter - or say plainly that it still runs."""

from __future__ import annotations

import datetime
import os
import posixpath
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from pathlib import Path

from outlive import errors
from outlive.gate import Approval, Decision, Refusal, SafePlace, Waiver, decide, waiver
from outlive.gate import approval as approvals
from outlive.gate import files as gate_files
from outlive.gate import receipt as gate_receipt
from outlive.ledger import Box, use_approval
from outlive.platforms.lint import age
from outlive.platforms.model import Verb
from outlive.runs import receipts
from outlive.runs.approve import Terminal, has_person, new_id, store_request
from outlive.runs.down_result import DownResult, WouldPull, loss_lines
from outlive.runs.ending import action_of, storage_of, words_of
from outlive.runs.evidence import Gathered, gather
from outlive.runs.home import Home
from outlive.runs.place import Place, open_place
from outlive.runs.pull import pull_run, target_of
from outlive.runs.result import Left
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.names import DIR
from outlive.wire.values import Copy

__all__ = ["STILL_RUNNING", "DownResult", "WouldPull", "down", "loss_lines"]

Progress = Callable[[int, int, str], None]

FRESH_S = 60.0
"""Evidence older than this is gathered again before the verb: a person may have thought for long."""

STILL_RUNNING = "METER STILL RUNNING"


def down(
    home: Home,
    word: str = "",
    *,
    dry_run: bool = False,
    pull_first: bool = True,
    purge: bool = False,
    action: str | None = None,
    terminal: Terminal | None = None,
    approval_id: str | None = None,
    to: str | os.PathLike[str] | None = None,
    created_here: Collection[str] = (),
    progress: Progress | None = None,
) -> DownResult:
    """End a box: its meter, or with ``purge`` our directory on it. Never before the gate is open.

    ``action``: one of the platform's verbs, ``stop``, ``destroy`` or ``pause`` (from inside the box, where that is
    reversible); None is what stops the meter, on one's own machines only detaching. ``pull_first`` brings home what
    has no safe copy. ``to`` is the directory for it, a subdirectory per run. ``created_here``: box ids that this
    process made itself (the demo). Raises UsageError and what ``pull`` raises; every decision is in the result:
    3 red, 4 not reachable, 5 approval missing, 6 passed but only a person can stop the meter.
    """
    box = home.box_of(word)
    if box.gone:
        raise errors.UsageError(f"{box.name} is gone as of the ledger ({box.state_why})", next=[["outlive", "ps"]])
    place = open_place(home, box)
    try:
        gate_action, verb = action_of(place.platform, action, purge)
        ending = _Down(home, place, gate_action, verb, terminal, dry_run, to, tuple(created_here), progress)
        ending.pause = action == "pause"
        return ending.go(pull_first, approval_id)
    finally:
        place.close()


class _Down:
    """One ``down`` in progress."""

    pause = False

    def __init__(
        self,
        home: Home,
        place: Place,
        action: str,
        verb: Verb | None,
        terminal: Terminal | None,
        dry_run: bool,
        to: str | os.PathLike[str] | None,
        created_here: tuple[str, ...],
        progress: Progress | None,
    ) -> None:
        self.home, self.place, self.action, self.verb = home, place, action, verb
        self.terminal, self.dry_run, self.to, self.created_here, self.progress = (
            terminal,
            dry_run,
            to,
            created_here,
            progress,
        )
        word = verb.label.said() if verb is not None and verb.role != "none" else action
        self.result = DownResult(place.name, place.platform.id, action, word, dry_run)
        today = datetime.datetime.fromtimestamp(wall_s(), datetime.UTC).date()
        if place.platform.has_meter:  # what survives which verb, and what bills, is believed from these
            self.result.notes += [f"facts of {problem}" for problem in age(place.platform, today)]

    @property
    def box(self) -> Box:
        return self.place.box

    def go(self, pull_first: bool, approval_id: str | None) -> DownResult:
        result = self.result
        found = gather(self.home, self.place, self.action, self.verb)
        if found.unreachable is not None and self._gate_passed_before():
            return self._still_running("the gate has passed before, and nothing has said since that it is gone")
        if self.action == "detach":
            return self._detach(found)
        self._check_pause()
        decision = decide(found.claims, (), None, wall_s())
        if pull_first and found.unreachable is None and decision.clause(1).state == "green":
            if self.dry_run:
                found = self._as_if_pulled(found)
                decision = decide(found.claims, (), None, wall_s())
            elif self._pull(found):
                found = gather(self.home, self.place, self.action, self.verb)
                decision = decide(found.claims, (), None, wall_s())
        self._tell(found, decision)
        waivers: tuple[Waiver, ...] = ()
        if decision.verdict == "red":
            live = self.action == "purge" and decision.clause(1).state == "red"  # the box itself refuses that
            if self.dry_run or live or not has_person(self.terminal):
                return self._red(found, decision)
            given = self._ask_waiver(decision)
            if given is None:
                return self._red(found, decision)
            waivers = (given,)
            decision = decide(found.claims, waivers, None, wall_s())
            if decision.verdict == "red":
                return self._red(found, decision)
            self.home.ledger.append("waiver", **given.to_wire())
        approval = self._approval(found, decision, approval_id)
        if approval is None:
            self.result.decision = decision
            return result
        if boot_s() - found.gathered_b > FRESH_S and not self.dry_run:
            found = gather(self.home, self.place, self.action, self.verb)
        decision = decide(found.claims, waivers, approval, wall_s())
        result.decision, result.approval = decision, approval.id
        if decision.verdict != "open":
            return self._red(found, decision)
        if self.dry_run:
            by_hand = self.action != "purge"
            result.exit_code = 6 if by_hand else 0
            result.sentence = "open: nothing stands in the way"
            return result
        use_approval(self.home.ledger, approval.id)
        return (
            self._purge(found, decision, approval) if self.action == "purge" else self._stop(found, decision, approval)
        )

    # ---- what is shown ----

    def _tell(self, found: Gathered, decision: Decision) -> None:
        result, claims = self.result, found.claims
        result.decision = decision
        result.lost_here = list(found.lost_here)
        result.clocks = [asdict(c) for c in claims.danger_clocks or ()]
        result.still_bills = list(claims.costs.still_bills) if claims.costs is not None else []
        if self.action == "purge":
            result.deletes = [posixpath.join(self.box.root, DIR)]
            result.deletes_files, result.deletes_bytes = found.own_files, found.own_bytes
            result.meter = "still running" if self.place.platform.has_meter else "not metered"
        else:
            result.meter = "still running"
        if self.verb is not None and self.action in ("stop", "destroy"):
            result.steps, result.seen = words_of(self.place.platform, self.verb), self.verb.confirm.seen.said()
            result.api = self.verb.api or ""

    def _refuse(self, error: errors.OutliveError) -> DownResult:
        self.result.refusal, self.result.exit_code = error, error.exit_code
        self.result.sentence = error.what
        self.result.next = error.next
        return self.result

    def _red(self, found: Gathered, decision: Decision) -> DownResult:
        self.result.decision = decision
        if found.unreachable is not None:
            error: errors.OutliveError = errors.Unreachable(
                f"{self.box.name} does not answer: {found.unreachable.what}",
                place=self.box.name,
                why=decision.missing,
                safe=self._safe(),
                next=[["outlive", "up", self.box.name], *map(list, decision.next)],
            )
            return self._refuse(error)
        live = decision.clause(1)
        if live.state == "red":
            runs = [item.path for item in live.items if not item.unknown]
            return self._refuse(
                errors.RunAlive(
                    live.sentence,
                    runs=runs,
                    why=[f"{i.path}: {i.why}" for i in live.items],
                    safe=self._safe(),
                    next=decision.next,
                )
            )
        what = f"{self.result.verb} of {self.box.name} would lose something"
        if not any(not i.unknown for c in decision.clauses for i in c.items if c.number < 8):
            what = f"whether {self.result.verb} of {self.box.name} would lose something is not known"
        return self._refuse(errors.GateRefused(what, why=decision.missing, safe=self._safe(), next=decision.next))

    def _safe(self) -> str:
        bills = " It bills on." if self.place.platform.has_meter else ""
        return f"Nothing was stopped or deleted; {self.box.name} is as it was.{bills}"

    # ---- before the verb ----

    def _gate_passed_before(self) -> bool:
        if self.box.state != "unconfirmed":
            return False
        return any(r.get("box") == self.box.name for r in self.home.state().receipts)

    def _check_pause(self) -> None:
        if not self.pause:
            return
        self_stop = self.place.platform.self_stop
        if self_stop is None or self_stop.role != "pause" or self_stop.reversible != "yes":
            raise errors.UsageError(
                f"nobody can promise that a parked box of {self.place.platform.names.said()} comes back",
                safe=self._safe(),
                next=[["outlive", "down", self.box.name]],
            )
        if self_stop.needs_env:
            raise errors.UsageError(f"parking from inside needs {', '.join(self_stop.needs_env)} of the box")

    def _lacking(self, found: Gathered, left: Left) -> tuple[set[str], bool]:
        """Return (paths of the result without a safe copy, whether a log or changed code lacks one)."""
        claims = next(r for r in found.claims.runs or () if r.run == left.run)
        files = gate_files.RunFiles(claims, found.claims)
        results = {e.path for e in left.entries if e.sha256 and not e.link and not files.copies.safe(e.sha256)}
        results |= {e.path for e in left.entries if not e.sha256 and not e.link}
        side = any(not files.copies.safe(e.sha256) for e in files.side if e.sha256)
        return results, side

    def _dir(self, run: str) -> Path:
        if self.to is not None:
            return target_of(run, Path(self.to) / run)
        record = self.home.state().runs.get(run)
        known = str(record.facts.get("pulled_to", "")) if record is not None else ""
        return Path(known) if known and os.path.isdir(known) else target_of(run, None)

    def _pull(self, found: Gathered) -> bool:
        """Bring home what has no safe copy. Returns whether anything was done."""
        for left in found.lefts:
            results, side = self._lacking(found, left)
            if results or side:
                whole = {e.path for e in left.entries if not e.link} == results
                self.result.pulled.append(
                    pull_run(
                        self.home,
                        self.place,
                        left.run,
                        to=self._dir(left.run),
                        only=None if whole else results,
                        progress=self.progress,
                    )
                )
        return bool(self.result.pulled)

    def _as_if_pulled(self, found: Gathered) -> Gathered:
        """Return the evidence as it would be after the pull that ``down`` begins with."""
        claims, places = found.claims, dict.fromkeys(found.claims.places)
        runs = list(claims.runs or ())
        for left in found.lefts:
            results, side = self._lacking(found, left)
            if not results and not side:
                continue
            target = self._dir(left.run)
            name = f"here:{target}"
            storage = storage_of(str(target))
            read_back = "cache" if storage == "local" else "storage"
            changed = set(left.changed)
            files = [e for e in left.entries if e.path in results and e.sha256 and e.path not in changed]
            own = [replace(e, path=f".outlive/{e.path}") for e in (*left.logs, *left.drift)]
            copies = tuple(Copy(e.sha256, name, e.path, read_back, wall_s()) for e in (*files, *own))
            index = next(i for i, r in enumerate(runs) if r.run == left.run)
            runs[index] = replace(runs[index], copies=(*runs[index].copies, *copies))
            places[SafePlace(name, storage)] = None
            self.result.would_pull.append(WouldPull(left.run, str(target), len(files), sum(e.bytes for e in files)))
        return replace(found, claims=replace(claims, runs=tuple(runs), places=tuple(places)))

    def _ask_waiver(self, decision: Decision) -> Waiver | None:
        assert self.terminal is not None
        numbers = ",".join(str(c.number) for c in decision.clauses if c.state != "green" and c.waivable)
        prompt = (
            "\n".join(loss_lines(decision))
            + f"\nType `{decision.box} lose {numbers}` to give this up, or nothing to keep everything: "
        )
        typed = self.terminal.ask(prompt)
        if not typed.strip():
            return None
        return waiver.parse(typed, decision, wall_s(), at_terminal=True)

    def _approval(self, found: Gathered, decision: Decision, approval_id: str | None) -> Approval | None:
        """Return an approval that holds for this decision; None after the refusal was put into the result."""
        claims, now = found.claims, wall_s()
        state = self.home.state()
        why: list[str] = []
        offered = state.approvals_for(self.box.name, self.action, now)
        if approval_id:
            named = state.approval(approval_id)
            if named is None:
                raise errors.UnknownName.of("approval", approval_id, state.approvals)
            offered = [named]
        for given in offered:
            answer = approvals.check(given, decision, claims, now)
            if not isinstance(answer, Refusal):
                return given
            why.append(answer.reason)
        if approval_id:
            self._refuse(errors.ApprovalInvalid(why[0], safe=self._safe(), next=[["outlive", "down", self.box.name]]))
            return None
        if not self.dry_run:
            if self.box.box_id in self.created_here:
                return self._keep(
                    approvals.mint("now", new_id("ok"), decision, claims, now, False, created_here=self.created_here)
                )
            if has_person(self.terminal):
                assert self.terminal is not None
                if self.terminal.ask(_approve_prompt(decision, self.result)).strip() == self.box.name:
                    return self._keep(approvals.mint("now", new_id("ok"), decision, claims, wall_s(), True))
                why.append("the box's name was not typed")
            else:
                self.result.request = store_request(self.home, decision, claims, asked_by="down").id
        asked = self.result.request
        self._refuse(
            errors.ApprovalNeeded(
                f"a person has to approve: {self.result.verb} of {self.box.name}",
                request=asked,
                why=why,
                safe=self._safe(),
                next=[["outlive", "approve", asked]] if asked else [["outlive", "down", self.box.name]],
            )
        )
        return None

    def _keep(self, given: Approval) -> Approval:
        self.home.ledger.append("approval", **given.to_wire())
        return given

    # ---- the verbs ----

    def _detach(self, found: Gathered) -> DownResult:
        if found.unreachable is not None:
            raise found.unreachable
        decision = decide(found.claims, (), None, wall_s())
        result = self.result
        result.decision = decision
        if decision.verdict != "open":
            return self._red(found, decision)
        result.sentence = f"{self.box.name} is let go; nothing was deleted there"
        result.next = [["outlive", "down", self.box.name, "--purge"]]
        if not self.dry_run:
            self.home.ledger.append(
                "place_state", box=self.box.name, state="idle", why="detached by `down`; nothing was deleted"
            )
        return result

    def _purge(self, found: Gathered, decision: Decision, approval: Approval) -> DownResult:
        result = self.result
        answer = self.place.call("purge", {}, timeout_s=600.0)
        left = self._still_there(result.deletes)
        result.removed = [p for p in answer["removed"] if p not in left]
        if left or sorted(answer["removed"]) != sorted(result.deletes):
            raise errors.Unknown(
                f"told to delete {', '.join(result.deletes)}, {self.box.name} says {', '.join(answer['removed'])}"
                + (f", and {', '.join(left)} is there" if left else ""),
                safe="Everything that the gate asked for is safe.",
                next=[["outlive", "ssh", self.box.name]],
            )
        metered = self.place.platform.has_meter
        result.sentence = f"our directory on {self.box.name} is deleted" + (f"; {STILL_RUNNING}" if metered else "")
        done = (f"purged {p}: looked for it afterwards, it is gone" for p in result.removed)
        self._receipt(found, decision, approval, tuple(done))
        if metered:
            self.home.ledger.append("place_state", box=self.box.name, state="idle", why="purged; its meter runs")
            result.next = [["outlive", "down", self.box.name]]
        else:
            self.home.ledger.append("forgot", name=self.box.name, why="purged: our directory there is deleted")
        return result

    def _still_there(self, paths: list[str]) -> list[str]:
        script = 'for p do [ -e "$p" ] && printf "%s\\n" "$p"; done; echo looked'
        done = self.place.agent.exec.run(["sh", "-c", script, "look", *paths], timeout_s=60.0)
        lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
        return lines[:-1] if lines[-1:] == ["looked"] else list(paths)

    def _stop(self, found: Gathered, decision: Decision, approval: Approval) -> DownResult:
        result = self.result
        if self.pause:
            done = self._self_stop()
            result.meter, why = (
                "unconfirmed",
                "told to park itself from inside; nothing that we can read says that it did",
            )
            result.sentence = f"{self.box.name} was told to park itself; look at the console: {result.seen}"
        else:
            done = ()
            result.meter, why = "still running", f"the gate passed; a person must do it: {result.verb}"
        self._receipt(found, decision, approval, done)
        self.home.ledger.append("place_state", box=self.box.name, state="unconfirmed", why=why)
        return self._still_running(result.sentence or "everything is safe; only a person can stop the meter")

    def _self_stop(self) -> tuple[str, ...]:
        self_stop = self.place.platform.self_stop
        assert self_stop is not None
        said = " ".join(self_stop.argv)
        try:
            done = self.place.agent.exec.run(list(self_stop.argv), timeout_s=60.0)
        except errors.OutliveError:
            return (f"`{said}` was sent to the box; the connection ended",)  # what a shutdown does to it
        if done.returncode:
            words = done.stderr.decode("utf-8", "replace").strip()[-200:]
            self.result.notes.append(f"`{said}` ended with status {done.returncode}: {words}")
        return (f"`{said}` ran on the box, status {done.returncode}",)

    def _still_running(self, why: str) -> DownResult:
        result = self.result
        if self.verb is not None:
            result.steps, result.seen = words_of(self.place.platform, self.verb), self.verb.confirm.seen.said()
            result.api = self.verb.api or ""
        if result.meter == "not metered":
            result.meter = "still running"
        result.exit_code = 6
        head = STILL_RUNNING if result.meter == "still running" else "not confirmed"
        result.sentence = f"{head}: {why}"
        result.next = [["outlive", "forget", self.box.name]]
        return result

    def _receipt(self, found: Gathered, decision: Decision, approval: Approval, done: tuple[str, ...]) -> None:
        result, home = self.result, self.home
        made = gate_receipt.build(decision, found.claims, approval, wall_s(), done, result.meter)
        result.receipt = made
        home.ledger.append("receipt", box=self.box.name, receipt=made.to_json())
        state = home.state()
        dirs = {str(state.runs[r].facts.get("pulled_to", "")) for r in found.claims.run_names() if r in state.runs}
        result.receipt_paths = [str(p) for p in receipts.write_down(home, made, [Path(d) for d in sorted(dirs) if d])]
        for to in sorted(
            {c.place for r in found.claims.runs or () for c in r.copies if not c.place.startswith("here:")}
        ):
            runs = [r.run for r in found.claims.runs or () if any(c.place == to for c in r.copies)]
            written, why = receipts.into_safe_place(self.place, to.removeprefix("mount:"), runs, made)
            result.receipt_paths += written
            if why:
                result.notes.append(f"the receipt could not be written into {to}: {why}")


def _approve_prompt(decision: Decision, result: DownResult) -> str:
    lines = [f"{decision.verb} of {decision.box}: nothing stands in the way."]
    if decision.waived:
        lines = [
            f"{decision.verb} of {decision.box}: given up: {', '.join(map(str, decision.waived))}; the rest is green."
        ]
    lines.append(decision.clause(7).sentence)
    lines += [f"deletes {p} ({result.deletes_files} files, {result.deletes_bytes} bytes)" for p in result.deletes]
    return "\n".join(line for line in lines if line) + f"\nType {decision.box} to approve: "
