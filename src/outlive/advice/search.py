"""Which pages fit a description in somebody's own words: lexical, the same answer every time, nothing is fetched.

Two readings are added. The page as a whole: each term of the question counts by its rarity and by where the page
says it (BM25F). And the one line of the page that is nearest to the question as a whole, for a page that says many
things is not to win over the one that says exactly this.
"""

from __future__ import annotations

import json
import math
import os.path

from outlive.advice import words

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NamedTuple
else:
    from collections import namedtuple

INDEX = os.path.join(os.path.dirname(__file__), "search.json")

NEAREST = 0.4
"""What the nearest line counts beside the page as a whole."""
CONCEPT = 1.4
"""What a concept counts beside the very word."""
PAIR = 0.25
"""What a pair of Chinese characters counts: a word is about two of them, and a concept besides."""
SINGLE = 0.15
"""What one Chinese character counts: little, but it joins 磁盘 and 磁的盘."""
GUESSED = 0.7
"""What a word counts that was taken for a misspelt one."""
UNKNOWN = 6.0
"""How rare a word is taken to be that no page holds: it says that the question is about something else."""
WEAK = 0.4
"""Below this share of what a question could reach at most, the best page is called weak."""

if TYPE_CHECKING:

    class Hit(NamedTuple):
        """One page that was found."""

        id: str
        rule: str
        family: str
        title: str
        title_zh: str
        seen: str
        seen_zh: str
        source_ids: list[str]
        also: list[str]
        score: float
else:
    Hit = namedtuple("Hit", "id rule family title title_zh seen seen_zh source_ids also score")


class Terms:
    """What is known of every term, in one sorted text: taking it apart would cost more than all answers."""

    def __init__(self, text: str) -> None:
        self._text = text

    def row(self, term: str) -> str:
        """Return the row of a term, or nothing when no page holds it."""
        text, wanted = self._text, term + ";"
        low, high = 0, len(text)
        while low < high:
            start = text.rfind("|", low, (low + high) // 2) + 1 or low
            end = text.find("|", start)
            row = text[start : end if end >= 0 else len(text)]
            if row.startswith(wanted):
                return row
            if row.partition(";")[0] < term:
                low = start + len(row) + 1
            else:
                high = start
        return ""

    def __contains__(self, term: str) -> bool:
        return bool(self.row(term))

    def __iter__(self) -> Iterator[str]:
        return (row.partition(";")[0] for row in self._text.split("|"))


class Index:
    """The compiled index, loaded once."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.docs: list[list[Any]] = data["docs"]
        self.terms = Terms(data["terms"])
        self.lexicon = words.Lexicon(data["english"], data["han"])
        self._of: list[int] = data["of"]
        self._lengths: list[int] = data["lengths"]

    @classmethod
    def load(cls, path: str = INDEX) -> Index:
        """Return the index that is shipped."""
        with open(path, encoding="utf-8") as file:
            return cls(json.load(file))

    def search(self, question: str, limit: int = 5) -> tuple[list[Hit], bool]:
        """Return the best pages, best first, and whether even the first is weak. A score lies between 0 and 1."""
        asked, unknown = self._weighed(question)
        most = sum(asked.values())
        if not most:
            return [], True
        whole = [0.0] * len(self.docs)
        for term, rarity in asked.items():
            pairs = self._numbers(term, 1)
            for at in range(0, len(pairs), 2):
                whole[pairs[at]] += rarity * pairs[at + 1] / 1000
        near = self._nearest(asked)
        scores = [(whole[n] / most + NEAREST * near[n]) / (1 + NEAREST) for n in range(len(self.docs))]
        order = sorted(range(len(scores)), key=lambda n: (-scores[n], n))
        known = most / (most + unknown)
        hits = [Hit._make([*self.docs[n], round(scores[n] * known, 4)]) for n in order[:limit] if scores[n] > 0]
        return hits, not hits or hits[0].score < WEAK

    def _weighed(self, question: str) -> tuple[dict[str, float], float]:
        """Return the terms of a question with their weights, and the weight of those that no page knows."""
        asked: dict[str, float] = {}
        unknown = 0.0
        for term in words.terms(question, self.lexicon):
            counts = factor(term)
            known = term
            if term not in self.terms:
                known = self._guess(term)
                counts *= GUESSED
            if not known:
                unknown += counts * UNKNOWN
            elif known not in asked:
                asked[known] = counts * self._numbers(known, 0)[0] / 1000
        return asked, unknown

    def _guess(self, term: str) -> str:
        """Return the known word that a misspelt one was most probably meant to be, or nothing."""
        if len(term) < 4 or not term.isascii() or term[0] == "@" or not term.isalpha():
            return ""
        limit = 1 if len(term) < 8 else 2
        best, best_at = "", limit + 1
        for known in self.terms:
            if abs(len(known) - len(term)) > limit or not known.isalpha() or not known.isascii():
                continue
            if known[0] != term[0] and known[1:2] != term[1:2]:
                continue
            at = words.distance(term, known, limit)
            if at < best_at or (at == best_at <= limit and len(self.terms.row(known)) > len(self.terms.row(best))):
                best, best_at = known, at
        return best

    def _nearest(self, asked: dict[str, float]) -> list[float]:
        """Return for each page how near its nearest line is to the question (cosine over rarities)."""
        shared = [0.0] * len(self._of)
        for term, rarity in asked.items():
            for line in self._numbers(term, 2):
                shared[line] += rarity * rarity
        length = math.sqrt(sum(rarity * rarity for rarity in asked.values()))
        best = [0.0] * len(self.docs)
        for line, value in enumerate(shared):
            if value:
                near = 1000 * value / (length * self._lengths[line])
                if near > best[self._of[line]]:
                    best[self._of[line]] = near
        return best

    def _numbers(self, term: str, part: int) -> list[int]:
        """Return what is known of a term: its rarity, pages with weights, or lines. Read when it is asked for."""
        return [int(number) for number in self.terms.row(term).split(";")[part + 1].split()]


def factor(term: str) -> float:
    """Return what a kind of term counts, beside its rarity."""
    if term[0] == "@":
        return CONCEPT
    return 1.0 if term.isascii() else PAIR if len(term) > 1 else SINGLE
