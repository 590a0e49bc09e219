"""``outlive approve``: a person's leave, now or standing."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import columns, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "approve",
        help="approve a request of `down`, now or as a standing word with an end",
        usage="outlive approve [ID | down BOX --when-proved --until TIME] [options]",
        description="Without words: what waits and what is allowed. With the id of a request: approve it, for 15 "
        "minutes and one use. `down BOX --when-proved --until 08:00`: allow it in advance, for when every clause is "
        "green. Every approval is typed at a terminal.",
    )
    parser.add_argument("words", nargs="*", metavar="ID | down BOX", help="a request, or what to allow in advance")
    parser.add_argument("--when-proved", action="store_true", help="only with every clause green on fresh evidence")
    parser.add_argument("--until", default="", metavar="TIME", help="08:00, +6h or 2026-08-01T08:00")
    parser.add_argument("--action", default=None, metavar="VERB", help="one of the platform's verbs")
    parser.add_argument("--purge", action="store_true", help="allow the deletion of our directory there")
    parser.add_argument("--revoke", default="", metavar="ID", help="take an approval back")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Approve, take back, or list."""
    from outlive.cli.terminal import StandardTerminal
    from outlive.runs import approve
    from outlive.runs.home import Home
    from outlive.views import approvals_view

    home = Home.default()
    if args.revoke:
        if args.words:
            raise errors.UsageError("--revoke ID stands alone", safe="Nothing was allowed or taken back.")
        approve.revoke(home, args.revoke)
        result(args, approvals_view.revoked_data(args.revoke), lambda: approvals_view.revoked_lines(args.revoke))
        return 0
    if not args.words:
        found = approve.listed(home)
        result(args, approvals_view.listed_data(found), lambda: approvals_view.listed_lines(found, columns()))
        return 0
    if args.words[0] == "down":
        if len(args.words) != 2 or not args.until:
            raise errors.UsageError(
                "in advance: `outlive approve down BOX --when-proved --until 08:00`", safe="Nothing was allowed."
            )
        given = approve.standing(
            home,
            args.words[1],
            until=args.until,
            when_proved=args.when_proved,
            terminal=StandardTerminal(),
            action=args.action,
            purge=args.purge,
        )
    elif len(args.words) == 1:
        given = approve.approve_request(home, args.words[0], StandardTerminal())
    else:
        raise errors.UsageError(f"one request at a time, not {' '.join(args.words)}", safe="Nothing was allowed.")
    result(args, approvals_view.given_data(given), lambda: approvals_view.given_lines(given))
    return 0
