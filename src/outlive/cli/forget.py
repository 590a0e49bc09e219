"""``outlive forget``: take a box or a run off the list here."""

from __future__ import annotations

import argparse
from typing import Any

from outlive.cli.printing import result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "forget",
        help="take a box or a run off the list here; deletes nothing",
        description="A person's word that a box is gone, or that a run need not be shown. Deletes nothing anywhere; a "
        "box is forgotten by typing its name at a terminal.",
    )
    parser.add_argument("name", metavar="BOX|RUN", help="its name; nothing is guessed here")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Record it and say what is thought to have been billed."""
    from outlive.cli.terminal import StandardTerminal
    from outlive.runs.forget import forget
    from outlive.runs.home import Home
    from outlive.views import forgotten_view

    home = Home.default()
    done = forget(home, args.name, StandardTerminal())
    result(args, forgotten_view.data(done), lambda: forgotten_view.lines(done), home.ledger.secrets)
    return 0
