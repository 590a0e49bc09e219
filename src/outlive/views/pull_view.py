"""What is here after a pull, and how far each file is proved."""

from __future__ import annotations

from typing import Any

from outlive.runs.pull import PullResult
from outlive.views import amounts
from outlive.views.printable import one_line, table

WORDS = {
    "here": "{run}: {n} files, {size}, in {dir}",
    "fetched": "{fetched} came over the line now",
    "nothing": "nothing had to be sent",
    "delivery": "delivery: {delivery}",
    "live": "the run is {state}: this is what it has committed so far",
    "wrong": "NOT HERE  {path}: {why}",
    "missing": "MISSING   {line}: no file answers to it",
    "refuted": "BROKEN    {path}: {why}",
    "kept": "{path} had another content here; the old one is kept as {where}",
    "links": "link {path} leads outside and was not followed",
    "receipt": "receipt: {path}",
    "more": "and {n} more",
    "proved": "proved to the level that each type has",
}

DELIVERY = {
    "none": "none: no byte of the result is outside the box",
    "partial": "partial: not everything is in a safe place yet",
    "complete": "complete: everything is here with equal digest",
    "proved": "proved: everything is here with equal digest, each checked to the level that its type has",
}

SHOWN = 12


def data(done: PullResult) -> dict[str, Any]:
    """Return ``pull --json``."""
    return {
        "schema": "outlive/pull/1",
        "run": done.run,
        "box": done.box,
        "dir": str(done.dir),
        "state": done.state,
        "live": done.live,
        "whole": done.whole,
        "delivery": done.delivery,
        "levels": done.levels,
        "read_back": done.read_back,
        "files": done.entries,
        "bytes": done.bytes,
        "bytes_fetched": done.bytes_fetched,
        "wrong": done.wrong,
        "missing": done.missing,
        "refuted": done.refuted,
        "kept": done.kept,
        "links_outside": done.links_outside,
        "notes": done.notes,
        "receipt": str(done.receipt_path),
        "next": next_commands(done),
    }


def next_commands(done: PullResult) -> list[list[str]]:
    """Return what one would type next."""
    if done.live:
        return [["outlive", "watch", done.run]]
    if done.exit_code:
        return [["outlive", "pull", done.run], ["outlive", "logs", done.run]]
    return [["outlive", "down", done.box, "--dry-run"]]


def lines(done: PullResult, columns: int) -> list[str]:
    """Return the result as lines: what is wrong comes last, where it is seen."""
    here = [e for e in done.entries if e.get("here", True)]
    head = WORDS["here"].format(run=done.run, n=len(here), size=amounts.size(done.bytes), dir=one_line(str(done.dir)))
    came = WORDS["fetched"].format(fetched=amounts.size(done.bytes_fetched)) if done.bytes_fetched else WORDS["nothing"]
    text = [f"{head}; {came}"]
    if done.live:
        text.append(WORDS["live"].format(state=done.state))
    shown = sorted(here, key=lambda e: (e.get("role") != "checkpoint", -int(e.get("bytes") or 0)))
    text += table(
        [
            [
                "  " + (e.get("level") or "-"),
                amounts.size(e.get("bytes")),
                str(e.get("role") or ""),
                one_line(str(e["path"])),
            ]
            for e in shown[:SHOWN]
        ],
        columns,
    )
    if len(shown) > SHOWN:
        text.append("  " + WORDS["more"].format(n=len(shown) - SHOWN))
    text.append(WORDS["delivery"].format(delivery=DELIVERY.get(done.delivery, done.delivery)))
    text += [one_line(note) for note in done.notes]
    text += ["  " + one_line(WORDS["kept"].format(path=p, where=w)) for p, w in done.kept.items()]
    text += ["  " + one_line(WORDS["links"].format(path=p)) for p in done.links_outside]
    text += ["! " + one_line(WORDS["missing"].format(line=line)) for line in done.missing]
    text += ["! " + one_line(WORDS["refuted"].format(path=p, why=w)) for p, w in done.refuted.items()]
    text += ["! " + one_line(WORDS["wrong"].format(path=p, why=w)) for p, w in done.wrong.items()]
    text.append(WORDS["receipt"].format(path=one_line(str(done.receipt_path))))
    return [*text, *(f"next: {' '.join(argv)}" for argv in next_commands(done))]
