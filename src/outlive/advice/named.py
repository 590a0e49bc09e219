"""A page by its address: the id (``U7``) or the slug (``inodes-exhausted-or-hidden-hog``)."""

from __future__ import annotations

import functools
import json
import os
import re

from outlive import errors
from outlive.advice import pages as shipped
from outlive.advice import user_rules
from outlive.advice.search import INDEX, Terms

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from typing import Any

_ID = re.compile(r"[a-z]{1,3}\d{1,3}[a-z]?", re.IGNORECASE)


def page(name: str) -> dict[str, Any] | None:
    """Return the page called ``name``, with ``title_zh``, ``seen_zh`` and ``also`` beside what it holds.

    A page that only points to another one gives the other one. None: this is an ordinary word, look it up.
    ``user-...`` is a rule of the person's own. Raises UnknownName for what looks like an id and is none, with the
    nearest that is.
    """
    said = name.casefold()
    if said.startswith(user_rules.MARK):
        own = user_rules.load().pages.get(name)
        if own is not None:
            return {"source_ids": [], "title_zh": "", "seen_zh": "", "also": [], "cause_zh": "", "fix_zh": [], **own}
    every = shipped.pages()
    if "-" not in said and not _ID.fullmatch(said) and not any(p["slug"] == said for p in every.values()):
        return None
    index = _beside("search.json")
    beside = {doc[0]: doc for doc in index["docs"]}
    home = {other: doc[0] for doc in index["docs"] for other in (doc[0], *doc[8])}
    for id, found in every.items():
        if said in (id.casefold(), found["slug"].casefold()):
            at = home.get(id, id)
            zh = {"title_zh": "", "seen_zh": "", "also": [], **_chinese(every[at])}
            if at in beside:
                doc = beside[at]
                zh.update(title_zh=doc[4], seen_zh=doc[6], source_ids=doc[7], also=doc[8])
            return {**every[at], **zh}
    kin = _kin(said, every) if _ID.fullmatch(said) else []
    if kin and said not in Terms(index["terms"]) and said not in index["english"]:
        raise _unknown(name, kin, every)
    return None


def _chinese(page: dict[str, Any]) -> dict[str, Any]:
    """Return cause and fix in Chinese. A fix whose steps are not as many as the page's is out of date: left out."""
    said = _beside("zh.json").get(page["id"], {})
    fix = said.get("fix", [])
    return {"cause_zh": said.get("cause", ""), "fix_zh": fix if len(fix) == len(page["fix"]) else []}


@functools.cache
def _beside(name: str) -> dict[str, Any]:
    with open(os.path.join(os.path.dirname(INDEX), name), encoding="utf-8") as file:
        data: dict[str, Any] = json.load(file)
    return data


def _kin(name: str, every: dict[str, Any]) -> list[str]:
    """Return the entries of the same letters whose numbers are nearest."""

    def parts(id: str) -> tuple[str, int]:
        letters, _, digits = re.sub(r"(\d+)[a-z]?$", r" \1", id.casefold()).partition(" ")
        return letters, int(digits or 0)

    letters, number = parts(name)
    return sorted((id for id in every if parts(id)[0] == letters), key=lambda id: abs(parts(id)[1] - number))[:3]


def _unknown(name: str, kin: list[str], every: dict[str, Any]) -> errors.UnknownName:
    return errors.UnknownName(
        f"no entry is called `{name}`; did you mean `{kin[0]}` ({every[kin[0]]['title']})?",
        name=name,
        candidates=kin,
        safe="Nothing was done.",
        next=[["outlive", "explain", kin[0]]],
    )
