"""``plan --html``: one page with plots, complete in itself: no script, nothing fetched."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from outlive.plan.answer import Plan, Target
from outlive.plan.checkpoint_plan import CheckpointPlan
from outlive.plan.memory import TERMS
from outlive.plan.sweep import Point
from outlive.views import plan_view

GB = 1e9
COLOURS = ("#3b6ea5", "#5b8db8", "#86aecb", "#b4522f", "#cf7f4f", "#4c8c4a", "#7fb07a", "#8a5a9e", "#999999", "#bbbbbb")
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}pre{background:#f4f4f4;padding:1em;overflow:auto}"
    "figure{margin:1.5em 0}figcaption{color:#555}"
)


def page(plan: Plan, saves: CheckpointPlan | None, goal: Target | None, curves: Mapping[str, Sequence[Point]]) -> str:
    """Return the page."""
    choice = plan.choice
    title = f"{choice.model.name} on {choice.world} x {choice.gpu.name}: {'fits' if choice.fits else 'does not fit'}"
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_e(title)}</title><style>{STYLE}</style>",
        f"<h1>{_e(title)}</h1><p>{_e(plan_view.layout_words(choice))}</p>",
        _memory(plan),
        f"<h2>Speed</h2><p>{choice.speed.tokens_per_second_per_gpu:.0f} tokens/s per GPU "
        f"({choice.speed.low:.0f} to {choice.speed.high:.0f}), MFU {100 * choice.speed.mfu:.0f} %</p>",
    ]
    if goal is not None:
        parts.append("".join(f"<p>{_e(line)}</p>" for line in plan_view.target_lines(goal)))
    for name, points in curves.items():
        parts.append(_curve(name, points, choice.usable_bytes))
    if plan.runners_up:
        parts.append(_compared(plan))
    for heading, texts in (
        ("Why", choice.reasons),
        ("Careful", plan.warnings),
        ("To make it fit", [f"{change.what}: {change.total_bytes / GB:.1f} GB" for change in plan.changes]),
        ("Checkpoints", plan_view.checkpoint_lines(saves) if saves is not None else ()),
    ):
        if texts:
            parts.append(f"<h2>{heading}</h2><ul>{''.join(f'<li>{_e(text.strip())}</li>' for text in texts)}</ul>")
    return "\n".join(parts) + "\n</html>\n"


def _memory(plan: Plan) -> str:
    choice, memory = plan.choice, plan.choice.memory
    wide, scale = 800.0, max(choice.usable_bytes, memory.high)
    x, bars, rows = 0.0, [], []
    for (name, what), colour in zip(TERMS.items(), COLOURS, strict=True):
        value = getattr(memory, name)
        width = wide * value / scale
        if width > 0.2:
            bars.append(
                f'<rect x="{x:.1f}" y="10" width="{width:.1f}" height="36" fill="{colour}"><title>{name}</title></rect>'
            )
        x += width
        rows.append(
            f'<tr><td><svg width="12" height="12"><rect width="12" height="12" fill="{colour}"/></svg> {name}</td>'
            f"<td class=n>{value / GB:.2f} GB</td><td>{_e(what)}</td></tr>"
        )
    limit = wide * choice.usable_bytes / scale
    low, high = wide * memory.low / scale, wide * memory.high / scale
    return (
        f"<h2>Memory per GPU</h2><p>{memory.total / GB:.1f} GB ({memory.low / GB:.1f} to {memory.high / GB:.1f}) of "
        f"{choice.usable_bytes / GB:.1f} GB, worst device</p><figure>"
        f'<svg viewBox="0 0 {wide:.0f} 64" role="img" aria-label="memory by term">{"".join(bars)}'
        f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="2" y2="54" stroke="#c00" stroke-width="2"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="58" y2="58" stroke="#222" stroke-width="2"/></svg>'
        f"<figcaption>red: what the GPU has; black: the range of the estimate</figcaption></figure>"
        f"<table>{''.join(rows)}</table>"
    )


def _curve(name: str, points: Sequence[Point], usable: float) -> str:
    wide, high, left = 360.0, 160.0, 50.0
    plots = []
    for label, values, limit in (
        ("GB per GPU", [point.total_bytes / GB for point in points], usable / GB),
        ("tokens/s per GPU", [point.tokens_per_second for point in points], None),
    ):
        top = max([*values, limit or 0.0]) * 1.05 or 1.0
        xs = [left + (wide - left - 10) * i / max(1, len(points) - 1) for i in range(len(points))]
        ys = [high - high * value / top + 10 for value in values]
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#3b6ea5"/>' for x, y in zip(xs, ys, strict=True))
        marks = "".join(
            f'<text x="{x:.1f}" y="{high + 26:.0f}" font-size="10" text-anchor="middle">{point.value}</text>'
            for x, point in zip(xs, points, strict=True)
        )
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        rule = ""
        if limit is not None:
            y = high - high * limit / top + 10
            rule = f'<line x1="{left}" x2="{wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#c00" stroke-dasharray="4"/>'
        plots.append(
            f'<svg width="{wide:.0f}" height="{high + 50:.0f}" role="img" aria-label="{_e(label)} over {_e(name)}">'
            f'<polyline points="{line}" fill="none" stroke="#3b6ea5" stroke-width="2"/>{dots}{rule}{marks}'
            f'<text x="4" y="16" font-size="11">{top:.0f}</text><text x="4" y="{high + 10:.0f}" font-size="11">0</text>'
            f'<text x="{left}" y="{high + 44:.0f}" font-size="12">{_e(label)} over {_e(name)}</text></svg>'
        )
    return f"<figure>{''.join(plots)}</figure>"


def _compared(plan: Plan) -> str:
    rows = [(plan.choice, "taken"), *((other.choice, other.why) for other in plan.runners_up)]
    cells = []
    for choice, why in rows:
        layout = choice.layout
        cells.append(
            f"<tr><td>{layout.strategy}</td><td>{layout.dp} x {layout.tp} x {layout.pp} x {layout.cp}</td>"
            f"<td>{layout.micro_batch} x {layout.accumulation}</td><td>{layout.recompute}</td>"
            f"<td class=n>{choice.memory.total / GB:.1f}</td>"
            f"<td class=n>{choice.speed.tokens_per_second_per_gpu:.0f}</td>"
            f"<td>{_e(why)}</td></tr>"
        )
    return (
        f"<h2>Compared</h2><p>{plan.searched} layouts</p><table><tr><th>strategy<th>dp x tp x pp x cp<th>batch"
        f"<th>recompute<th>GB<th>tokens/s<th></tr>{''.join(cells)}</table>"
    )


def _e(text: str) -> str:
    return html.escape(text)
