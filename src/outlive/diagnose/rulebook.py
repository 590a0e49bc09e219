"""The compiled rules: which lines of a log say which class. Loaded once; a pattern is compiled when it is needed first.

Each pattern comes with strings of which a line must hold one. They are found through a table of their rarest four
letters, so that a line costs some microseconds however many rules there are.
"""

import json
import pkgutil
import re
from typing import Any, Dict, List, NamedTuple, Optional, Pattern, Tuple

CONCLUSIVE, INDICATOR, TRIGGER = 0, 1, 2
GRAM = 4
_CACHE_MAX = 20000
_DIGITS = re.compile(r"\d+")


class Rule(NamedTuple):
    """One rule as the engine knows it."""

    id: str
    cls: str
    severity: str
    remedy: str
    depth: int
    """How close to the root of a chain of failures; lower is closer."""
    needs_error: bool
    """Its words stand in advice and notes too: a line that does not look like an error gives a weak event."""


class Hit(NamedTuple):
    """A rule that a line matches."""

    rule: Rule
    role: int


class Rulebook:
    """All rules, ready to be asked for a line."""

    def __init__(self, data: Dict[str, Any]) -> None:
        self.rules: List[Rule] = []
        self.by_id: Dict[str, Rule] = {}
        self._pieces: List[Tuple[int, str, int]] = []  # rule number, regex, role
        self._compiled: Dict[int, Pattern[str]] = {}
        self._anti: Dict[int, List[str]] = {}
        self._short: List[Tuple[str, List[int]]] = []
        self._grams: Dict[str, List[Tuple[str, List[int]]]] = {}
        self._cache: Dict[str, Tuple[Hit, ...]] = {}
        self.own_from = len(data["rules"])
        """Number of the first of a person's own rules (``data["own"]``): on a line that one knows it speaks alone."""
        self.tried = 0
        """Regular expressions that were tried so far: the work that tests compare."""
        strings: Dict[str, List[int]] = {}
        for id, cls, severity, remedy, depth, pieces, anti, needs_error in data["rules"] + data.get("own", []):
            number = len(self.rules)
            rule = Rule(id, cls, severity, remedy, depth, bool(needs_error))
            self.rules.append(rule)
            self.by_id[id] = rule
            if anti:
                self._anti[number] = anti
            for text, role, wanted in pieces:
                for string in wanted:
                    strings.setdefault(string, []).append(len(self._pieces))
                self._pieces.append((number, text, role))
        self._index(strings)

    def _index(self, strings: Dict[str, List[int]]) -> None:
        for string, pieces in strings.items():
            if len(string) < GRAM:
                self._short.append((string, pieces))
                continue
            grams = [string[i : i + GRAM] for i in range(len(string) - GRAM + 1)]
            key = min(grams, key=lambda g: (_commonness(g), g))
            self._grams.setdefault(key, []).append((string, pieces))
        self._keys = frozenset(self._grams)

    def hits(self, text: str, bare: str) -> Tuple[Hit, ...]:
        """Return the rules that a line matches. ``bare`` is the line without the prefixes of launchers and loggers."""
        template = _DIGITS.sub("0", text) if len(text) < 400 else ""
        known = self._cache.get(template) if template else None
        if known is not None and (not known or not _counts(text)):
            return known
        found = self._find(text, bare)
        if template:
            if len(self._cache) >= _CACHE_MAX:
                self._cache.clear()
            self._cache[template] = found
        return found

    def _find(self, text: str, bare: str) -> Tuple[Hit, ...]:
        low = text.lower()
        candidates = set()
        for string, pieces in self._short:
            if string in low:
                candidates.update(pieces)
        grams = {low[i : i + GRAM] for i in range(len(low) - GRAM + 1)}
        for key in self._keys & grams:
            for string, pieces in self._grams[key]:
                if string in low:
                    candidates.update(pieces)
        best: Dict[int, int] = {}
        for piece in sorted(candidates):
            number, source, role = self._pieces[piece]
            if best.get(number, TRIGGER + 1) <= role:
                continue
            pattern = self._compiled.get(piece)
            if pattern is None:
                pattern = self._compiled[piece] = re.compile(source)
            self.tried += 1
            if pattern.search(bare) or pattern.search(text):
                best[number] = role
        kept = [number for number in sorted(best) if not self._refused(number, text)]
        if kept and kept[-1] >= self.own_from and any(n >= self.own_from and best[n] != TRIGGER for n in kept):
            kept = [number for number in kept if number >= self.own_from]
        return tuple(Hit(self.rules[number], best[number]) for number in kept)

    def _refused(self, number: int, text: str) -> bool:
        return any(re.search(anti, text) for anti in self._anti.get(number, ()))


def _counts(text: str) -> bool:
    """Whether the digits of a line can decide: exit codes, signals, error numbers."""
    low = text.lower()
    return any(word in low for word in _NUMBERED)


_NUMBERED = ("code", "errno", "error", "signal", "xid", "%", "status", "scale", "received", "-rw")
_FREQUENT = frozenset(
    "erro rror  err erro fail aile iled led  not not  time imed ting tion ion  able ing  load file  for  the  in  of "
    "loss step epoc poch iter cuda conn nnec nect requ node memo emor mory".split(" ")
)


def _commonness(gram: str) -> int:
    return (2 if gram in _FREQUENT else 0) + (1 if " " in gram else 0)


_book: Optional[Rulebook] = None


def rulebook() -> Rulebook:
    """Return the shipped rules."""
    global _book
    if _book is None:
        _book = Rulebook(_shipped())
    return _book


def with_own(own: List[Any]) -> Rulebook:
    """Return the shipped rules and a person's own, as the compiler makes them: where both know a line, the own one."""
    return Rulebook({**_shipped(), "own": own})


def _shipped() -> Dict[str, Any]:
    raw = pkgutil.get_data(__package__, "patterns.json")
    assert raw is not None
    data: Dict[str, Any] = json.loads(raw.decode("utf-8"))
    return data
