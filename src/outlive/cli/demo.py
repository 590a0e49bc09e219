"""`outlive demo`: the whole life of a run on this machine, with a crash in the middle of it."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.cli import printing

if TYPE_CHECKING:
    from outlive.runs.demo import Told

KEPT = "outlive-demo"


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "demo",
        help="the whole life of a run on this machine: crash, resume, proof",
        description="A small training is killed in the middle of a save, resumes, loses its client, is taken over, "
        "compared with an undisturbed run, pulled and proved, and its box is purged. "
        "No GPU, server or account; under a minute.",
    )
    parser.add_argument("--keep", action="store_true", help=f"keep all that was made, in ./{KEPT}")
    parser.add_argument("--fast", action="store_true", help="a shorter training")
    parser.add_argument("--plain", action="store_true", help="lines instead of the live display")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout; lines go to stderr")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Play the demo and return 0; a check that fails raises CheckFailed (1)."""
    from outlive.views import demo as view

    with _directory(args.keep) as base:
        told = _play(args, base)
        kept = f"kept in {base}" if args.keep else "all removed again (--keep keeps it)"
        result = str(told.result) if args.keep else None
        printing.result(args, view.data(told, result), lambda: [view.summary(told, kept)])
    return 0


def _play(args: argparse.Namespace, base: Path) -> Told:
    from outlive.runs.demo import play
    from outlive.views import demo as view

    if args.json or args.plain or not (printing.colour_wanted() and printing.unicode_wanted()):
        stream = sys.stderr if args.json else sys.stdout
        return play(base, view.Plain(lambda line: print(line, file=stream, flush=True)).show, fast=args.fast)

    from rich.console import Console
    from rich.live import Live

    panel = view.Panel()
    with Live(panel, console=Console(highlight=False), refresh_per_second=8, vertical_overflow="crop"):
        try:
            return play(base, panel.show, fast=args.fast)
        finally:
            panel.end()


@contextmanager
def _directory(keep: bool) -> Iterator[Path]:
    """Yield an empty directory of this demo alone; removed at the end, whatever the end is, unless it is to be kept."""
    if keep:
        base = next(
            p
            for p in (Path.cwd() / (KEPT + tail) for tail in ["", *(f"-{n}" for n in range(2, 1000))])
            if not p.exists()
        )
        base.mkdir(mode=0o700)
    else:
        base = Path(tempfile.mkdtemp(prefix="outlive-demo-")).resolve()
    old = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: with everything cleared up
    try:
        yield base
    finally:
        signal.signal(signal.SIGTERM, old)
        if not keep:
            shutil.rmtree(base, ignore_errors=True)
