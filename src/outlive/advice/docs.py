"""The reference pages of the rules, one for each family, from the compiled pages. Written by ``tools/gen_docs.py``."""

from __future__ import annotations

import json
from typing import Any

from outlive.advice import pages, search

MADE = "<!-- made by `make docs` from the rules; correct the rule, not this page -->\n\n"

_LABELS = {
    "resume": "resume from the last checkpoint",
    "fix_and_relaunch": "fix, then start again",
    "clean_and_resume": "clean up, then resume",
    "move_box": "move to another box",
    "stop_and_ask": "stop and ask a person",
    "no_action": "none: a false alarm",
    "advise": "advice",
    "prevent": "prevent",
}


def render() -> dict[str, str]:
    """Return the text of each page by file name: ``<family>.md`` and ``README.md``, the list of all."""
    with open(search.INDEX, encoding="utf-8") as file:
        zh = {doc[0]: doc[4] for doc in json.load(file)["docs"]}
    families: dict[str, list[dict[str, Any]]] = {}
    for page in pages.pages().values():
        families.setdefault(page["family"], []).append(page)
    for entries in families.values():
        entries.sort(key=lambda page: _order(page["id"]))
    texts = {f"{family}.md": _family(family, entries, zh) for family, entries in families.items()}
    texts["README.md"] = _all(families, zh)
    return texts


def _all(families: dict[str, list[dict[str, Any]]], zh: dict[str, str]) -> str:
    count = sum(map(len, families.values()))
    lines = [MADE + "# Known failures\n"]
    lines.append(
        f"{count} pages in {len(families)} families. `outlive explain` finds them by what you see, `outlive diagnose`"
        "\nby what a log holds; `outlive explain ID` prints one.\n"
    )
    for family, entries in sorted(families.items()):
        lines += [f"## [{family}]({family}.md)\n", "| id | title | 标题 |", "|---|---|---|"]
        lines += [
            f"| [{p['id']}]({family}.md#{_anchor(p)}) | {_cell(p['title'])} | {_cell(zh.get(p['id'], ''))} |"
            for p in entries
        ]
        lines.append("")
    return "\n".join(lines)


def _family(family: str, entries: list[dict[str, Any]], zh: dict[str, str]) -> str:
    lines = [MADE + f"# {family}\n"]
    for page in entries:
        lines += _entry(page, zh.get(page["id"], ""))
    return "\n".join(lines).rstrip() + "\n"


def _entry(page: dict[str, Any], zh: str) -> list[str]:
    lines = [
        f"## {_anchor(page)}\n",
        f"**{page['id']}. {_text(page['title'])}**" + (f" {_text(zh)}" if zh else "") + "\n",
    ]
    facts = [page["severity"], _LABELS[page["remedy"]]]
    if page["class"]:
        facts.insert(0, f"class `{page['class']}`")
    if page.get("refines"):
        facts.append(f"refines {page['refines']}")
    lines += [" · ".join(facts) + "\n", f"**Seen.** {_text(page['seen'])}\n", f"**Cause.** {_text(page['cause'])}\n"]
    lines += _listed("How to tell.", _evidence(page))
    lines += _listed("Fix.", [_text(step) for step in page["fix"]], numbered=True)
    lines += _listed("Never.", [_text(step) for step in page.get("never_do", ())])
    for name, key in (("Prevention.", "prevention"), ("Note.", "note")):
        if page.get(key):
            lines.append(f"**{name}** {_text(page[key])}\n")
    told = "; ".join(f"{source['what']}, {source['month']}" for source in page["sources"])
    lines.append(f"Sources: {', '.join(page.get('source_ids', ()))} ({_text(told)})\n")
    return lines


def _evidence(page: dict[str, Any]) -> list[str]:
    evidence = page.get("evidence") or {}
    rows: list[str] = []
    if evidence.get("patterns"):
        rows += [f"in the log: {_code(line)}" for line in (page.get("examples") or {}).get("match", ())[:4]]
    if evidence.get("exit_codes"):
        rows.append("exit code: " + ", ".join(map(str, evidence["exit_codes"])))
    rows += [f"run {_code(p['cmd'])}: {_text(p['confirms'])}" for p in evidence.get("probes", ())]
    rows += [f"in the metrics: {_text(str(rule))}" for rule in evidence.get("metric_rules", ())]
    rows += [f"in the code: {_text(check['rule'])}" for check in evidence.get("code_checks", ())]
    sure = page.get("confidence_when") or {}
    rows += [f"{name}: {_text(sure[name])}" for name in ("certain", "likely") if sure.get(name)]
    return rows


def _listed(name: str, rows: list[str], numbered: bool = False) -> list[str]:
    if not rows:
        return []
    return [f"**{name}**\n", *(f"{f'{n}.' if numbered else '-'} {row}" for n, row in enumerate(rows, 1)), ""]


def _order(id: str) -> tuple[str, int, str]:
    letters = id.rstrip("0123456789ab") if id[:1].isupper() else "~" + id
    digits = "".join(c for c in id if c.isdigit()) if id[:1].isupper() else ""
    return letters, int(digits or 0), id


def _anchor(page: dict[str, Any]) -> str:
    return str(page["slug"])


def _code(text: str) -> str:
    """Return a line as code, fenced by more backticks than it holds."""
    line = " ".join(text.split())
    fence = "``" if "`" in line else "`"
    return f"{fence} {line} {fence}" if fence == "``" else f"`{line}`"


def _text(text: str) -> str:
    """Return prose with the signs escaped that Markdown would take for its own."""
    return "".join("\\" + c if c in "<>*_[]|`" else c for c in " ".join(str(text).split()))


def _cell(text: str) -> str:
    return _text(text)
