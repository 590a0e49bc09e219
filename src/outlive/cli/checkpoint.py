"""``outlive checkpoint``: ask a run to save now."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "checkpoint",
        help="ask a run to save now",
        description="Send the work the signal that outlive.toml names (artifacts.signal). That it was saved is said by "
        "the next proved checkpoint, not by this verb.",
    )
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="left out: the only one")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Ask and print the answer. 7 when no answer came in time."""
    from outlive.cli.known import the_run
    from outlive.runs import ask
    from outlive.runs.home import Home
    from outlive.views import answer_view

    home = Home.default()
    record = the_run(home, args.run)
    if not args.run and not args.json:
        note(f"{record.run} on {record.box}")
    answer = ask.ask(home, record, "checkpoint")
    if answer.answered and not answer.ok:
        raise errors.Refused(
            f"{answer.run}: {answer.text}", safe="The run goes on unchanged.", next=[["outlive", "watch", answer.run]]
        )
    result(args, answer_view.data("checkpoint", answer), lambda: answer_view.lines(answer), home.ledger.secrets)
    return 0 if answer.answered else 7
