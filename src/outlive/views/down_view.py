"""How ``down`` ended: the clauses, what was done, what still bills."""

from __future__ import annotations

import time
from typing import Any

from outlive.gate.decide import APPROVAL
from outlive.runs.down import DownResult
from outlive.views import amounts
from outlive.views.printable import fold, one_line, table

WORDS = {
    "head": "{verb} of {box} ({platform})",
    "dry": "nothing was done: this is what `down` would say",
    "pulled": "pulled {run}: {delivery}, {size} came over the line, in {dir}",
    "would pull": "would pull {run}: {n} files, {size}, to {dir}",
    "deletes": "deletes {path}: {files} files, {size} in all",
    "removed": "removed {path}: looked for afterwards, it is gone",
    "meter": "meter: {meter}",
    "steps": "what you do now, in the console's own words:",
    "seen": "it took effect when you see: {seen}",
    "api": "its API call is {api}; this version does not make it",
    "bills": "goes on billing: {what}",
    "clock": "by itself: {text}",
    "clock at": "by itself: {text}, on {date}",
    "lost": "the copy here is not what was written: {what}",
    "receipt": "receipt: {path}",
    "more": "... and {n} more",
}

MARKS = {"green": "ok", "red": "RED", "unknown": "?"}
ITEMS = 6


def data(done: DownResult) -> dict[str, Any]:
    """Return ``down --json``. A refusal's ``why``, ``safe`` and ``next`` stand beside the rest."""
    plain = done.to_json()
    refusal = plain.get("refusal") or {}
    return {
        "schema": "outlive/down/1",
        **plain,
        "exit_code": done.exit_code,
        "why": list(refusal.get("why") or []),
        "safe": refusal.get("safe", ""),
        "next": [*plain["next"], *(argv for argv in refusal.get("next") or [] if argv not in plain["next"])],
    }


def lines(done: DownResult, columns: int) -> list[str]:
    """Return everything but the refusal, which is an error of its own, as lines."""
    text = [WORDS["head"].format(verb=done.verb, box=done.box, platform=done.platform)]
    if done.dry_run:
        text.append(WORDS["dry"])
    for pulled in done.pulled:
        size = amounts.size(pulled.bytes_fetched)
        text.append(WORDS["pulled"].format(run=pulled.run, delivery=pulled.delivery, size=size, dir=pulled.dir))
    for would in done.would_pull:
        size = amounts.size(would.bytes)
        text.append(WORDS["would pull"].format(run=would.run, n=would.files, size=size, dir=would.dir))
    text += [WORDS["lost"].format(what=one_line(what)) for what in done.lost_here]
    if done.decision is not None:
        text += _clauses(done, columns)
    if not done.removed:
        text += [
            WORDS["deletes"].format(
                path=one_line(path), files=done.deletes_files, size=amounts.size(done.deletes_bytes)
            )
            for path in done.deletes
        ]
    text += [WORDS["removed"].format(path=one_line(path)) for path in done.removed]
    if done.sentence and done.refusal is None:  # a refusal is told by itself, with what to type
        text.append(one_line(done.sentence))
    if done.meter not in ("not metered", "still running") and not done.dry_run:
        text.append(WORDS["meter"].format(meter=done.meter))
    if done.steps:
        text += [WORDS["steps"], *(f"  {n}. {step}" for n, step in enumerate(done.steps, 1))]
        text += [WORDS["seen"].format(seen=done.seen)] if done.seen else []
    text += [WORDS["api"].format(api=done.api)] if done.api else []
    text += [WORDS["bills"].format(what=", ".join(done.still_bills))] if done.still_bills else []
    for clock in done.clocks:
        at = clock.get("at_s")
        date = time.strftime("%Y-%m-%d", time.localtime(at)) if at else ""
        text.append(WORDS["clock at" if at else "clock"].format(text=clock.get("text", ""), date=date))
    text += [one_line(note) for note in done.notes]
    text += [WORDS["receipt"].format(path=path) for path in done.receipt_paths]
    if done.refusal is None:
        text += [f"next: {' '.join(argv)}" for argv in done.next]
    return [part for line in text for part in fold(line, columns, "    ")] if columns < 60 else text


def _clauses(done: DownResult, columns: int) -> list[str]:
    decision = done.decision
    assert decision is not None
    text = []
    for clause in decision.clauses:
        mark = "given up" if clause.number in decision.waived else MARKS.get(clause.state, clause.state)
        text += table([[f"  {mark:<3}", str(clause.number), one_line(f"{clause.title}: {clause.sentence}")]], columns)
        if clause.number == APPROVAL:
            continue
        indent = " " * (9 if columns >= 60 else 2)
        for item in clause.items[:ITEMS]:
            facts = [amounts.size(item.bytes) if item.bytes is not None else ""]
            facts.append(f"changed {amounts.ago(item.age_s)}" if item.age_s is not None else "")
            facts.append(f"last known copy: {item.last_known_copy}" if item.last_known_copy else "")
            said = one_line(f"{item.path}  {', '.join(fact for fact in [*facts, item.why] if fact)}")
            text += [indent + part for part in fold(said, columns - len(indent), "  ")]
        if len(clause.items) > ITEMS:
            text.append(indent + WORDS["more"].format(n=len(clause.items) - ITEMS))
    return text
