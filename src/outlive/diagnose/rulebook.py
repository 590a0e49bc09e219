"""The compiled rules: which lines of a log say which class. Loaded once; a pattern is compiled when it is needed first.

Each pattern comes with strings of which a line must hold one. A string is found through a piece of its rarest word:
what strings a word of a log can be part of is worked out once for each word, and most words are part of none.
"""

import json
import pkgutil
import re
from typing import Any, Dict, List, NamedTuple, Optional, Pattern, Set, Tuple

from .prefixes import strip_prefixes

CONCLUSIVE, INDICATOR, TRIGGER = 0, 1, 2
KEY_MIN, KEY_MAX = 3, 6
"""Letters of the piece of a word through which a string is found."""
_CACHE_MAX = 20000
_WORDS_MAX = 50000
_LONG_WORD = 40  # identifiers and encoded data: looked at, not remembered
_PLACED = re.compile(r"(?<!\[)\^|\$|\\[bBAZ]|\(\?<?[!=]")  # what stands beside a match decides too
_LETTERS = bytes(c if 97 <= c <= 122 else 32 for c in range(256))
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
        self._always: List[Tuple[str, List[int]]] = []  # strings without a word to find them by
        self._keyed: Dict[bytes, List[Tuple[str, List[int]]]] = {}
        self._words: Dict[bytes, List[Tuple[str, List[int]]]] = {}
        self._boring: Set[bytes] = set()
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
            best, rank = b"", (False, 0)
            for run in string.encode("utf-8").translate(_LETTERS).split():
                run = run[:KEY_MAX]
                if len(run) >= KEY_MIN and (run not in _FREQUENT, len(run)) > rank:
                    best, rank = run, (run not in _FREQUENT, len(run))
            if best:
                self._keyed.setdefault(best, []).append((string, pieces))
            else:
                self._always.append((string, pieces))
        self._keys = frozenset(self._keyed)

    def hits(self, text: str, bare: Optional[str] = None, template: Optional[str] = None) -> Tuple[Hit, ...]:
        """Return the rules that a line matches.

        ``bare`` is the line without the prefixes of launchers and loggers, ``template`` the line with each of its
        numbers made 0; both are worked out where they are not given.
        """
        if len(text) >= 400:
            return self._find(text, bare)
        if template is None:
            template = _DIGITS.sub("0", text)
        known = self._cache.get(template)
        if known is not None and (not known or not counts(text)):
            return known
        found = self._find(text, bare)
        if template:
            if len(self._cache) >= _CACHE_MAX:
                self._cache.clear()
            self._cache[template] = found
        return found

    def _strings(self, word: bytes) -> List[Tuple[str, List[int]]]:
        """Return the strings that a line with this word may hold."""
        pieces = {word[i : i + n] for n in range(KEY_MIN, KEY_MAX + 1) for i in range(len(word) - n + 1)}
        found = [entry for key in self._keys & pieces for entry in self._keyed[key]]
        if len(word) <= _LONG_WORD:
            if len(self._words) + len(self._boring) >= _WORDS_MAX:
                self._words.clear()
                self._boring.clear()
            if found:
                self._words[word] = found
            else:
                self._boring.add(word)
        return found

    def _find(self, text: str, bare: Optional[str]) -> Tuple[Hit, ...]:
        low = text.lower()
        words = set(low.encode("utf-8", "replace").translate(_LETTERS).split())
        words -= self._boring
        candidates: Set[int] = set()
        for string, pieces in self._always:
            if string in low:
                candidates.update(pieces)
        for word in words:
            found = self._words.get(word)
            for string, pieces in self._strings(word) if found is None else found:
                if string in low:
                    candidates.update(pieces)
        if not candidates:
            return ()
        best: Dict[int, int] = {}
        for piece in sorted(candidates):
            number, source, role = self._pieces[piece]
            if best.get(number, TRIGGER + 1) <= role:
                continue
            pattern = self._compiled.get(piece)
            if pattern is None:
                pattern = self._compiled[piece] = re.compile(source)
            self.tried += 1
            if pattern.search(text):
                best[number] = role
            elif _PLACED.search(source):  # else what is in the line's rest is in the line
                if bare is None:
                    bare = strip_prefixes(text).strip()
                if bare != text and pattern.search(bare):
                    best[number] = role
        kept = [number for number in sorted(best) if not self._refused(number, text)]
        if kept and kept[-1] >= self.own_from and any(n >= self.own_from and best[n] != TRIGGER for n in kept):
            kept = [number for number in kept if number >= self.own_from]
        return tuple(Hit(self.rules[number], best[number]) for number in kept)

    def _refused(self, number: int, text: str) -> bool:
        return any(re.search(anti, text) for anti in self._anti.get(number, ()))


def counts(text: str) -> bool:
    """Whether the digits of a line can decide: exit codes, signals, error numbers."""
    low = text.lower()
    return any(word in low for word in _NUMBERED)


_NUMBERED = ("code", "errno", "error", "signal", "xid", "%", "status", "scale", "received", "-rw")
_FREQUENT = frozenset(
    word.encode()[:KEY_MAX]
    for word in (
        "and are array batch bytes call checkpoint code config connection could cuda data device does epoch error "
        "errors exit failed file for found from gpu has init input iter layer line list load local log loss memory "
        "model module name nan nccl node not num object out output path process python rank rate run runtime set "
        "size state step system tensor the time torch train training type use user using value version wait was "
        "warning weights with worker"
    ).split()
)
"""Words that stand in ordinary lines: a string is found through another of its words where it has one."""


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
