"""``outlive pull``: bring results here and prove them."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.cli.printing import Progress, columns, note, result

if TYPE_CHECKING:
    from outlive.ledger import Run
    from outlive.runs.home import Home

MIRROR_EVERY_S = 30.0


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "pull",
        help="bring results here and prove them",
        description="Bring a run's result to ./outlive-runs/RUN: roster, kept checkpoints, logs, changed code; each "
        "file is staged aside, compared and renamed. Repeating it brings what is missing. Ends with 1 when a file is "
        "wrong, refuted or missing.",
    )
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="left out: the only one")
    parser.add_argument("globs", nargs="*", metavar="GLOB", help="only these paths of the work directory, at any time")
    parser.add_argument("--to", default=None, metavar="DIR", help="where (default ./outlive-runs/RUN)")
    parser.add_argument(
        "--mirror", action="store_true", help="bring committed checkpoints while the run lives, until it ends"
    )
    parser.add_argument("--once", action="store_true", help="with --mirror: one round")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Pull and say how far the result is proved."""
    from outlive.cli.known import the_run
    from outlive.runs.home import Home

    if args.once and not args.mirror:
        raise errors.UsageError("--once goes with --mirror; a plain pull is one round anyway")
    if args.mirror and args.globs:
        raise errors.UsageError("--mirror brings checkpoints; leave out the globs")
    home = Home.default()
    record = the_run(home, args.run)
    if not args.run and not args.json:
        note(f"{record.run} on {record.box}")
    if args.mirror and not args.once:
        return _mirror(args, home, record)
    return _pull(args, home, record)[0]


def _pull(args: argparse.Namespace, home: Home, record: Run) -> tuple[int, bool]:
    from outlive.runs.pull import pull
    from outlive.views import pull_view

    progress = Progress("pull")
    try:
        done = pull(home, record.run, to=args.to, globs=args.globs, mirror=args.mirror, progress=progress)
    finally:
        progress.close()
    result(args, pull_view.data(done), lambda: pull_view.lines(done, columns()), home.ledger.secrets)
    return done.exit_code, done.live


def _mirror(args: argparse.Namespace, home: Home, record: Run) -> int:
    """Bring what is new every half minute until the run has ended; the last round is a whole pull."""
    silent_since: float | None = None
    while True:
        try:
            code, live = _pull(args, home, record)
            silent_since = None
        except errors.Unreachable as error:
            silent_since = silent_since or time.monotonic()
            note(f"outlive: {error.what}; this says nothing about the run; trying again")
            if time.monotonic() - silent_since > 600:
                raise
            code, live = error.exit_code, True
        if not live:
            args.mirror = False
            code, _ = _pull(args, home, record)
            return code
        time.sleep(MIRROR_EVERY_S)
