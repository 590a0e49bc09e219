"""Write the reference pages of the platforms from their facts.

python -m outlive.platforms.docs            write docs/reference/platforms/
python -m outlive.platforms.docs --check    write nothing; exit 1 when a page is stale
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from outlive.platforms.load import COMPILED, all_ids, load
from outlive.platforms.model import Platform, Tier, Verb

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference" / "platforms"
_MADE = "<!-- Made by `python -m outlive.platforms.docs` from the facts. Correct the facts, not this page. -->"


def render(compiled: Path = COMPILED) -> dict[str, str]:
    """Return every page by file name: one per platform, and ``index.md`` with a table of all."""
    platforms = [load(id, compiled=compiled) for id in all_ids(compiled=compiled)]
    pages = {f"{p.id}.md": _page(p) for p in platforms}
    pages["index.md"] = _index(platforms)
    return pages


def stale(pages: dict[str, str], to: Path = PAGES) -> list[str]:
    """Return the names in ``to`` that differ from ``pages``, are missing, or belong to no platform any more."""
    there = {p.name for p in to.glob("*.md")} if to.is_dir() else set()
    differs = [n for n, text in pages.items() if n not in there or (to / n).read_text(encoding="utf-8") != text]
    return sorted({*differs, *(there - set(pages))})


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m outlive.platforms.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    parser.add_argument("--to", type=Path, default=PAGES, help="the directory of the pages")
    args = parser.parse_args(argv)
    pages = render()
    changed = stale(pages, args.to)
    for name in changed:
        print(f"{'stale' if args.check else 'wrote'}: {args.to / name}", file=sys.stderr)
    if args.check:
        return 1 if changed else 0
    args.to.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in pages:
            (args.to / name).write_text(pages[name], encoding="utf-8")
        else:
            (args.to / name).unlink()
    return 0


def _index(platforms: Sequence[Platform]) -> str:
    rows = [
        [
            f"[{p.names.en}]({p.id}.md)",
            p.kind,
            p.detach.primitive,
            _label(p.verb(p.meter_stop_verb)) if p.has_meter else "none",
            p.verb(p.meter_stop_verb).reversible if p.has_meter else "-",
            ", ".join(t.label.en for t in p.tiers_for("durable")) or "off the box only",
            "no" if p.spot.available == "no" else f"{p.spot.available}, {_seconds(p.spot.grace_s)}",
            p.network.mirrors_needed,
            f"{p.confidence}, {p.verified.billing}",
        ]
        for p in platforms
    ]
    head = [
        "platform",
        "kind",
        "detach",
        "meter stops with",
        "undone?",
        "what outlives the box",
        "spot",
        "mirrors",
        "confidence",
    ]
    intro = (
        "Who lends boxes, and what that means for a result. `outlive platforms show ID` prints the same, with your own "
        "corrections; [the schema](../../design/platform-schema.md) says what each means and how to add one."
    )
    return "\n".join(["# Platforms", "", _MADE, "", intro, "", *_table(head, rows), ""])


def _page(p: Platform) -> str:
    lines = [f"# {p.names.en}" + (f" ({p.names.zh})" if p.names.zh and p.names.zh != p.names.en else ""), "", _MADE, ""]
    v = p.verified
    lines += [
        p.summary.en,
        "",
        f"Id `{p.id}`, kind {p.kind}, confidence {p.confidence}. Verified: storage {v.storage}, billing {v.billing}, "
        f"verbs {v.verbs}, clocks {v.danger_clocks}.",
        "",
        "## What survives",
        "",
    ]
    head = ["tier", "where", "stop", "destroy", "shared", "roles", "there when"]
    lines += [*_table(head, [_tier(p, t) for t in p.tiers]), ""]
    if p.verbs:
        head = ["verb", "role", "undone?", "ends", "deletes", "keeps", "not sure", "done"]
        lines += ["## Verbs", "", *_table(head, [_verb(p, verb) for verb in p.verbs]), ""]
    if p.has_meter:
        lines += [f"`down` means `{p.meter_stop_verb}`. To zero, in this order:", ""]
        done: list[str] = []
        for i, name in enumerate(p.full_meter_stop, 1):
            done.append(name)
            left = ", ".join(m.what.en for m in p.bills_after(done)) or "nothing"
            lines.append(f"{i}. `{name}`; still bills: {left}")
            lines += [f"   - {step.en}" for step in p.verb(name).steps]
        lines.append("")
    else:
        lines += ["Nothing bills. `down` only detaches.", ""]
    if p.danger_clocks:
        rows = [
            [f"`{c.id}`", c.what.en, c.starts_when, _hours(c.after_hours), c.effect, c.consequence.en, c.avoid_by.en]
            for c in p.danger_clocks
        ]
        head = ["clock", "of", "starts", "after", "effect", "consequence", "avoid it"]
        lines += ["## Danger clocks", "", *_table(head, rows), ""]
    lines += ["## The six verbs", ""]
    lines += [*_table(["verb", "by", "how"], [[n, b.how, b.what.en] for n, b in p.six_verbs.items()]), ""]
    lines += _list("Getting a box", [s.en for s in p.launch.steps], numbered=True)
    lines += _list("Know this", [line.en for line in p.first_contact])
    lines += _list(
        "Conveniences", [c.what.en + (f" ({c.console.said('zh')})" if c.console else "") for c in p.conveniences]
    )
    if p.gotchas:
        rows = [[g.id, g.severity, g.symptom.en, g.cause.en, g.fix.en] for g in p.gotchas]
        lines += ["## Traps", "", *_table(["id", "costs", "symptom", "cause", "fix"], rows), ""]
    lines += _list("Where sources disagree", [f"{d.topic}: we use {d.use} ({d.why})" for d in p.disagreements])
    lines += _list("Sources", [f"<{s.url}> ({s.month}): {s.covers}" for s in p.sources])
    return "\n".join(lines).rstrip() + "\n"


def _tier(p: Platform, t: Tier) -> list[str]:
    where = f"`{t.path}`" if t.path else (f"{t.probe.by} `{t.probe.value}`" if t.probe else "not mounted")
    stop = f"{t.survives_stop_hours} h" if t.survives_stop == "limited" else t.survives_stop
    destroy = f"{t.survives_destroy_hours} h" if t.survives_destroy == "limited" else t.survives_destroy
    needs = t.conditions
    when = needs.present_when or (f"not {needs.absent_when}" if needs.absent_when else "always")
    return [f"{t.label.en} (`{t.name}`)", where, stop, destroy, t.shared, ", ".join(t.roles) or "-", when]


def _verb(p: Platform, verb: Verb) -> list[str]:
    def tiers(names: Iterable[str]) -> str:
        return ", ".join(p.tier(name).label.en for name in names) or "-"

    by = "by hand" if verb.api is None else "by API" + (f" ({verb.api_when})" if verb.api_when else "")
    stops = ", ".join(verb.stops) or "-"
    label = f"{_label(verb)} (`{verb.name}`)"
    return [label, verb.role, verb.reversible, stops, tiers(verb.deletes), tiers(verb.keeps), tiers(verb.unsure), by]


def _label(verb: Verb) -> str:
    return verb.label.en + (f" {verb.label.zh}" if verb.label.zh else "")


def _hours(hours: float | None) -> str:
    return "not fixed" if hours is None else ("at once" if hours == 0 else f"{hours:g} h")


def _seconds(grace_s: int | None) -> str:
    return "grace unknown" if grace_s is None else f"{grace_s} s grace"


def _list(title: str, items: Sequence[str], *, numbered: bool = False) -> list[str]:
    if not items:
        return []
    return [f"## {title}", "", *(f"{i}. {x}" if numbered else f"- {x}" for i, x in enumerate(items, 1)), ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [row(head), "|" + " --- |" * len(head), *(row(cells) for cells in rows)]


if __name__ == "__main__":
    sys.exit(main())
