"""``outlive up``: reach a box, look at it, remember it."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import columns, note, result


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that ``up`` and ``adopt`` share."""
    parser.add_argument("--name", default="", help="what to call the box here")
    parser.add_argument(
        "--root",
        default="",
        metavar="DIR",
        help="where our directory goes on the box (default: by the platform's facts)",
    )
    parser.add_argument(
        "--python", default="", metavar="PATH", help="the interpreter of the work on the box, 3.8 or newer"
    )
    parser.add_argument("--price", default=None, metavar="AMOUNT", help="what an hour costs, like 1.20USD")
    parser.add_argument("--durable", default="", metavar="PATH", help="a path on the box that survives it")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "up",
        help="reach a box, look at it, remember it",
        usage="outlive up [PLATFORM] ADDRESS [options]",
        description="Reach a box and audit it; rents nothing. ADDRESS: an ssh alias, user@host[:port], ssh://..., a "
        "whole pasted `ssh -p ...` line, local: or `.`. On a known box: reaches it again and says what changed.",
    )
    # the words of a pasted ssh line are ours to read, also those that begin with a dash
    parser.add_argument(
        "words", nargs="*", metavar="ADDRESS", help="a platform may stand before it; see `outlive platforms ls`"
    )
    parser.add_argument("--at", default="", metavar="ADDRESS", help="a known box has this address now")
    parser.set_defaults(takes_rest=True)
    add_flags(parser)


def price_of(text: str | None) -> tuple[float, str] | None:
    """Return the price of ``--price``. Raises UsageError."""
    from outlive.runs.job import money

    if text is None:
        return None
    try:
        return money(text.removesuffix("/h"))
    except ValueError as error:
        raise errors.UsageError(f"--price: {error}", safe="Nothing was changed.", next=[]) from error


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    import datetime

    from outlive.runs.home import Home
    from outlive.runs.up import up
    from outlive.views import audit_view, labelled

    home = Home.default()
    price = price_of(args.price)
    words = ["local:" if word == "." else word for word in args.words]
    if not args.json:
        note(f"reaching {' '.join(words)} ..." if words else "reaching ...")
    found = up(
        home, words, name=args.name, root=args.root, python=args.python, at=args.at, price=price, durable=args.durable
    )
    found.place.close()
    today = datetime.date.today()

    def lines() -> list[str]:
        text = labelled.lines(audit_view.up_rows(found), columns())
        contact = audit_view.contact_lines(found, today)
        if contact:
            from outlive.views.printable import fold

            text.append("")
            for line in contact:
                text += fold(line, columns(), "    " if line.startswith(" ") else "  ")
        return [*text, "", f"next: outlive run --on {found.place.name} -- python train.py"]

    result(args, audit_view.up_data(found, today), lines, home.ledger.secrets)
    return 0
