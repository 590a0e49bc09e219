"""``outlive`` alone: what happened since you last looked, what bills now, what needs you, the next command."""

from __future__ import annotations

import argparse
from typing import Any

from outlive.cli.printing import columns, result

LOOK_S = 8.0


def add_parser(subparsers: Any) -> None:
    """There is no verb to register: this is what happens without one."""


def run(args: argparse.Namespace) -> int:
    """Print the overview. 0 whenever there is one; a box that does not answer is part of it."""
    from outlive.cli import seen
    from outlive.cli.ps import box_rows
    from outlive.runs.home import Home
    from outlive.views import overview_view

    home = Home.default()
    if not (home.dir / "ledger.jsonl").exists():
        result(args, overview_view.empty_data(), lambda: overview_view.empty_lines(columns()))
        return 0
    rows = box_rows(home, [], timeout_s=LOOK_S)
    before = seen.shown(home)
    overview = overview_view.overview(rows, before, home.state())
    result(args, overview_view.data(overview), lambda: overview_view.lines(overview, columns()), home.ledger.secrets)
    seen.note_shown(home, {**before.get("runs", {}), **overview_view.statuses(rows)})
    return 0
