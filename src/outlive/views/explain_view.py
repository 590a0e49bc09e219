"""Known failures as text and JSON: what fits a description, and one page."""

from __future__ import annotations

from outlive.views.printable import cut, fold

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from outlive.advice.search import Hit

SCHEMA = "outlive/explain/1"

_ZH = {
    "also called": "同一条目",
    "never": "切勿",
    "seen": "现象",
    "cause": "原因",
    "how to tell": "如何确认",
    "in the log": "日志里",
    "not when": "出现这些则不是",
    "exit code": "退出码",
    "run": "运行",
    "in the metrics": "指标",
    "in the code": "代码",
    "certain": "确定",
    "likely": "可能",
    "a program cannot tell": "程序判断的边界",
    "fix, in this order": "修复（按顺序）",
    "remedy": "处置",
    "prevention": "预防",
    "refines": "细化自",
    "note": "备注",
    "sources": "来源",
    "weak": "没有很贴切的条目；下面是最接近的，请看它们的「现象」是否相符，或用别的词再说一次。",
    "none": "没有找到。请换一种说法，或贴上报错里的一行。",
    "page": "看一页：",
}

_EN = {
    "weak": "Nothing fits well. The nearest are below: compare what is seen, or say it in other words.",
    "none": "Nothing was found. Say it in other words, or paste a line of the message.",
    "page": "one page: ",
}

_REMEDIES_ZH = {
    "resume": "从检查点恢复",
    "fix_and_relaunch": "修好再启动",
    "clean_and_resume": "清理后恢复",
    "move_box": "换机器",
    "stop_and_ask": "停下来问人",
    "no_action": "误报，不用处理",
    "advise": "建议",
    "prevent": "预防",
}


def found_data(question: str, hits: Sequence[Hit], weak: bool) -> dict[str, Any]:
    """Return the pages that fit a description as JSON-ready data."""
    return {
        "schema": SCHEMA,
        "question": question,
        "weak": weak,
        "results": [
            {
                "id": hit.id,
                "rule": hit.rule,
                "family": hit.family,
                "title": hit.title,
                "title_zh": hit.title_zh,
                "seen": hit.seen,
                "seen_zh": hit.seen_zh,
                "source_ids": hit.source_ids,
                "score": hit.score,
            }
            for hit in hits
        ],
    }


def found_lines(hits: Sequence[Hit], weak: bool, lang: str, width: int) -> list[str]:
    """Return the pages that fit as lines: id, title, what is seen."""
    if not hits:
        return [_word("none", lang)]
    lines = [_word("weak", lang), ""] if weak else []
    indent = max(len(hit.id) for hit in hits) + 2
    for hit in hits:
        zh = lang == "zh"
        title, seen = (hit.title_zh, hit.seen_zh) if zh and hit.title_zh else (hit.title, hit.seen)
        lines.append(cut(f"{hit.id:<{indent}}{title}  ({hit.rule})", width))
        if seen and seen != title:
            lines.append(cut(f"{'':<{indent}}{seen}", width))
    return [*lines, "", f"{_word('page', lang)}outlive explain {hits[0].id}"]


def page_data(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page as JSON-ready data."""
    return {
        "schema": SCHEMA,
        "weak": False,
        "results": [{**page, "rule": page["slug"], "score": 1.0}],
    }


def page_lines(page: Mapping[str, Any], lang: str, width: int) -> list[str]:
    """Return one page as lines, folded at ``width``."""
    zh = lang == "zh"
    title = page["title_zh"] if zh and page["title_zh"] else page["title"]
    lines = [f"{page['id']}  {title}", f"{page['family']}/{page['slug']}"]
    if zh and page["title_zh"]:
        lines.insert(1, page["title"])
    if page["also"]:
        lines.append(f"{_word('also called', lang)}: {', '.join(page['also'])}")
    if page.get("refines"):
        lines.append(f"{_word('refines', lang)}: {page['refines']}")
    lines += _part("seen", [*([page["seen_zh"]] if zh and page["seen_zh"] else []), page["seen"]], lang, width)
    lines += _part("cause", [page["cause_zh"] if zh and page["cause_zh"] else page["cause"]], lang, width)
    lines += _evidence(page, lang, width)
    fix = page["fix_zh"] if zh and page["fix_zh"] else page["fix"]
    lines += _part("fix, in this order", fix, lang, width, numbered=True)
    lines += _part("never", page.get("never_do", ()), lang, width, sign="! ")
    remedy = f"{page['remedy']}（{_REMEDIES_ZH[page['remedy']]}）" if zh else page["remedy"].replace("_", " ")
    lines += _part("remedy", [remedy], lang, width)
    lines += _part("prevention", [page.get("prevention", "")], lang, width)
    lines += _part("note", [page.get("note", "")], lang, width)
    sources = [f"{source['what']} ({source['month']})" for source in page["sources"]]
    return lines + _part("sources", [", ".join(page["source_ids"]), *sources], lang, width)


def _evidence(page: Mapping[str, Any], lang: str, width: int) -> list[str]:
    evidence = page.get("evidence") or {}
    rows: list[str] = []
    examples = (page.get("examples") or {}).get("match", ())
    if evidence.get("patterns"):
        rows += [f"{_word('in the log', lang)}: {line.strip()}" for line in examples[:4]]
    rows += [f"{_word('exit code', lang)}: {code}" for code in evidence.get("exit_codes", ())]
    rows += [f"{_word('run', lang)}: {p['cmd']}  -> {p['confirms']}" for p in evidence.get("probes", ())]
    rows += [f"{_word('in the metrics', lang)}: {rule}" for rule in evidence.get("metric_rules", ())]
    rows += [f"{_word('in the code', lang)}: {check['rule']}" for check in evidence.get("code_checks", ())]
    rows += [
        f"{_word(sure, lang)}: {page['confidence_when'][sure]}"
        for sure in ("certain", "likely")
        if (page.get("confidence_when") or {}).get(sure)
    ]
    if page.get("limits") and page["limits"] not in ("none known", "alias", "Advice."):
        rows.append(f"{_word('a program cannot tell', lang)}: {page['limits']}")
    return _part("how to tell", rows, lang, width, sign="- ")


def _part(name: str, texts: Iterable[str], lang: str, width: int, sign: str = "", numbered: bool = False) -> list[str]:
    """Return a heading with what stands under it, or nothing."""
    told = [text for text in texts if text]
    lines = []
    for n, text in enumerate(told, 1):
        lead = f"{n}. " if numbered else sign
        lines += fold(lead + " ".join(text.split()), max(20, width - 2), " " * len(lead))
    return ["", _word(name, lang), *(f"  {line}" for line in lines)] if lines else []


def _word(name: str, lang: str) -> str:
    return _ZH[name] if lang == "zh" else _EN.get(name, name)
