"""``outlive ps``: boxes and runs, how old each word is, what bills."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from outlive.cli.printing import columns, result

if TYPE_CHECKING:
    from outlive.runs.home import Home
    from outlive.views.places_view import BoxRow


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "ps",
        help="boxes and runs, how old each word is, what bills",
        description="Boxes and their runs. Each box is asked once, all at the same time; what does not answer is shown "
        "as it was seen last, with its age.",
    )
    parser.add_argument("words", nargs="*", metavar="BOX", help="boxes or runs; left out: all that are not gone")
    parser.add_argument("--no-network", action="store_true", help="ask nobody: what was known here, with its age")
    parser.add_argument(
        "--timeout", type=float, default=12.0, metavar="S", help="seconds to wait for a box (default 12)"
    )
    parser.add_argument("--all", action="store_true", help="also boxes that are gone, and what was forgotten")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the table. 4 when a box that was named does not answer."""
    from outlive.runs.home import Home

    home = Home.default()
    state_file = home.dir / "ledger.jsonl"
    if not args.words and not state_file.exists():
        # nothing was ever reached from here: no reason to load what reaches
        _print(args, home, [])
        return 0
    rows = box_rows(home, args.words, network=not args.no_network, timeout_s=args.timeout, everything=args.all)
    _print(args, home, rows)
    return 4 if args.words and not args.no_network and any(not row.current for row in rows) else 0


def _print(args: argparse.Namespace, home: Home, rows: list[BoxRow]) -> None:
    from outlive.views import places_view

    result(args, places_view.ps_data(rows), lambda: places_view.ps_lines(rows, columns()), home.ledger.secrets)


def box_rows(
    home: Home, words: list[str], *, network: bool = True, timeout_s: float = 12.0, everything: bool = False
) -> list[BoxRow]:
    """Return the boxes to show, asked now or as they were seen last. Never raises for trouble of a place."""
    from outlive.cli import seen
    from outlive.platforms.brief import brief, user_dir
    from outlive.views.places_view import BoxRow

    overrides = user_dir()
    state = home.state()
    boxes = (
        [home.box_of(word) for word in words]
        if words
        else [box for box in state.boxes.values() if everything or not box.gone]
    )
    boxes = list({box.name: box for box in boxes}.values())
    looks = {}
    if network and boxes:
        from outlive.runs.look import look_all

        standing = [box.name for box in boxes if not box.gone]
        looks = {look.box.name: look for look in (look_all(home, standing, timeout_s=timeout_s) if standing else [])}
    rows = []
    for box in boxes:
        platform = brief(box.platform or "ssh", overrides=overrides)
        found = looks.get(box.name)
        if found is not None and found.state != "unreachable":
            seen.remember(home, box.name, found.runs, found.head, whole=True)
            import time

            rows.append(BoxRow(box, platform, True, True, found.state, found.why, time.time(), found.runs, found.head))
            continue
        known = seen.recall_box(home, box.name)
        runs = list(known.get("runs", {}).values())
        have = {status["run"] for status in runs}
        runs += [
            {
                "run": r.run,
                "job": r.job,
                "state": r.state or "unknown",
                "ended": r.state in ("succeeded", "suspect", "failed", "stopped"),
            }
            for r in state.runs.values()
            if r.box == box.name and r.run not in have and not r.forgotten
        ]
        said = "unreachable" if found is not None else box.state or "unknown"
        rows.append(
            BoxRow(
                box,
                platform,
                False,
                found is not None,
                said,
                found.why if found is not None else box.state_why,
                known.get("w"),
                runs,
                known.get("head", {}),
            )
        )
    return rows
