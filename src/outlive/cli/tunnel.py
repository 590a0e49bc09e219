"""``outlive tunnel``: forward ports from the box to here."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import note


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "tunnel",
        help="forward ports from the box to here",
        description="Make ports of the box reachable here, on this machine's own address only, until Ctrl-C. PORT is "
        "the same on both ends, HERE:THERE two ports, HERE:HOST:THERE a machine that the box can reach.",
    )
    parser.add_argument("words", nargs="+", metavar="[BOX] PORT", help="for instance: gpu-1 6006, or gpu-1 8080:6006")
    parser.add_argument("--json", action="store_true", help="print the ssh command instead of running it")


def run(args: argparse.Namespace) -> int:
    """Become ssh with the forwards."""
    from outlive.cli.ssh import argv_of, become
    from outlive.runs.home import Home

    box = "" if args.words[0].split(":")[0].isdigit() else args.words[0]
    ports = args.words[1:] if box else args.words
    if not ports:
        raise errors.UsageError("which port?", safe="Nothing was opened.", next=[["outlive", "tunnel", box, "6006"]])
    forwards = tuple(forward(port) for port in ports)
    argv = argv_of(Home.default(), box, "a tunnel", forwards=forwards)
    if not args.json:
        for text in forwards:
            here, host, there = text.rsplit(":", 2)
            note(f"http://{here} -> {there if host == 'localhost' else f'{host}:{there}'} on the box; Ctrl-C ends it")
    return become(args, argv, "tunnel")


def forward(text: str) -> str:
    """Return ssh's word for a port, bound to this machine's own address. Raises UsageError."""
    parts = text.split(":")
    here, host, there = {1: (parts[0], "localhost", parts[0]), 2: (parts[0], "localhost", parts[-1])}.get(
        len(parts), (parts[0], ":".join(parts[1:-1]), parts[-1])
    )
    for port in (here, there):
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise errors.UsageError(
                f"{text!r} is no port: write PORT, HERE:THERE or HERE:HOST:THERE", safe="Nothing was opened."
            )
    return f"127.0.0.1:{here}:{host}:{there}"
