"""A platform as text and JSON: what survives which verb, which clocks tick, how the meter stops, who does each verb."""

from __future__ import annotations

import dataclasses
import datetime
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from outlive.platforms.model import DangerClock, Meter, Platform, Text, Tier, Verb

_WORDS: dict[str, dict[str, str]] = {
    "zh": {
        "conveniences": "便利功能",
        "no conveniences": "没有已知的便利功能",
        "danger clocks": "危险倒计时",
        "no clocks": "没有倒计时：不会自动删除或停机",
        "survival": "各操作后的存储",
        "must know": "须知",
        "tier": "存储",
        "where": "位置",
        "stop": "停机",
        "destroy": "销毁",
        "keeps": "保留",
        "loses": "失去",
        "nothing": "无",
        "unsure": "不确定",
        "look for": "控制台",
    }
}

_STARTS = {
    "box-started": ("after the box started", "开机后"),
    "box-stopped": ("after a stop", "停机后"),
    "box-released": ("at the release of the box", "释放时"),
    "box-idle": ("without activity", "无操作时"),
    "run-started": ("after the run started", "任务开始后"),
    "run-ended": ("after the run ended", "任务结束后"),
    "client-gone": ("after the browser was closed", "关闭浏览器后"),
    "in-box-shutdown": ("at a shutdown from inside the box", "在实例内关机时"),
    "balance-zero": ("after the balance reached zero", "余额归零后"),
    "rental-ended": ("after the rental's end date", "租期结束后"),
    "host-leaving": ("after the host's notice", "主机下架通知后"),
    "disk-created": ("from the creation of the disk", "创建磁盘起"),
    "last-access": ("after the last access", "最后访问后"),
    "invoice-issued": ("after the invoice", "账单发出后"),
    "period-began": ("of use in the period", "本周期用量"),
    "image-saving": ("while an image is saved", "保存环境期间"),
    "vendor-notice": ("by the vendor's notice", "以厂商通知为准"),
}

_DATED = ("box-started", "box-stopped", "box-released", "run-started", "run-ended", "balance-zero", "rental-ended")
"""Clocks that start with an event of which one can say "if that happened today"."""


def first_contact(platform: Platform, today: datetime.date, lang: str = "en") -> list[str]:
    """Return the lines that a person must read when a box of this platform is met for the first time.

    Conveniences that most people miss, what survives which verb, danger clocks with the dates they would have if
    they started ``today``, and the platform's own warnings. ``lang`` is `en` or `zh`; English where no Chinese exists.
    """
    lines = [f"{platform.names.said(lang)}: {platform.summary.said(lang)}"]
    if platform.conveniences:
        lines.append(_word("conveniences", lang) + ":")
        lines += [f"  + {_convenience(c.what, c.console, lang)}" for c in platform.conveniences]
    else:
        lines.append(_word("no conveniences", lang, "no known conveniences"))
    lines.append(_word("survival", lang, "what survives which verb") + ":")
    for verb in _ending_verbs(platform):
        lines.append(f"  {_said(verb, lang)}: {_survivors(platform, verb, lang)}")
    if platform.danger_clocks:
        lines.append(_word("danger clocks", lang) + ":")
        lines += [f"  ! {line}" for clock in platform.danger_clocks for line in [clock_line(clock, today, lang)]]
    else:
        lines.append(_word("no clocks", lang, "no danger clocks: nothing is deleted or stopped by itself"))
    if platform.first_contact:
        lines.append(_word("must know", lang, "know this") + ":")
        lines += [f"  - {line.said(lang)}" for line in platform.first_contact]
    return lines


def clock_line(clock: DangerClock, today: datetime.date, lang: str = "en") -> str:
    """Return one clock as a sentence with its date, as if it started ``today``."""
    when = _STARTS[clock.starts_when][1 if lang == "zh" else 0]
    what, consequence = clock.what.said(lang), clock.consequence.said(lang)
    if clock.after_hours is None:
        span = when
    elif clock.after_hours == 0:
        span = f"立即，{when}" if lang == "zh" else f"at once {when}"
    else:
        span = (
            f"{when} {_span(clock.after_hours, lang)}" if lang == "zh" else f"{_span(clock.after_hours, lang)} {when}"
        )
    dates = clock_dates(clock, today)
    if dates is not None:
        due, warn = dates
        if lang == "zh":
            span += f"（若今天开始：{due}" + (f"，{warn} 起提醒）" if warn < due else "）")
        else:
            span += f" (if that is today: {due}" + (f", reminded from {warn})" if warn < due else ")")
    avoid = clock.avoid_by.said(lang)
    return f"{what}, {span}: {consequence} {avoid}" if lang == "en" else f"{what}，{span}：{consequence}{avoid}"


def clock_dates(clock: DangerClock, today: datetime.date) -> tuple[datetime.date, datetime.date] | None:
    """Return (the date it fires, the date from which to remind) if it started ``today``.

    None for a clock without a fixed time, one that fires at once, or one whose start is no event of a day. Dates
    are rounded down: better a reminder too early.
    """
    if not clock.after_hours or clock.starts_when not in _DATED:
        return None
    due = today + datetime.timedelta(days=int(clock.after_hours // 24))
    warn_h = clock.after_hours - (clock.warn_before_hours or 0)
    return due, today + datetime.timedelta(days=int(warn_h // 24))


def ls_lines(platforms: Sequence[Platform], lang: str = "en") -> list[str]:
    """Return the table of `platforms ls`: id, name, kind, meter stop, spot grace, mirrors, confidence, age."""
    rows = [["id", "name", "kind", "meter stop", "undone?", "spot", "mirrors", "verified", "confidence"]]
    for p in platforms:
        verb = p.verb(p.meter_stop_verb)
        rows.append(
            [
                p.id + ("*" if p.overridden else ""),
                p.names.said(lang),
                p.kind,
                _said(verb, lang) if p.has_meter else "none (own machine)",
                verb.reversible if p.has_meter else "-",
                _grace(p),
                p.network.mirrors_needed,
                min(dataclasses.astuple(p.verified)),
                p.confidence,
            ]
        )
    lines = _table(rows)
    if any(p.overridden for p in platforms):
        lines.append("* some facts are your own: outlive platforms show ID")
    return lines


def show_lines(platform: Platform, today: datetime.date, lang: str = "en") -> list[str]:
    """Return the page of `platforms show`: survival matrix, meter, clocks, six verbs, first contact, provenance."""
    p = platform
    lines = [
        f"{p.names.en}" + (f" ({p.names.zh})" if p.names.zh and p.names.zh != p.names.en else "") + f"  [{p.id}]",
        p.summary.said(lang),
        "",
        f"kind {p.kind}; spot {p.spot.available}, {_grace(p)}; mirrors needed {p.network.mirrors_needed}; "
        f"egress free {p.network.egress_free}",
        "",
        *_section("Storage: what survives", _matrix(p, lang)),
        *_section("The meter", _meter(p, lang)),
        *_section("Danger clocks", [clock_line(c, today, lang) for c in p.danger_clocks] or ["none"]),
        *_section("Getting a box", [f"{i}. {step.said(lang)}" for i, step in enumerate(p.launch.steps, 1)]),
        *_section("The six verbs", _table([[n, b.how, b.what.said(lang)] for n, b in p.six_verbs.items()])),
        *_section("After a restart", [_relaunch(p)]),
        *_section("First contact", first_contact(p, today, lang)[1:]),
        *_section("Traps of this platform", [f"{g.id} ({g.severity}): {g.symptom.said(lang)}" for g in p.gotchas]),
    ]
    if p.overridden:
        lines += _section("Your own facts", [f"{at} comes from your file" for at in p.overridden])
    v = p.verified
    lines.append(
        f"confidence {p.confidence}; verified: storage {v.storage}, billing {v.billing}, verbs {v.verbs}, "
        f"clocks {v.danger_clocks}; {len(p.sources)} sources"
    )
    return lines


def ls_data(platforms: Sequence[Platform]) -> dict[str, Any]:
    """Return `platforms ls --json`."""
    rows = [
        {
            "id": p.id,
            "names": dataclasses.asdict(p.names),
            "kind": p.kind,
            "confidence": p.confidence,
            "verified": dataclasses.asdict(p.verified),
            "meter_stop_verb": p.meter_stop_verb,
            "meter_stop_reversible": p.verb(p.meter_stop_verb).reversible,
            "spot": p.spot.available,
            "grace_s": p.spot.grace_s,
            "mirrors_needed": p.network.mirrors_needed,
            "detach": p.detach.primitive,
            "overridden": list(p.overridden),
        }
        for p in platforms
    ]
    return {"schema": "outlive/platforms/1", "platforms": rows}


def show_data(platform: Platform, today: datetime.date) -> dict[str, Any]:
    """Return `platforms show --json`: all facts, and what follows from them."""
    clocks = []
    for clock in platform.danger_clocks:
        dates = clock_dates(clock, today)
        due, warn = dates if dates else (None, None)
        clocks.append({"id": clock.id, "if_today": due and due.isoformat(), "warn_from": warn and warn.isoformat()})
    return {
        "schema": "outlive/platforms/1",
        "platform": dataclasses.asdict(platform),
        "survival": {
            verb.name: {"safe": list(platform.safe_tiers(verb.name)), "lost": list(platform.lost_by(verb.name))}
            for verb in platform.verbs
        },
        "bills_after_full_stop": [m.id for m in platform.bills_after(platform.full_meter_stop)],
        "clocks": clocks,
        "first_contact": first_contact(platform, today),
    }


def steps_lines(verb: Verb, lang: str = "en") -> list[str]:
    """Return what a person does to carry out ``verb``, in the console's words, and how they see that it worked."""
    lines = [f"{i}. {step.said(lang)}" for i, step in enumerate(verb.steps, 1)]
    return [*lines, f"then: {verb.confirm.seen.said(lang)}"]


def _matrix(p: Platform, lang: str) -> list[str]:
    rows = [["tier", "where", "stop", "destroy", "shared", "roles", "caps"]]
    for t in p.tiers:
        rows.append(
            [
                t.label.said(lang),
                _where(t),
                _survival(t.survives_stop, t.survives_stop_hours),
                _survival(t.survives_destroy, t.survives_destroy_hours),
                t.shared,
                " ".join(t.roles) or "-",
                _caps(t),
            ]
        )
    lines = _table(rows)
    for t in p.tiers:
        needs = t.conditions
        if needs.present_when or needs.absent_when:
            way, id = (
                ("there only if", needs.present_when) if needs.present_when else ("not there if", needs.absent_when)
            )
            lines.append(f"{t.label.said(lang)} is {way}: {_condition(p, id or '', lang)}")
    for verb in _ending_verbs(p):
        lines.append(f"{_said(verb, lang)} ({verb.name}): {_survivors(p, verb, lang)}")
    return lines


def _meter(p: Platform, lang: str) -> list[str]:
    if not p.has_meter:
        return ["nothing bills; `down` only detaches"]
    verb = p.verb(p.meter_stop_verb)
    lines = [f"stops with: {_said(verb, lang)} ({verb.name}), undone? {verb.reversible}; {_who(verb)}"]
    done: list[str] = []
    for i, name in enumerate(p.full_meter_stop, 1):
        part = p.verb(name)
        done.append(name)
        left = p.bills_after(done)
        lines.append(f"{i}. {_said(part, lang)} ({name}, {_who(part)}); still bills: {_meters(left, lang)}")
    if p.self_stop is not None:
        lines.append(f"from inside the box: {' '.join(p.self_stop.argv)} ({p.self_stop.verb})")
    if p.billing.low_balance is not None:
        lines.append(p.billing.low_balance.said(lang))
    return lines


def _relaunch(p: Platform) -> str:
    hook = p.relaunch_hook
    if hook is None:
        return "nothing starts by itself: a run resumes at the next contact of a client"
    at = f" {hook.path}" if hook.path else ""
    return f"{hook.kind}{at}: a run resumes by itself where you armed it, else at the next contact of a client"


def _ending_verbs(p: Platform) -> list[Verb]:
    """The verbs that decide over storage: pause, then end, then the separate deletions."""
    order = ("pause", "destroy", "cancel", "cleanup")
    return sorted((v for v in p.verbs if v.role in order), key=lambda v: order.index(v.role))


def _survivors(p: Platform, verb: Verb, lang: str) -> str:
    def names(wanted: Iterable[str]) -> str:
        listed = [p.tier(name).label.said(lang) for name in wanted]
        return ("、" if lang == "zh" else ", ").join(listed) or _word("nothing", lang)

    text = f"{_word('keeps', lang)} {names(verb.keeps)}; {_word('loses', lang)} {names(verb.deletes)}"
    return text + (f"; {_word('unsure', lang)} {names(verb.unsure)}" if verb.unsure else "")


def _condition(p: Platform, id: str, lang: str) -> str:
    return next((c.what.said(lang) for c in p.conditions if c.id == id), id)


def _said(verb: Verb, lang: str) -> str:
    """The verb in English, and in the console's own language where that is another."""
    if lang == "zh" or verb.label.zh is None:
        return verb.label.said(lang)
    return f"{verb.label.en} {verb.label.zh}"


def _convenience(what: Text, console: Text | None, lang: str) -> str:
    if console is None:
        return what.said(lang)
    return f"{what.said(lang)} ({_word('look for', lang)}: {console.zh or console.en})"


def _who(verb: Verb) -> str:
    if verb.api is None:
        return "by hand"
    return "by API" if verb.api_when is None else f"by hand; by API with {verb.api_when}"


def _where(t: Tier) -> str:
    if t.path is not None:
        return t.path
    if t.probe is None:
        return "not mounted"
    return {"env": f"${t.probe.value}", "glob": t.probe.value, "given": f"you name it ({t.probe.value})"}[t.probe.by]


def _survival(word: str, hours: int | None) -> str:
    return f"{hours} h" if word == "limited" else word


def _caps(t: Tier) -> str:
    caps = []
    if t.size_cap_bytes is not None:
        caps.append(f"{t.size_cap_bytes / 1e9:.0f} GB")
    if t.inode_cap is not None:
        caps.append(f"{t.inode_cap} files")
    return ", ".join(caps) or "-"


def _grace(p: Platform) -> str:
    if p.spot.available == "no":
        return "not taken back"
    return "grace unknown" if p.spot.grace_s is None else f"{p.spot.grace_s} s grace"


def _meters(meters: Sequence[Meter], lang: str) -> str:
    return ", ".join(m.what.said(lang) for m in meters) or "nothing"


def _span(hours: float, lang: str) -> str:
    if hours >= 48 and hours % 24 == 0:
        return f"{int(hours // 24)} 天" if lang == "zh" else f"{int(hours // 24)} days"
    return f"{hours:g} 小时" if lang == "zh" else f"{hours:g} h"


def _word(key: str, lang: str, english: str = "") -> str:
    return _WORDS.get(lang, {}).get(key) or english or key


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *(f"  {line}" for line in lines), ""] if lines else []


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell + " " * (widths[i] - _width(cell)) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _width(text: str) -> int:
    """Columns that ``text`` takes in a terminal: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
