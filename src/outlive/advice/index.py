"""From the pages, ``asked/*.yaml`` and ``lexicon/*.yaml`` to ``search.json``, which is what `explain` searches.

A part of ``python -m outlive.advice.compile``.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from outlive.advice import search, words
from outlive.errors import BadConfig
from outlive.platforms import source

ASKED = Path(__file__).with_name("asked")
INDEX = Path(search.INDEX)
ZH = Path(__file__).with_name("zh.json")
LEXICON = Path(__file__).with_name("lexicon")

WEIGHTS = {
    "asked": 3.0, "title": 1.0, "slug": 0.7, "seen": 1.5, "cause": 0.8, "fix": 0.7, "lines": 0.8, "class": 0.3,
    "rest": 0.05,
}  # fmt: skip
"""How much a word counts by where it stands."""
ENTRY = re.compile(r"[A-Z]{1,3}\d{1,3}[a-z]?")
"""The id of an entry, as people quote it."""
LENGTH = 0.6
"""How far a long field dilutes a word: 0 not at all, 1 fully."""
SATURATION = 1.6
"""At this weighted count a word has half of its greatest effect."""


def read_asked(folder: Path = ASKED) -> dict[str, dict[str, Any]]:
    """Return what is written beside each page, by its id. Raises BadConfig with file and key."""
    asked: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for id, entry in source.read(path).items():
            if not {"title", "seen", "asked"} <= set(entry) <= {"title", "seen", "cause", "fix", "asked"}:
                raise BadConfig("an entry holds title, seen, asked and perhaps cause, fix", file=str(path), key=id)
            if not all(isinstance(line, str) for line in [*entry["asked"], *entry.get("fix", ())]):
                raise BadConfig("every line of asked and fix is a text", file=str(path), key=id)
            if id in asked:
                raise BadConfig("this page is written about twice", file=str(path), key=id)
            asked[id] = entry
    return asked


def read_concepts(folder: Path = LEXICON) -> dict[str, list[str]]:
    """Return the words of every concept. Raises BadConfig with file and key."""
    concepts: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for name, said in source.read(path).items():
            if not isinstance(said, list) or not said:
                raise BadConfig("a concept is a list of words", file=str(path), key=name)
            concepts[name] = [*concepts.get(name, ()), *(str(word) for word in said)]
    return concepts


def build(
    pages: Mapping[str, dict[str, Any]], asked: Mapping[str, dict[str, Any]], concepts: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Return the index as plain data."""
    lexicon = words.Lexicon.of(concepts)
    same, part = same_as(pages), _part_of(pages)
    docs: list[list[Any]] = []
    fields: list[dict[str, Counter[str]]] = []
    lines: list[tuple[int, list[str]]] = []
    for id, page in pages.items():
        if id in same or id in part:
            continue
        also = [other for other, to in same.items() if to == id]
        beside = asked.get(id, {"title": "", "seen": "", "asked": []})
        questions = [line for one in (id, *also) for line in asked.get(one, {}).get("asked", ())]
        ids = list(dict.fromkeys([*page.get("source_ids", ()), *also]))
        texts = {**_texts(page), "asked": questions}
        texts["title"] = [page["title"], beside["title"]]
        texts["seen"] = [page["seen"], beside["seen"]]
        texts["cause"] += [beside.get("cause", "")]
        texts["fix"] = [*texts["fix"], *beside.get("fix", ())]
        for other in (pages[other] for other, to in part.items() if to == id):
            texts["rest"] += [other["title"], other["seen"], other["cause"]]
            texts["lines"] += _texts(other)["lines"]
        whole = [*questions, page["title"], beside["title"], page["seen"], *re.split("[：；]", beside["seen"])]
        lines += [(len(docs), sorted(_telling(words.terms(line, lexicon)))) for line in whole if line]
        fields.append({name: _counted(said, lexicon) for name, said in texts.items()})
        docs.append(
            [id, page["slug"], page["family"], page["title"], beside["title"], page["seen"], beside["seen"], ids, also]
        )
    rarity, pages_of = _postings(fields)
    held, lengths = _lines(lines, rarity)
    rows = [
        f"{term};{rarity[term]};{' '.join(map(str, found))};{' '.join(map(str, held.get(term, ())))}"
        for term, found in sorted(pages_of.items())
    ]
    of = [doc for doc, _ in lines]
    return {"v": 1, "docs": docs, "english": lexicon.english, "han": lexicon.han, "terms": "|".join(rows), "of": of,
            "lengths": lengths}  # fmt: skip


def render(pages: Mapping[str, dict[str, Any]]) -> bytes:
    """Return ``search.json`` for these pages. Raises BadConfig for a source that is wrong."""
    asked = read_asked()
    for id in asked:
        if id not in pages:
            raise BadConfig("there is no such page", file=str(ASKED), key=id)
    data = build(pages, asked, read_concepts())
    return (json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace('],"', '],\n"') + "\n").encode()


def render_zh() -> bytes:
    """Return ``zh.json``: cause and fix of every page that has them in Chinese."""
    said = {id: {key: entry[key] for key in ("cause", "fix") if entry.get(key)} for id, entry in read_asked().items()}
    said = {id: entry for id, entry in sorted(said.items()) if entry}
    return (json.dumps(said, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def same_as(pages: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return the pages that only point to another one, with that one: found there, opened there."""
    found = {}
    for id, page in pages.items():
        said = re.fullmatch(r"See (\w+)", page["title"])
        if said and said.group(1) in pages:
            found[id] = said.group(1)
    return found


def _part_of(pages: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return the rules that read more lines for an entry, with that entry: found there, a page of their own."""
    found = {}
    for id, page in pages.items():
        if not ENTRY.fullmatch(id):
            homes = [home for home in page.get("source_ids", ()) if home in pages and home != id]
            if homes:
                found[id] = homes[0]
    return found


def _texts(page: Mapping[str, Any]) -> dict[str, list[str]]:
    evidence = page.get("evidence") or {}
    examples = page.get("examples") or {}
    cause = page["cause"] if page["cause"] != "see the referenced rule or the title" else ""
    return {
        "slug": [page["slug"].replace("-", " ")],
        "cause": [cause],
        "fix": page["fix"],
        "lines": [*examples.get("match", ()), *(_literals(p["re"]) for p in evidence.get("patterns", ()))],
        "class": [(page["class"] or "").replace("_", " ")],
        "rest": [
            page.get("prevention", ""),
            page.get("limits", ""),
            page.get("note", ""),
            *page.get("never_do", ()),
            *(str(rule) for rule in evidence.get("metric_rules", ())),
            *(check.get("rule", "") for check in evidence.get("code_checks", ())),
            *(probe.get("confirms", "") for probe in evidence.get("probes", ())),
        ],
    }


def _literals(regex: str) -> str:
    """Return the words that a pattern looks for, without its signs."""
    text = re.sub(r"\(\?[a-z]+\)|\(\?[:!=<]+|\\[bBdDsSwWAZ]|\\n|\{[\d,]+\}", " ", regex)
    text = re.sub(r"\[[^\]]*\][*+?]?", " ", text)
    return re.sub(r"[\\^$.|?*+()\[\]{}]", " ", text)


def _telling(terms: Iterable[str]) -> set[str]:
    """Return the terms by which lines are compared: single Chinese characters stand in too many."""
    return {term for term in terms if len(term) > 1 or term.isascii()}


def _counted(texts: Iterable[str], lexicon: words.Lexicon) -> Counter[str]:
    return Counter(term for text in texts for term in words.terms(text, lexicon))


def _postings(fields: list[dict[str, Counter[str]]]) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return for every term its rarity, and the pages that hold it, each followed by the term's saturated weight."""
    length = {name: sum(f[name].total() for f in fields) / len(fields) or 1 for name in WEIGHTS}
    found: dict[str, list[int]] = {}
    for n, field in enumerate(fields):
        heavy: dict[str, float] = {}
        for name, factor in WEIGHTS.items():
            dilute = 1 - LENGTH + LENGTH * field[name].total() / length[name]
            for term, count in field[name].items():
                heavy[term] = heavy.get(term, 0.0) + factor * count / dilute
        for term, weight in heavy.items():
            found.setdefault(term, []).extend((n, round(1000 * weight / (weight + SATURATION))))
    rarity = {}
    for term, pairs in found.items():
        holding = len(pairs) / 2
        rarity[term] = round(1000 * math.log(1 + (len(fields) - holding + 0.5) / (holding + 0.5)))
    return rarity, found


def _lines(lines: list[tuple[int, list[str]]], rarity: Mapping[str, int]) -> tuple[dict[str, list[int]], list[int]]:
    """Return for every term the lines that hold it, and the length of each line as a vector of rarities."""
    held: dict[str, list[int]] = {}
    for at, (_, terms) in enumerate(lines):
        for term in terms:
            held.setdefault(term, []).append(at)
    lengths = [math.sqrt(sum((search.factor(t) * rarity[t] / 1000) ** 2 for t in terms)) for _, terms in lines]
    return held, [round(1000 * length) or 1000 for length in lengths]
