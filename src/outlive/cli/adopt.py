"""``outlive adopt``: take over the runs of a box from here."""

from __future__ import annotations

import argparse
from typing import Any

from outlive.cli.printing import columns, note, result
from outlive.cli.up import add_flags, price_of


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "adopt",
        help="take over the runs of a box from here, also with an empty state",
        usage="outlive adopt [PLATFORM] ADDRESS [options]",
        description="Reach a box as `up` does, take its runs onto the list here and bring back those that nobody "
        "watches over. The box remembers everything; this client may know nothing.",
    )
    parser.add_argument("words", nargs="*", metavar="ADDRESS", help="as for `up`; a known box's name works too")
    parser.set_defaults(takes_rest=True, at="")
    add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Take over and print each run."""
    from outlive.cli import seen
    from outlive.runs.adopt import adopt
    from outlive.runs.home import Home
    from outlive.views import adopt_view

    home = Home.default()
    if not args.json:
        note(f"reaching {' '.join(args.words)} ..." if args.words else "reaching ...")
    words = ["local:" if word == "." else word for word in args.words]
    found = adopt(
        home,
        words,
        name=args.name,
        root=args.root,
        python=args.python,
        price=price_of(args.price),
        durable=args.durable,
    )
    found.place.close()
    seen.remember(home, found.place.name, found.runs, whole=True)
    result(args, adopt_view.data(found), lambda: adopt_view.lines(found, columns()), home.ledger.secrets)
    return 0
