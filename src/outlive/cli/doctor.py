"""``outlive doctor``: what is wrong with a box, and what could not be seen."""

from __future__ import annotations

import argparse
from typing import Any

from outlive import errors
from outlive.cli.printing import columns, note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "doctor",
        help="look at a box, or this machine: what is wrong, what is unknown",
        usage="outlive doctor [BOX] [options]",
        description="Look at a known box in one exchange, without BOX at this machine. Reads only. Each check answers "
        "ok, finding or unknown; what may not be read is unknown, never ok. 1 when something was found.",
    )
    parser.add_argument("box", nargs="?", default="", metavar="BOX", help="a box that `up` has seen")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="also: is this port reached from there, and do full frames arrive; may be repeated",
    )
    parser.add_argument("--running", default="", metavar="RUN", help="judge a run that is going on, from its samples")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the checks."""
    from outlive.cli.known import home as this_home
    from outlive.runs.doctor import doctor_box, doctor_here, doctor_run
    from outlive.views import doctor_view, labelled

    for word in args.peer:
        host, _, port = word.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise errors.UsageError(f"--peer {word}: not HOST:PORT", safe="Nothing was looked at.", next=[])
    if args.running and (args.box or args.peer):
        raise errors.UsageError(
            "--running judges a run by what it wrote; BOX and --peer do not go with it",
            safe="Nothing was looked at.",
            next=[["outlive", "doctor", "--running", args.running]],
        )
    home = this_home()
    if not args.json:
        note(f"looking at {args.running or args.box or 'this machine'} ...")
    if args.running:
        found = doctor_run(home, args.running)
    elif args.box:
        found = doctor_box(home, args.box, args.peer)
    else:
        found = doctor_here(args.peer)
    result(args, doctor_view.data(found), lambda: labelled.lines(doctor_view.rows(found), columns()))
    return int(bool(found.findings))
