"""What the kept events mean: the root cause, its consequences folded under it, and how sure that is.

First the machine and the scheduler, then the first specific failure, then exceptions of no special kind, then what
other processes say when one has died. What work has gone on after is no failure.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .engine import Engine, Event, Kept, looks_like_error
from .rulebook import CONCLUSIVE, INDICATOR, TRIGGER, Hit, Rule
from .series import Trouble

MACHINE = 13
"""Rules up to this depth speak of the machine, the scheduler or the kernel: they explain all else."""
SPECIFIC = 36
"""Rules up to this depth name a cause; the first of them in time wins."""
NEAR_LINES = 120
"""Specific failures this close together are one incident: the deeper rule is the better reading of it."""
SOFT, SURVIVED, ECHO, INDICATED = 25, 120, 60, 12
GOES_ON = 3
"""So many signs of progress after a failure mean that it was survived, whatever came later."""

GENERIC = frozenset({"python-exception", "child-failed"})
"""Rules that say no more than that there was an exception: silent where another rule knows the line."""

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"


class Finding(NamedTuple):
    """One reading of a log."""

    rule: str
    cls: str
    severity: str
    confidence: str
    remedy: str
    evidence: Tuple[Event, ...]
    times: int
    survived: bool
    consequences: Tuple[str, ...]
    numbers: Dict[str, Any]


class _Candidate(NamedTuple):
    depth: float
    order: int
    rule: Rule
    event: Event
    kept: Kept
    survived: bool


def judge(engine: Engine) -> List[Finding]:
    """Return the findings, the most likely root cause first; empty when nothing is wrong or nothing is known."""
    engine.end()
    candidates = _candidates(engine)
    series = engine.trouble()
    candidates = _combined(engine, candidates)
    chosen = _ordered(candidates)
    findings: List[Finding] = []
    seen = set()
    for candidate in chosen:
        if candidate.rule.cls in seen:
            continue
        seen.add(candidate.rule.cls)
        findings.append(_finding(candidate))
    if series is not None:
        findings = _with_series(engine, findings, series)
    spoken = {e.order for f in findings if f.rule not in GENERIC and f.remedy != "no_action" for e in f.evidence}
    findings = [f for f in findings if f.rule not in GENERIC or any(e.order not in spoken for e in f.evidence)]
    if not engine.progress and engine.facts.get("p2p") and all(f.remedy == "no_action" for f in findings):
        rule = engine.book.by_id["peer-to-peer"]  # the log ends where the first transfer between GPUs begins
        findings.insert(0, Finding(rule.id, rule.cls, "warning", POSSIBLE, rule.remedy, (), 1, False, (), {}))
    if not findings and not engine.progress:
        findings = _last_resort(engine)
    errors = [f for f in findings if f.severity == "error"]
    if len(errors) > 1:
        root = errors[0]
        folded = tuple(f.rule for f in errors[1:])
        findings = [
            f._replace(consequences=folded) if f is root else (f._replace(severity="info") if f in errors else f)
            for f in findings
        ]
    return findings


def _last_resort(engine: Engine) -> List[Finding]:
    """The last line that looks like an error though no rule knows it, as a possibility."""
    rule = engine.book.by_id["python-exception"]
    for text in reversed(engine.tail):
        if looks_like_error(text):
            event = Event(engine.lines, len(engine.sources) - 1, 0, None, text, Hit(rule, INDICATOR), True, False, 0)
            return [Finding(rule.id, rule.cls, "warning", POSSIBLE, rule.remedy, (event,), 1, False, (), {})]
    return []


def _candidates(engine: Engine) -> List[_Candidate]:
    found = []
    for id, kept in engine.kept.items():
        rule = engine.book.by_id[id]
        best: Optional[_Candidate] = None
        for event in kept.all():
            if event.hit.role == TRIGGER:
                continue
            depth = float(rule.depth)
            if event.hit.role == INDICATOR and rule.depth < 55:
                depth += INDICATED
            survived = rule.severity == "error" and _survived(engine, event, rule)
            if rule.severity == "error":
                depth += (SOFT if event.soft else 0) + (SURVIVED if survived else 0) + (ECHO if event.echo else 0)
            candidate = _Candidate(depth, event.order, rule, event, kept, survived)
            if best is None or depth < best.depth:
                best = candidate
        if best is not None:
            found.append(best)
    return found


def _survived(engine: Engine, event: Event, rule: Rule) -> bool:
    """Whether work went on after a failure."""
    if rule.depth <= MACHINE and not event.soft:
        return False
    after = engine.progress - event.progress
    if after <= 0:
        return False
    if event.order > engine.progress_order:
        return False
    if after >= GOES_ON:
        return True
    return not _failed_after(engine, engine.progress_order)


def _failed_after(engine: Engine, order: int) -> bool:
    return any(
        event.order > order and not event.soft
        for kept in engine.kept.values()
        for event in kept.all()
        if event.hit.rule.severity == "error"
    )


def _ordered(candidates: Sequence[_Candidate]) -> List[_Candidate]:
    """Root cause first."""
    machine = sorted((c for c in candidates if c.depth <= MACHINE), key=lambda c: (c.depth, c.order))
    specific = sorted((c for c in candidates if MACHINE < c.depth <= SPECIFIC), key=lambda c: c.order)
    rest = sorted((c for c in candidates if c.depth > SPECIFIC), key=lambda c: (c.depth, c.order))
    if specific:
        until = specific[0].order + NEAR_LINES
        near = sorted((c for c in specific if c.order <= until), key=lambda c: (c.depth, c.order))
        specific = near + [c for c in specific if c.order > until]
    return machine + specific + rest


def _finding(c: _Candidate) -> Finding:
    severity = c.rule.severity
    if severity == "error" and (c.survived or c.event.echo):
        severity = "warning"
    elif severity == "error" and c.event.soft:
        severity = "warning"
    if c.event.hit.role == CONCLUSIVE and severity == "error":
        confidence = CERTAIN if c.rule.depth <= SPECIFIC else LIKELY
    else:
        confidence = LIKELY if severity == "error" else POSSIBLE
    events = [e for e in c.kept.all() if e.hit.role <= c.event.hit.role][:4]
    if c.event not in events:
        events.insert(0, c.event)
    return Finding(
        c.rule.id, c.rule.cls, severity, confidence, c.rule.remedy, tuple(events), c.kept.count, c.survived, (), {}
    )


def _with_series(engine: Engine, findings: List[Finding], series: Trouble) -> List[Finding]:
    """Put what the numbers say in its place: before exceptions of no special kind, behind specific failures."""
    rule = engine.book.by_id[series.rule]
    made = Finding(rule.id, rule.cls, "error", LIKELY, rule.remedy, (), series.times, False, (), dict(series.numbers))
    kept = [f for f in findings if f.cls != rule.cls]
    at = 0
    while at < len(kept) and kept[at].severity == "error" and engine.book.by_id[kept[at].rule].depth < rule.depth:
        at += 1
    return kept[:at] + [made] + kept[at:]


def _combined(engine: Engine, candidates: List[_Candidate]) -> List[_Candidate]:
    """Readings that need two things at once."""
    by_class = {c.rule.cls: c for c in candidates}
    timeout = by_class.get("nccl_timeout_straggler")
    if timeout is not None and engine.facts.get("p2p") and engine.facts.get("first_collective"):
        rule = engine.book.by_id["peer-to-peer"]
        candidates = candidates + [timeout._replace(rule=rule, depth=float(rule.depth))]
    crash, peer = by_class.get("segfault_native"), by_class.get("nccl_rank_failure")
    if crash is not None and peer is not None and engine.facts.get("remote_crash"):
        candidates = candidates + [peer._replace(depth=crash.depth - 1)]
    inodes, disk = by_class.get("inode_exhausted"), by_class.get("disk_full")
    if inodes is not None and disk is None and "quota_exceeded" not in by_class:
        candidates = [c for c in candidates if c.rule.cls != "inode_exhausted" or _says_inode(c)]
    return candidates


def _says_inode(c: _Candidate) -> bool:
    return "inode" in c.event.text.lower()
