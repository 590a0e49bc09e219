"""The clauses: one function each, from claims to green, red or unknown, with the items that say why.

Numbers are fixed for ever: people type them (``lose 2,6``) and receipts keep them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from outlive.gate import files
from outlive.gate.claims import BoxClaims, ForeignProcess, RunClaims
from outlive.gate.costs import costs_sentence
from outlive.gate.items import Item
from outlive.wire.states import RUN_ENDED

State = Literal["green", "red", "unknown"]

MAX_EVIDENCE_AGE_S = 900
"""Older evidence says nothing about what is alive or written now."""


@dataclass(frozen=True)
class Clause:
    """One condition, judged."""

    number: int
    id: str
    title: str
    state: State
    sentence: str
    items: tuple[Item, ...] = ()
    """What makes it red or unknown; empty when green."""
    waivable: bool = True

    def shown(self) -> dict[str, Any]:
        """Return what a waiver and an approval are bound to: no ages, no prose."""
        return {"number": self.number, "state": self.state, "items": [i.identity() for i in self.items]}

    def to_wire(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "id": self.id,
            "title": self.title,
            "state": self.state,
            "sentence": self.sentence,
            "items": [i.to_wire() for i in self.items],
        }


def why_not_now(claims: BoxClaims) -> str:
    """Return why the evidence says nothing about this moment; ``""`` when it does."""
    age_s = claims.evidence_age_s
    if not claims.reachable:
        return "the box does not answer" + ("" if age_s is None else f"; as of {age_s:.0f} s ago")
    if age_s is None:
        return "nobody knows how old the evidence is"
    if not 0 <= age_s <= MAX_EVIDENCE_AGE_S:
        return f"the evidence is {age_s:.0f} s old"
    return ""


def _judge(number: int, title: str, items: Iterable[Item], green: str, red: str) -> Clause:
    """Make a clause from its items: any known fault is red, else any gap unknown, else green."""
    found = tuple(items)
    id_ = IDS[number]
    known = sum(1 for i in found if not i.unknown)
    if known:
        return Clause(number, id_, title, "red", red.format(n=known), found)
    if found:
        return Clause(number, id_, title, "unknown", f"not known: {found[0].why}", found)
    return Clause(number, id_, title, "green", green)


def _each_run(claims: BoxClaims, per_run: Callable[[RunClaims, BoxClaims], Iterable[Item]]) -> Iterable[Item]:
    if claims.runs is None:
        yield Item("(runs)", why="the runs on the box could not be listed", unknown=True)
        return
    for run in claims.runs:
        yield from per_run(run, claims)


def live(claims: BoxClaims) -> Clause:
    """1. No live attempt of any run found there, and none that a supervisor would start again."""
    stale = why_not_now(claims)
    items = list(_each_run(claims, lambda run, _: _live_items(run, stale)))
    if stale and not any(not i.unknown for i in items):
        items.insert(0, Item("(now)", why=stale, unknown=True))
    return _judge(
        1, "no live attempt", items, "no attempt of any run is alive", "{n} run(s) alive, or would be started again"
    )


def _live_items(run: RunClaims, stale: str) -> Iterable[Item]:
    why = f": {run.live_why}" if run.live_why else ""
    if run.live:
        yield Item(run.run, why=f"alive{why}" + (f" ({stale})" if stale else ""))
    elif run.live is None:
        yield Item(run.run, why=f"whether it is alive could not be read{why}", unknown=True)
    elif run.state == "unknown":
        yield Item(run.run, why="nothing of it is alive and nobody saw how it ended", unknown=True)
    elif run.state not in RUN_ENDED:
        yield Item(run.run, why=f"not ended ({run.state}): its supervisor would go on with it")


def safe(claims: BoxClaims) -> Clause:
    """2. Every roster entry and every kept checkpoint in a safe place with equal digest."""
    return _judge(
        2,
        "results in a safe place",
        _each_run(claims, files.unsafe_items),
        "every roster entry and kept checkpoint has a copy with equal digest in a safe place",
        "{n} file(s) have no copy that outlives this",
    )


def proved(claims: BoxClaims) -> Clause:
    """3. Each proved to the level asked."""
    return _judge(
        3,
        "results proved",
        _each_run(claims, files.unproved_items),
        "every file is proved to the level its type has",
        "{n} file(s) are refuted or not proved far enough",
    )


def code_and_logs(claims: BoxClaims) -> Clause:
    """4. Drift of the code and the logs pulled."""
    return _judge(
        4,
        "code drift and logs",
        _each_run(claims, files.drift_and_log_items),
        "changed code and logs have copies with equal digest in a safe place",
        "{n} changed code or log file(s) have no copy that outlives this",
    )


def foreign(claims: BoxClaims) -> Clause:
    """5. No foreign process that holds a GPU where the verb stops the machine, or writes where it deletes."""
    items = list(_foreign_items(claims))
    stale = why_not_now(claims)
    needed = claims.machine_stops or _deletes_something(claims)
    if stale and needed and not any(not i.unknown for i in items):
        items.insert(0, Item("(now)", why=stale, unknown=True))
    return _judge(
        5,
        "nobody else at work",
        items,
        "no other process holds a GPU or writes where this deletes",
        "{n} other process(es) would be hurt",
    )


def _deletes_something(claims: BoxClaims) -> bool:
    # A machine whose tiers nobody described may lose everything.
    return bool(claims.deletes) or (not claims.tiers and claims.action != "detach")


def _foreign_items(claims: BoxClaims) -> Iterable[Item]:
    if claims.machine_stops:
        if claims.gpu_holders is None:
            yield Item("(gpu)", why="who holds the GPU could not be read", unknown=True)
        holders = {p.pid: p for p in (*(claims.gpu_holders or ()), *(claims.processes or ())) if _holds(p, claims)}
        for process in holders.values():
            # Its memory moves from moment to moment, so it is words and no part of what a waiver is bound to.
            held = "a GPU" if process.gpu_bytes is None else f"{process.gpu_bytes} bytes of a GPU"
            yield Item(_process(process), why=f"holds {held}, and the machine stops")
    if not _deletes_something(claims):
        return
    if claims.processes is None:
        yield Item("(processes)", why="the other processes could not be listed", unknown=True)
        return
    for process in claims.processes:
        verdicts = [(path, claims.deleted(path)) for path in process.writes]
        doomed = [path for path, deleted in verdicts if deleted]
        unclear = [path for path, deleted in verdicts if deleted is None]
        if doomed:
            yield Item(_process(process), why=f"writes {doomed[0]}, which this deletes")
        elif unclear:
            yield Item(_process(process), why=f"writes {unclear[0]}, which no known tier holds", unknown=True)


def _holds(process: ForeignProcess, claims: BoxClaims) -> bool:
    # Being listed as a holder is the statement; the flag matters only in the list of all processes.
    return process.holds_gpu or process in (claims.gpu_holders or ())


def _process(process: ForeignProcess) -> str:
    return f"pid {process.pid} {process.command}" + (f" ({process.user})" if process.user else "")


def unclaimed(claims: BoxClaims) -> Clause:
    """6. No unclaimed files on the tiers that the verb deletes; an unfinished scan is unknown."""
    title, id_ = "no unclaimed files", IDS[6]
    if not _deletes_something(claims):
        return Clause(6, id_, title, "green", f"{claims.verb or claims.action} deletes no storage tier")
    return _judge(
        6,
        title,
        _unclaimed_items(claims),
        "no unclaimed file where this deletes",
        "{n} unclaimed file(s) or groups where this deletes",
    )


def _unclaimed_items(claims: BoxClaims) -> Iterable[Item]:
    scan = claims.unclaimed
    stale = why_not_now(claims)
    if not claims.tiers:
        yield Item("(tiers)", why="what this deletes is not known", unknown=True)
    if scan is None:
        yield Item("(scan)", why="the tiers that this deletes were not scanned", unknown=True)
        return
    for file in scan.files:
        yield Item(file.path, file.bytes, file.age_s, why="in no snapshot, manifest, declared data or known cache")
    more = scan.count - len(scan.files)
    if more > 0:
        rest_bytes = scan.bytes - sum(f.bytes for f in scan.files)
        yield Item(f"({more} smaller files)", max(rest_bytes, 0), why="unclaimed, not listed one by one")
    if not scan.complete:
        yield Item("(scan)", why="the scan did not finish", unknown=True)
    if stale:
        yield Item("(now)", why=stale, unknown=True)


def price(claims: BoxClaims) -> Clause:
    """7. Price and danger clocks shown. A price that is said to be unknown has been shown as that."""
    title, id_ = "price and danger clocks", IDS[7]
    if claims.costs is None:
        item = Item("(price)", why="the price was not looked up", unknown=True)
        return Clause(7, id_, title, "unknown", "the price was not looked up", (item,), waivable=False)
    if claims.danger_clocks is None:
        item = Item("(clocks)", why="the platform's own clocks were not looked up", unknown=True)
        return Clause(7, id_, title, "unknown", item.why, (item,), waivable=False)
    return Clause(7, id_, title, "green", costs_sentence(claims.costs, claims.danger_clocks), waivable=False)


IDS = {
    1: "live",
    2: "safe",
    3: "proved",
    4: "code-and-logs",
    5: "foreign",
    6: "unclaimed",
    7: "price",
    8: "approval",
}

EVIDENCE_CLAUSES: tuple[Callable[[BoxClaims], Clause], ...] = (
    live,
    safe,
    proved,
    code_and_logs,
    foreign,
    unclaimed,
    price,
)
"""Clauses 1 to 7 in their order. The eighth, approval, is judged in ``decide`` from their result."""


def judge_all(claims: BoxClaims) -> tuple[Clause, ...]:
    """Return clauses 1 to 7."""
    return tuple(clause(claims) for clause in EVIDENCE_CLAUSES)
