"""A page by its address: the id (``U7``) or the slug (``inodes-exhausted-or-hidden-hog``)."""

from __future__ import annotations

import json
import re

from outlive import errors
from outlive.advice import pages as shipped
from outlive.advice.search import INDEX

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from typing import Any

_ID = re.compile(r"[a-z]{1,3}\d{1,3}[a-z]?", re.IGNORECASE)


def page(name: str) -> dict[str, Any] | None:
    """Return the page called ``name``, with ``title_zh``, ``seen_zh`` and ``also`` beside what it holds.

    A page that only points to another one gives the other one. None: this is an ordinary word, look it up.
    Raises UnknownName for what looks like an id or a slug and is none, with the nearest that is.
    """
    every = shipped.pages()
    said = name.casefold()
    if "-" not in said and not _ID.fullmatch(said) and not any(p["slug"] == said for p in every.values()):
        return None
    with open(INDEX, encoding="utf-8") as file:
        index = json.load(file)
    beside = {doc[0]: doc for doc in index["docs"]}
    home = {other: doc[0] for doc in index["docs"] for other in (doc[0], *doc[8])}
    for id, found in every.items():
        if said in (id.casefold(), found["slug"].casefold()):
            doc = beside[home[id]]
            return {**every[home[id]], "title_zh": doc[4], "seen_zh": doc[6], "source_ids": doc[7], "also": doc[8]}
    if _ID.fullmatch(said) and said not in index["terms"]:
        raise _unknown(name, every, sorted(every))
    near = errors.nearest(name, (p["slug"] for p in every.values())) if "-" in said else ""
    if near and len(set(near.split("-")) & set(said.split("-"))) * 2 >= len(near.split("-")):
        raise _unknown(name, every, [near])
    return None


def _unknown(name: str, every: dict[str, Any], candidates: list[str]) -> errors.UnknownName:
    letters = re.match(r"[a-z]*", name.casefold()).group()  # type: ignore[union-attr]
    number = int(re.sub(r"\D", "", name) or 0)
    if len(candidates) > 1:
        kin = [id for id in candidates if re.fullmatch(rf"{letters}\d+[a-z]?", id.casefold())] if letters else []
        kin.sort(key=lambda id: abs(int(re.sub(r"\D", "", id)) - number))
        candidates = kin[:3]
    near = candidates[0] if candidates else ""
    return errors.UnknownName(
        f"no entry is called `{name}`" + (f"; did you mean `{near}` ({_title(near, every)})?" if near else ""),
        name=name,
        candidates=candidates,
        safe="Nothing was done.",
        next=[["outlive", "explain", near]] if near else [["outlive", "explain", "what", "you", "see"]],
    )


def _title(name: str, every: dict[str, Any]) -> str:
    return str(next(p["title"] for p in every.values() if name in (p["id"], p["slug"])))
