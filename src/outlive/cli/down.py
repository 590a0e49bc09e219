"""``outlive down``: pull what is missing, prove it, then stop the meter."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import Progress, columns, note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "down",
        help="pull what is missing, prove it, then stop the meter",
        description="Ask the gate, then end a box: nothing is stopped or deleted before everything is in a safe place "
        "and proved, or a person at a terminal gave it up by name. Ends with 3 when something stands in the way, 5 "
        "when an approval is missing, 6 when only a person can stop the meter. On your own machine it only detaches.",
    )
    parser.add_argument("box", nargs="?", default="", metavar="BOX", help="left out: the only one")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done and lost; end as `down` would")
    parser.add_argument(
        "--no-pull", action="store_true", help="refuse when something is missing here, instead of pulling it"
    )
    parser.add_argument("--purge", action="store_true", help="delete our directory on the box; gated like everything")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--action", default=None, metavar="VERB", help="one of the platform's verbs: stop, destroy, pause, ..."
    )
    parser.add_argument("--approval", default=None, metavar="ID", help="use this approval")
    parser.add_argument("--to", default=None, metavar="DIR", help="where results go, one directory per run")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout; never asks")


def run(args: argparse.Namespace) -> int:
    """Go through the gate and say how it ended. Every decision has its exit code."""
    from outlive.cli.terminal import StandardTerminal
    from outlive.runs.down import down
    from outlive.runs.home import Home
    from outlive.views import down_view

    home = Home.default()
    box = home.box_of(args.box)
    if not args.box and not args.json:
        note(f"{box.name}")
    progress = Progress("pull")
    try:
        done = down(
            home,
            box.name,
            dry_run=args.dry_run,
            pull_first=not args.no_pull,
            purge=args.purge,
            action=args.action,
            terminal=None if args.json else StandardTerminal(),
            approval_id=args.approval,
            to=args.to,
            progress=progress,
        )
    finally:
        progress.close()
    if args.json:
        result(args, down_view.data(done), list, home.ledger.secrets)
        return done.exit_code
    for line in down_view.lines(done, columns()):
        print(home.ledger.secrets.redact(line))
    if isinstance(done.refusal, errors.OutliveError):
        raise done.refusal
    return done.exit_code
