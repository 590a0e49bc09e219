"""`outlive drill`: rehearse a job's preemptions, on this machine or on a box."""

from __future__ import annotations

import argparse
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.cli import printing


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "drill",
        help="kill your job, and see whether it resumes",
        usage="outlive drill [options] [-- CMD ...]",
        description="Runs the job on this machine, or with --on on a box, in a directory of its own: once with kill -9 "
        "at several points and once undisturbed, and compares what both print: does it resume, from which step, and "
        "what is forgotten. Without a command outlive.toml decides. Ends with 1 when the job loses more than the steps "
        "since its last save.",
    )
    parser.add_argument("--on", default="", metavar="BOX", help="rehearse on this box (default: this machine)")
    parser.add_argument("--kills", type=int, default=3, metavar="N", help="how often it is killed (default: 3)")
    parser.add_argument(
        "--limit", default="2m", metavar="TIME", help="how long its next save is waited for (default: 2m)"
    )
    parser.add_argument("--checkpoints", default=None, metavar="DIR", help="where it saves, relative to the project")
    parser.add_argument(
        "--dir", type=Path, default=None, metavar="DIR", help="disk to rehearse on (default: the temporary directory)"
    )
    parser.add_argument("--keep", action="store_true", help="keep both runs' files")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Rehearse, say what was found, and return 1 when something was."""
    from outlive.artifacts.manifest import relative_path
    from outlive.runs.drill import Settings, drill, remember
    from outlive.runs.home import Home
    from outlive.runs.job import seconds
    from outlive.runs.run import job_from
    from outlive.views import drill_view, labelled

    safe = "Nothing was started."
    if args.kills < 1:
        raise errors.UsageError("--kills is at least 1", safe=safe)
    job = job_from(Path.cwd(), tuple(args.command), verb="drill")
    try:
        settings = Settings(kills=args.kills, limit_s=seconds(args.limit))
        if args.checkpoints:
            job = replace(job, checkpoints=relative_path(args.checkpoints))
    except ValueError as error:
        raise errors.UsageError(str(error), safe=safe) from error
    home = Home.default()
    box = _box(home, args)
    with _directory(args.dir, args.keep) as base:
        found = drill(job, base, settings, printing.note, owner=home, box=box)
        remember(home, found)
        if args.keep and box is None:
            printing.note(f"kept in {base}")
    printing.result(
        args,
        drill_view.data(found),
        lambda: labelled.lines(drill_view.rows(found), printing.columns()),
        home.ledger.secrets,
    )
    return 1 if found.verdict.broken else 0


def _box(home: Any, args: argparse.Namespace) -> Any:
    """Return the box to rehearse on, None for this machine."""
    from outlive.transport.address import parse

    if not args.on:
        return None
    box = home.box_of(args.on)
    if parse(box.address).kind == "local":
        return None
    if args.keep or args.dir:
        raise errors.UsageError(
            f"--keep and --dir are for this machine: on {box.name} everything is removed again",
            safe="Nothing was started.",
        )
    return box


@contextmanager
def _directory(parent: Path | None, keep: bool) -> Iterator[Path]:
    """Yield an empty directory of this drill alone; removed at the end unless it is to be kept."""
    if parent is not None and not parent.is_dir():
        raise errors.UsageError(f"--dir {parent}: not a directory", safe="Nothing was started.")
    base = Path(tempfile.mkdtemp(prefix="outlive-drill-", dir=parent)).resolve()
    old = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: with everything cleared up
    try:
        yield base
    finally:
        signal.signal(signal.SIGTERM, old)
        if not keep:
            shutil.rmtree(base, ignore_errors=True)
