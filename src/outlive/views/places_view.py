"""Boxes and their runs with the age of every word, and what bills: ``ps`` and the overview."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outlive.views import amounts, run_view
from outlive.views.printable import fold, one_line, table, width

if TYPE_CHECKING:
    from outlive.ledger import Box
    from outlive.platforms.brief import Brief
    from outlive.platforms.model import Platform

WORDS = {
    "as of": "not asked; last seen {ago}",
    "never seen": "not seen from here yet",
    "unreachable": "unreachable; last seen {ago}",
    "unreachable why": "{why}",
    "was": "was {state} {ago}",
    "none": "no boxes yet",
    "no runs": "no runs",
    "bills": "{per_h} {currency} an hour; about {sum} {currency} in the {span} since it was first seen here",
    "bills unknown": "bills, at a price that nobody told: outlive up {box} --price 1.20USD",
    "free": "does not bill",
    "stopped": "stopped; storage may still bill",
    "total": "bills now: {sums} an hour",
    "total unknown": "; {n} more at unknown prices",
}


@dataclass
class BoxRow:
    """One box as it is to be shown. ``current``: a fresh exchange answered; else all of it is as of ``seen_w``."""

    box: Box
    platform: Brief | Platform
    current: bool
    asked: bool
    state: str
    why: str = ""
    seen_w: float | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)
    """Statuses as the box gave them at ``seen_w``."""
    head: dict[str, Any] = field(default_factory=dict)

    def bills(self, now_w: float) -> dict[str, Any]:
        """Return ``{"bills": bool, "per_h", "currency", "since_s", "about"}``; what is not known is None."""
        meter = self.platform.has_meter and self.box.state not in ("stopped", "gone")
        price = self.box.price or {}
        since_s = max(0.0, now_w - self.box.first_w) if self.box.first_w else None
        per_h = float(price["per_h"]) if meter and price.get("per_h") is not None else None
        return {
            "bills": meter,
            "per_h": per_h,
            "currency": price.get("currency") if per_h is not None else None,
            "since_s": since_s if meter else None,
            "about": per_h * since_s / 3600 if per_h is not None and since_s is not None else None,
        }


def ps_data(rows: list[BoxRow], now_w: float | None = None) -> dict[str, Any]:
    """Return ``ps --json``."""
    now_w = time.time() if now_w is None else now_w
    return {"schema": "outlive/ps/1", "w": now_w, "boxes": [box_data(row, now_w) for row in rows]}


def box_data(row: BoxRow, now_w: float) -> dict[str, Any]:
    """Return one box for ``--json``."""
    return {
        "name": row.box.name,
        "box_id": row.box.box_id,
        "platform": row.box.platform,
        "address": row.box.address,
        "root": row.box.root,
        "state": row.state,
        "why": row.why,
        "current": row.current,
        "asked": row.asked,
        "seen_w": row.seen_w,
        "age_s": max(0.0, now_w - row.seen_w) if row.seen_w is not None else None,
        "meter": row.bills(now_w),
        "disk": {k: row.head.get(k) for k in ("disk_free_bytes", "disk_total_bytes", "disk_free_inodes")}
        if row.head
        else None,
        "runs": [run_view.run_data(s, box=row.box.name, seen_w=row.seen_w, current=row.current) for s in row.runs],
    }


def ps_lines(rows: list[BoxRow], columns: int, now_w: float | None = None) -> list[str]:
    """Return the lines of ``ps``."""
    now_w = time.time() if now_w is None else now_w
    if not rows:
        return [
            WORDS["none"],
            "  outlive up local:             try it on this machine",
            "  outlive up root@HOST:PORT     a box that you can ssh to",
        ]
    lines: list[str] = []
    for row in rows:
        if lines:
            lines.append("")
        lines += box_lines(row, columns, now_w)
    total = total_text(rows, now_w)
    return [*lines, "", *fold(total, columns, "  ")] if total else lines


def box_lines(row: BoxRow, columns: int, now_w: float) -> list[str]:
    """Return one box and its runs."""
    title = row.box.name
    cells = [[title, state_text(row, now_w)]]
    where = one_line(row.box.address)
    gpu = _gpu(row.box)
    cells.append(["  " + row.platform.names.en, ", ".join(part for part in (where, gpu) if part)])
    meter = meter_text(row, now_w)
    if meter:
        cells.append(["  meter", meter])
    lines = table(cells, columns)
    if row.runs:
        lines += run_table(row, columns, now_w)
    else:
        lines.append("  " + WORDS["no runs"])
    return lines


def state_text(row: BoxRow, now_w: float) -> str:
    """Return the box's state with its age. A word that nobody confirmed now is never shown as now."""
    age = amounts.ago(max(0.0, now_w - row.seen_w)) if row.seen_w is not None else None
    if row.current:
        return f"{row.state}, seen {age}" + (f" ({row.why})" if row.state == "unconfirmed" else "")
    if not row.asked:
        return WORDS["as of"].format(ago=age) if age else WORDS["never seen"]
    text = WORDS["unreachable"].format(ago=age) if age else "unreachable; " + WORDS["never seen"]
    return f"{text} ({one_line(row.why)})" if row.why else text


def run_table(row: BoxRow, columns: int, now_w: float) -> list[str]:
    """Return the runs of a box as aligned lines."""
    cells = []
    for status in sorted(row.runs, key=lambda s: (bool(s.get("ended")), -float(s.get("created_w") or 0.0))):
        age = amounts.ago(max(0.0, now_w - row.seen_w)) if row.seen_w is not None else "at an unknown time"
        state = run_view.state_text(status)
        # an end is a fact; everything else was true when it was seen
        state = state if row.current or status.get("ended") else WORDS["was"].format(state=state, ago=age)
        details = [d for d in (run_view.progress(status),) if d]
        needs = run_view.needs_text(status) if row.current or status.get("ended") else ""
        if needs and status.get("state") in ("failed", "suspect", "waiting", "unknown", "preempted"):
            details.append(run_view.why_text(status))
        if status.get("checkpoint"):
            details.append(run_view.checkpoint_text(status, now_w).split(", proved")[0])
        details += [f"! {one_line(a['sentence'])}" for a in (status.get("alarms") or [])[:1]]
        if status.get("ended") and status.get("ended_w"):
            details.append(f"ended {amounts.ago(max(0.0, now_w - float(status['ended_w'])))}")
        cells.append(["  " + status["run"], state, "; ".join(details)])
    if columns < 72:
        lines = []
        for name, state, detail in cells:
            together = f"{name}  {state}"
            lines += (
                [together] if width(together) <= columns else [name, *("    " + s for s in fold(state, columns - 4))]
            )
            lines += ["    " + part for part in fold(detail, max(12, columns - 4))] if detail else []
        return lines
    return table(cells, columns)


def meter_text(row: BoxRow, now_w: float) -> str:
    """Return what the box costs, "" where nothing bills."""
    bills = row.bills(now_w)
    if not bills["bills"]:
        return WORDS["stopped"] if row.platform.has_meter else ""
    if bills["per_h"] is None:
        return WORDS["bills unknown"].format(box=row.box.name)
    return WORDS["bills"].format(
        per_h=f"{bills['per_h']:g}",
        currency=bills["currency"],
        sum=f"{bills['about'] or 0:.2f}",
        span=amounts.span(bills["since_s"]),
    )


def total_text(rows: list[BoxRow], now_w: float) -> str:
    """Return the sum of what bills now, per currency, "" when nothing does."""
    sums: dict[str, float] = {}
    unknown = 0
    for row in rows:
        bills = row.bills(now_w)
        if bills["per_h"] is not None:
            sums[bills["currency"]] = sums.get(bills["currency"], 0.0) + bills["per_h"]
        elif bills["bills"]:
            unknown += 1
    if not sums and not unknown:
        return ""
    said = " + ".join(f"{amount:.2f} {currency}" for currency, amount in sorted(sums.items())) or "an unknown sum"
    return WORDS["total"].format(sums=said) + (WORDS["total unknown"].format(n=unknown) if sums and unknown else "")


def _gpu(box: Box) -> str:
    names = [str(n) for n in box.facts.get("gpu") or [] if n]
    if names:
        return (
            f"{len(names)} x {names[0]}" if len(set(names)) == 1 and len(names) > 1 else ", ".join(sorted(set(names)))
        )
    return {"none": "no GPU", "sick": "a GPU whose driver reports trouble"}.get(str(box.facts.get("gpu_state")), "")
