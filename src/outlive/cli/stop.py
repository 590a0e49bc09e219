"""``outlive stop``: ask a run to stop."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "stop",
        help="ask a run to stop",
        description="Ask a run to stop: the work gets SIGTERM, after the grace time SIGKILL; what it left is digested "
        "and copied. Deletes nothing and stops no meter.",
    )
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="left out: the only one")
    parser.add_argument("--grace", default=None, metavar="TIME", help="between SIGTERM and SIGKILL (like 60s)")
    parser.add_argument("--wait", default="60s", metavar="TIME", help="how long to wait for the end (default 60s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Ask, wait and say how the run stands. 7 when it has not ended in time."""
    from outlive.cli.known import the_run
    from outlive.runs import ask
    from outlive.runs.home import Home
    from outlive.runs.job import seconds
    from outlive.views import answer_view

    home = Home.default()
    try:
        grace_s = seconds(args.grace) if args.grace is not None else None
        wait_s = seconds(args.wait)
    except ValueError as error:
        raise errors.UsageError(str(error), safe="Nothing was asked; the run goes on.") from error
    record = the_run(home, args.run)
    if not args.run and not args.json:
        note(f"{record.run} on {record.box}")
    answer = ask.stop(home, record, grace_s=grace_s, wait_s=wait_s)
    result(args, answer_view.data("stop", answer), lambda: answer_view.stop_lines(answer), home.ledger.secrets)
    return 0 if answer.status["ended"] else 7
