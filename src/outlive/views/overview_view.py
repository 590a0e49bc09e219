"""The overview: what happened since the last one, what bills, what needs a person, what to type."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from outlive.ledger import LedgerState
from outlive.views import amounts, places_view, run_view
from outlive.views.places_view import BoxRow
from outlive.views.printable import fold, one_line

WORDS = {
    "none": "outlive makes a GPU job's result outlive the machine it runs on. No box is known here yet.",
    "try": "try it on this machine, no GPU needed",
    "reach": "a box that you can ssh to",
    "platforms": "who lends boxes, and what survives where",
    "since": "since you last looked, {ago}",
    "first": "now",
    "nothing": "nothing changed",
    "needs": "needs you",
    "nothing needed": "nothing needs you",
    "next": "next",
    "new run": "{run} on {box}: {state}",
    "moved": "{run}: {old} -> {new}",
    "progress": "{run}: step {old} -> {new}",
    "saved": "{run}: new checkpoint, {what}",
    "idle bills": "{box} has no live run and bills{price}",
    "unpulled": "{run} {state} and is not pulled: its results are on {box} only",
    "unreachable": "{box} does not answer{age}; this says nothing about its runs",
    "unconfirmed": "{box}: METER STILL RUNNING as far as anybody knows",
    "orphan": "{label}: it was asked for and nothing says what became of it; it may bill",
    "request": "a request waits for approval: {id}",
}


@dataclass
class Need:
    """One thing that needs a person; ``rank`` 0 is most urgent."""

    rank: int
    text: str
    argv: list[str]


@dataclass
class Overview:
    """All of it as values."""

    rows: list[BoxRow]
    since_w: float | None
    events: list[str]
    needs: list[Need] = field(default_factory=list)
    now_w: float = 0.0

    @property
    def next(self) -> list[str]:
        """Return the one command to type now."""
        if self.needs:
            return min(self.needs, key=lambda need: need.rank).argv
        alive = [s["run"] for row in self.rows if row.current for s in row.runs if not s.get("ended")]
        if alive:
            return ["outlive", "watch", alive[0]]
        return ["outlive", "run", "--", "python", "train.py"] if self.rows else ["outlive", "up", "local:"]


def overview(rows: list[BoxRow], before: dict[str, Any], state: LedgerState, now_w: float | None = None) -> Overview:
    """Put the overview together from boxes as they are, the last one shown, and the ledger."""
    now_w = time.time() if now_w is None else now_w
    found = Overview(rows, before.get("w"), _events(rows, before.get("runs", {})), now_w=now_w)
    for row in rows:
        found.needs += _box_needs(row, state, now_w)
    for intent in state.orphans:
        # starting a run on a box that is ours rents nothing; the box itself knows whether it happened
        if intent.provider != "box":
            found.needs.append(Need(1, WORDS["orphan"].format(label=one_line(intent.label)), ["outlive", "ps"]))
    used = {str(a.get("request")) for a in state.approvals.values()}
    for id_, request in state.requests.items():
        if id_ not in used and float(request.get("until_s") or now_w + 1) > now_w:
            found.needs.append(Need(2, WORDS["request"].format(id=id_), ["outlive", "approve", id_]))
    return found


def statuses(rows: list[BoxRow]) -> dict[str, dict[str, Any]]:
    """Return run -> status of what a fresh exchange told, to compare with the next time."""
    return {s["run"]: s for row in rows if row.current for s in row.runs}


def data(found: Overview) -> dict[str, Any]:
    """Return ``outlive --json``."""
    return {
        "schema": "outlive/overview/1",
        "w": found.now_w,
        "since_w": found.since_w,
        "events": found.events,
        "boxes": [places_view.box_data(row, found.now_w) for row in found.rows],
        "needs": [{"rank": n.rank, "text": n.text, "next": n.argv} for n in sorted(found.needs, key=lambda n: n.rank)],
        "next": [found.next],
    }


def lines(found: Overview, columns: int) -> list[str]:
    """Return the overview as lines."""
    if not found.rows:
        return empty_lines(columns)
    title = WORDS["since"].format(ago=amounts.ago(found.now_w - found.since_w)) if found.since_w else WORDS["first"]
    text = [title, *_indented(found.events or [WORDS["nothing"]], columns), ""]
    text += places_view.ps_lines(found.rows, columns, found.now_w)
    text.append("")
    if found.needs:
        text.append(WORDS["needs"])
        text += _indented(["! " + need.text for need in sorted(found.needs, key=lambda n: n.rank)], columns)
    else:
        text.append(WORDS["nothing needed"])
    return [*text, f"{WORDS['next']}: {' '.join(found.next)}"]


def empty_data() -> dict[str, Any]:
    """Return ``outlive --json`` where nothing is known yet."""
    return {
        "schema": "outlive/overview/1",
        "w": time.time(),
        "since_w": None,
        "events": [],
        "boxes": [],
        "needs": [],
        "next": [["outlive", "demo"], ["outlive", "up", "root@HOST:PORT"]],
    }


def empty_lines(columns: int) -> list[str]:
    """Return what a newcomer sees."""
    rows = [
        ("outlive demo", WORDS["try"]),
        ("outlive up root@HOST:PORT", WORDS["reach"]),
        ("outlive platforms ls", WORDS["platforms"]),
    ]
    text = fold(WORDS["none"], columns)
    for command, why in rows:
        text += (
            [f"  {command:<28}{why}"]
            if columns >= 72
            else [f"  {command}", *("    " + part for part in fold(why, columns - 4))]
        )
    return text


def _indented(texts: list[str], columns: int) -> list[str]:
    return ["  " + line for text in texts for line in fold(text, columns - 2, "  ")]


def _events(rows: list[BoxRow], before: dict[str, Any]) -> list[str]:
    events = []
    for row in rows:
        if not row.current:
            continue
        for status in row.runs:
            old = before.get(status["run"])
            state = run_view.state_text(status)
            why = run_view.why_text(status)
            if old is None:
                events.append(WORDS["new run"].format(run=status["run"], box=row.box.name, state=state))
                continue
            if old.get("state") != status.get("state"):
                moved = WORDS["moved"].format(run=status["run"], old=old.get("state"), new=state)
                events.append(moved + (f": {why}" if why and status.get("state") != "running" else ""))
            elif status.get("step") is not None and old.get("step") != status.get("step"):
                events.append(WORDS["progress"].format(run=status["run"], old=old.get("step"), new=status["step"]))
            new = status.get("checkpoint") or {}
            if new and (old.get("checkpoint") or {}).get("sha256") != new.get("sha256"):
                events.append(WORDS["saved"].format(run=status["run"], what=run_view.checkpoint_text(status)))
    return events


def _box_needs(row: BoxRow, state: LedgerState, now_w: float) -> list[Need]:
    needs = []
    name = row.box.name
    bills = row.bills(now_w)
    if row.box.state == "unconfirmed":
        needs.append(Need(0, WORDS["unconfirmed"].format(box=name), ["outlive", "down", name]))
    if row.asked and not row.current:
        age = f", last seen {amounts.ago(now_w - row.seen_w)}" if row.seen_w is not None else ""
        needs.append(Need(3, WORDS["unreachable"].format(box=name, age=age), ["outlive", "up", name]))
    for status in row.runs:
        if not row.current and not status.get("ended"):
            continue
        run, text = status["run"], run_view.needs_text(status)
        record = state.runs.get(run)
        if text:
            rank = {"waiting": 1, "unknown": 2, "preempted": 2, "stalled": 2, "hung": 2}.get(str(status["state"]), 4)
            argv = {"waiting": "watch", "failed": "logs", "hung": "stop"}.get(str(status["state"]), "watch")
            needs.append(Need(rank, f"{run} {text}", ["outlive", argv, run]))
        needs += [
            Need(2, f"{run}: {one_line(a['sentence'])}", ["outlive", "watch", run]) for a in status.get("alarms") or []
        ]
        delivered = record is not None and (record.delivery in ("complete", "proved") or bool(record.copies))
        if status.get("ended") and status.get("state") in ("succeeded", "suspect") and not delivered:
            needs.append(
                Need(3, WORDS["unpulled"].format(run=run, state=status["state"], box=name), ["outlive", "pull", run])
            )
    idle = row.current and not any(not s.get("ended") for s in row.runs)
    if idle and bills["bills"]:
        price = (
            f": {bills['per_h']:g} {bills['currency']} an hour"
            if bills["per_h"] is not None
            else ", at a price that nobody told"
        )
        needs.append(
            Need(1 if row.runs else 5, WORDS["idle bills"].format(box=name, price=price), ["outlive", "down", name])
        )
    return needs
