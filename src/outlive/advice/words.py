"""From a question or a page to the terms that are compared: stems, concepts, pairs of Chinese characters.

The same function reads both sides, so what is written here never has to be undone. Only the standard library.
"""

from __future__ import annotations

import re
import unicodedata

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

HAN = "\u3400-\u4dbf\u4e00-\u9fff"

_PIECE = re.compile(rf"[{HAN}]+|[a-z0-9_^]+(?:[.\-'][a-z0-9_]+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])")
IS_HAN = re.compile(f"[{HAN}]")

_STOP = frozenset(
    "a an the is are was were be been am i my me we our you your it its this that these those of to in on at "
    "for from by with and or but so as if then than there here do does did doing done have has had can could "
    "should would will may might must what which who why how when where get gets got getting just also very "
    "too really some any all not no only still even after before while during about into out up down over "
    "again s t d ll re ve m don doesn didn isn please help anyone someone somebody something thing things "
    "like want need know think see seems seem tell use used using happens happen happened problem issue "
    "question way make makes made go goes going let say says said one two now yet because much many more most "
    "other same such every each both me us them they he she him her".split()
)

_STOP_HAN = frozenset(
    "怎么办 为什么 是不是 有没有 怎么样 怎么回事 怎么 如何 什么 请问 求助 大佬 各位 这个 那个 然后 但是 "
    "可是 不过 因为 所以 如果 就是 还是 或者 以及 已经 可以 应该 需要 是否 感觉 好像 似乎 的时候 时候 "
    "一个 一下 一些 总是 一直 老是 结果 出现 遇到 发现 我的 我们 现在 这样 那么 而且 的 了 吗 呢 吧 啊 着 "
    "是 我 你 他 它 这 那 就 都 也 很 在 把 被 和 与 及 但 却 会 要 能 该 让 给 从 到 对 之 其 有 还".split()
)


def stem(word: str) -> str:
    """Return a word without its English endings: enough that `resuming`, `resumes` and `resumed` are one."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    word = word.replace("isation", "ization").replace("our", "or") if len(word) > 5 else word
    for ending in ("ization", "izing", "ising", "ized", "ised", "ize", "ise"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)] + "iz"
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and re.search("[aeiouy]", word[: -len(ending)]):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def plain(text: str) -> str:
    """Return the text in one width and lower case, with joined names (`GradScaler`) also taken apart."""
    text = unicodedata.normalize("NFKC", text)
    apart = _CAMEL.sub(" ", text)
    if apart != text:
        text = f"{text} {' '.join(w for w in apart.split() if w not in text.split())}"
    return text.lower()


class Lexicon:
    """Concepts and the words for them, ready to be found in a text.

    ``english`` holds phrases by their first stem, ``han`` words by their first character, each with its concept.
    """

    def __init__(self, english: dict[str, list[Any]], han: dict[str, list[Any]]) -> None:
        self.english, self.han = english, han

    @classmethod
    def of(cls, concepts: Mapping[str, Iterable[str]]) -> Lexicon:
        """Return the lexicon of these concepts."""
        english: dict[str, list[Any]] = {}
        han: dict[str, list[Any]] = {}
        for name, words in concepts.items():
            for word in dict.fromkeys(unicodedata.normalize("NFKC", word).lower() for word in words):
                if IS_HAN.search(word):
                    word = word.replace(" ", "")
                    han.setdefault(word[0], []).append([word, name])
                elif stems := [stem(part) for part in _parts(word)]:
                    english.setdefault(stems[0], []).append([stems, name])
        for known in han.values():
            known.sort(key=lambda pair: -len(pair[0]))
        return cls(english, han)

    def in_stems(self, stems: list[str]) -> list[str]:
        """Return the concepts whose English words or phrases occur in a row of stems."""
        found = []
        for at, first in enumerate(stems):
            for phrase, name in self.english.get(first, ()):
                if len(phrase) == 1 or stems[at : at + len(phrase)] == phrase:
                    found.append(name)
        return found

    def in_han(self, text: str) -> list[str]:
        """Return the concepts whose Chinese words occur in a text without blanks, each place by its longest match."""
        found = []
        until = 0
        for at, first in enumerate(text):
            longest = 0
            for word, name in self.han.get(first, ()):
                if len(word) < longest:
                    break
                if at + len(word) > until and text.startswith(word, at):
                    longest = len(word)
                    found.append(name)
            until = max(until, at + longest)
        return found


def terms(text: str, lexicon: Lexicon) -> list[str]:
    """Return the terms of a text: stems as they are, pairs of characters as they are, concepts as ``@name``."""
    text = plain(text)
    out: list[str] = []
    stems: list[str] = []
    for piece in _PIECE.findall(text):
        if IS_HAN.match(piece):
            out += _pairs(piece)
        else:
            parts = _parts(piece)
            stems += [stem(part) for part in parts]
            out += [stem(part) for part in parts if part not in _STOP and (len(part) > 1 or part.isdigit())]
            if len(parts) > 1:
                out.append(piece)
    concepts = lexicon.in_stems(stems)
    if IS_HAN.search(text):
        concepts += lexicon.in_han(re.sub(r"\s+", "", text))
    return out + [f"@{name}" for name in dict.fromkeys(concepts)]


def distance(one: str, other: str, limit: int) -> int:
    """Return how many letters differ (also swapped neighbours), or ``limit + 1`` when it is more than ``limit``."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    older: list[int] = []
    above: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        older, above, row = above, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]


def _parts(piece: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", piece) if part]


def _pairs(han: str) -> list[str]:
    """Return pairs of neighbours and single characters, without the words that every question holds."""
    out: list[str] = []
    run = ""
    at = 0
    while at <= len(han):
        stop = next((n for n in (4, 3, 2, 1) if han[at : at + n] in _STOP_HAN), 0) if at < len(han) else 1
        if stop:
            out += [run[i : i + 2] for i in range(len(run) - 1)]
            out += run
            run = ""
        else:
            run += han[at]
        at += stop or 1
    return out
