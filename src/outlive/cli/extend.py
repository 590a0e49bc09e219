"""``outlive extend``: give a run more time."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "extend",
        help="give a run more time",
        description="Move the end of a run's lease. The lease counts time of work and is kept by the box itself.",
    )
    parser.add_argument("run", metavar="RUN", help="a run, its prefix, its box, @last")
    parser.add_argument("by", nargs="?", default=None, metavar="TIME", help="this much more (like 2h)")
    parser.add_argument("--to", default=None, metavar="TIME", help="this much in all (like 12h)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Ask and print the answer. 7 when the box has the request and no answer came in time."""
    from outlive.cli.known import the_run
    from outlive.runs import ask
    from outlive.runs.home import Home
    from outlive.runs.job import seconds
    from outlive.views import answer_view

    if (args.by is None) == (args.to is None):
        raise errors.UsageError(
            "say how much more (`outlive extend RUN 2h`) or how much in all (`--to 12h`)",
            safe="The run goes on unchanged.",
        )
    try:
        time_s = seconds(args.by if args.by is not None else args.to)
    except ValueError as error:
        raise errors.UsageError(str(error), safe="The run goes on unchanged.") from error
    home = Home.default()
    record = the_run(home, args.run)
    if record.run != args.run and not args.json:
        note(f"{record.run} on {record.box}")
    answer = ask.extend(home, record, **({"add_s": time_s} if args.by is not None else {"max_s": time_s}))
    result(args, answer_view.data("extend", answer), lambda: answer_view.lease_lines(answer), home.ledger.secrets)
    return 0 if answer.answered else 7
