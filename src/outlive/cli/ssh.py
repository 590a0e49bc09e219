"""``outlive ssh``: a shell on the box."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from outlive import errors


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "ssh",
        help="a shell on the box",
        usage="outlive ssh [BOX] [-- CMD ...]",
        description="A login on the box with the keys and host keys that outlive uses; with words after -- a command.",
    )
    parser.add_argument(
        "box", nargs="?", default="", metavar="BOX", help="a box, or a run on it; left out: the only one"
    )
    parser.add_argument("--json", action="store_true", help="print the ssh command instead of running it")
    parser.set_defaults(takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Become ssh. With ``--json`` only say how."""
    import shlex

    from outlive.runs.home import Home

    home = Home.default()
    argv = argv_of(home, args.box, "a shell", tty=not args.command or (sys.stdin.isatty() and sys.stdout.isatty()))
    argv += [shlex.join(args.command)] if args.command else []
    return become(args, argv, "ssh")


def argv_of(home: Any, word: str, what: str, *, tty: bool = True, forwards: tuple[str, ...] = ()) -> list[str]:
    """Return ssh's argv for a person on that box. Raises BoxLacks where there is no ssh."""
    from outlive.runs.place import open_place
    from outlive.transport.ssh import SshExec

    place = open_place(home, home.box_of(word))
    if not isinstance(place.agent.exec, SshExec):
        raise errors.BoxLacks(
            f"{what} is not here, because {place.name} is this machine",
            place=place.name,
            lacks="ssh",
            safe="Nothing was changed.",
            next=[["cd", place.box.root]],
        )
    return place.agent.exec.argv_for_user(tty, forwards)


def become(args: argparse.Namespace, argv: list[str], verb: str) -> int:
    """Replace this process by ``argv``, or with ``--json`` print it. Raises BoxLacks when there is no ssh here."""
    from outlive.cli.printing import result

    if args.json:
        result(args, {"schema": f"outlive/{verb}/1", "argv": argv}, list)
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError as error:
        raise errors.BoxLacks(
            f"{argv[0]} is not installed on this machine", lacks=argv[0], safe="Nothing was changed."
        ) from error
