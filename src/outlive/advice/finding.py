"""A finding of the engine in words: what happened, why, what to do here with these numbers, what not to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outlive.advice.pages import pages
from outlive.diagnose.verdict import Finding

_GAP = re.compile(r"\{(\w+)\}")
_NONE: Mapping[str, dict[str, Any]] = {}
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def told(finding: Finding, sources: list[str], own: Mapping[str, dict[str, Any]] = _NONE) -> dict[str, Any]:
    """Return a finding as data for people and programs. ``own``: pages of a person's own rules, by id."""
    page = own.get(finding.rule) or pages()[finding.rule]
    lines = [event.text for event in finding.evidence]
    numbers = {**extracted(page, lines), **{k: v for k, v in finding.numbers.items() if v is not None}}
    related = _related(finding.cls, lines)
    data: dict[str, Any] = {
        "class": finding.cls,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "rule": finding.rule,
        "title": page["title"],
        "summary": _summary(page, finding, numbers),
        "cause": page["cause"],
        "fix": _fix(page, numbers),
        "never_do": page.get("never_do", []),
        "remedy": finding.remedy,
        "evidence": [
            {
                "source": sources[event.source] if 0 <= event.source < len(sources) else "",
                "line": event.line,
                "text": event.text,
                **({"rank": event.rank} if event.rank is not None else {}),
            }
            for event in finding.evidence
        ],
        "times_seen": finding.times,
        "numbers": numbers,
        "consequences": list(finding.consequences),
        "source_ids": list(dict.fromkeys([*page.get("source_ids", []), *related])),
    }
    if finding.rule in own:
        data["rule_file"] = page["file"]
    if finding.survived:
        data["note"] = "the work went on after it"
    return data


def extracted(page: dict[str, Any], lines: list[str]) -> dict[str, Any]:
    """Return what the page's expressions read out of the evidence, first hit for each name."""
    found: dict[str, Any] = {}
    for text in (page.get("evidence") or {}).get("extract") or []:
        pattern = re.compile(text)
        for line in lines:
            match = pattern.search(line)
            if match:
                for name, value in match.groupdict().items():
                    if value is not None:
                        found.setdefault(name, value.strip())
                break
    return found


def _fix(page: dict[str, Any], numbers: dict[str, Any]) -> list[str]:
    """The page's steps with the numbers put in; a step whose numbers are not known is left out."""
    steps = []
    for step in page["fix"]:
        if all(name in numbers for name in _GAP.findall(step)):
            steps.append(_GAP.sub(lambda m: str(numbers[m.group(1)]), step))
    return _fragmentation(numbers) + steps


def _fragmentation(numbers: dict[str, Any]) -> list[str]:
    """Whether an out-of-memory error is one of fragmentation, from its own numbers."""
    tried, idle = size_of(numbers.get("tried")), size_of(numbers.get("unalloc"))
    if idle is None and "reserved" in numbers and "alloc" in numbers:
        reserved, alloc = size_of(numbers["reserved"]), size_of(numbers["alloc"])
        idle = reserved - alloc if reserved is not None and alloc is not None else None
    if tried is None or idle is None:
        return []
    said = _size(idle)
    if idle >= tried and idle > 2**30:
        return [
            f"Fragmentation: {numbers['tried']} were asked for while {said} lay reserved but unallocated: set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True first, then think of the batch size"
        ]
    return []


def size_of(text: Any) -> float | None:
    """Return bytes of "2.00 GiB" or "512 bytes"; None for anything else."""
    match = re.match(r"([\d.]+) ?(?:([KMGT])i?B|bytes)", str(text or ""), re.IGNORECASE)
    if not match:
        return None
    try:
        return float(match.group(1)) * _UNITS.get((match.group(2) or "").lower(), 1)
    except ValueError:
        return None


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _summary(page: dict[str, Any], finding: Finding, numbers: dict[str, Any]) -> str:
    text = f"{page['title']}."
    known = [f"{k.replace('_', ' ')} {v}" for k, v in numbers.items() if k not in ("message",)]
    if known:
        text += " (" + ", ".join(known[:8]) + ")"
    return text


def _related(cls: str, lines: list[str]) -> list[str]:
    """Ids of catalogue pages of the same class that know one of the lines too."""
    found = []
    for id, page in pages().items():
        if page["class"] != cls or "depth" in page:
            continue
        patterns = (page.get("evidence") or {}).get("patterns") or []
        if any(re.search(p["re"], line) for p in patterns for line in lines[:4]):
            found.append(id)
    return found
