"""``outlive push``: send the code, or data, to a box."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.cli.printing import Progress, note, result

if TYPE_CHECKING:
    from outlive.runs.home import Home
    from outlive.runs.place import Place


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "push",
        help="send the code, or data, to a box",
        description="Send this project's snapshot to a box; only what the box lacks goes over the line, and it is "
        "compared there. `run` does this by itself. With --data: any file or directory to a place of your choice.",
    )
    parser.add_argument("dir", nargs="?", default=".", metavar="DIR", help="the project (default: here)")
    parser.add_argument("--on", default="", metavar="BOX", help="where; left out: the only box")
    parser.add_argument(
        "--data", action="append", default=[], metavar="SRC:DST", help="send SRC to DST on the box instead"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Push and say what was compared."""
    from outlive.runs.home import Home
    from outlive.runs.run import choose_box

    home = Home.default()
    pairs = [_pair(text) for text in args.data]
    place = choose_box(home, args.on)
    if not args.on and not args.json:
        note(f"on {place.name}")
    try:
        return _data(args, home, place, pairs) if pairs else _code(args, home, place)
    finally:
        place.close()


def _pair(text: str) -> tuple[str, str]:
    source, colon, target = text.rpartition(":")
    if not colon or not source or not target:
        raise errors.UsageError(
            f"--data {text}: write SRC:DST, for instance ./data:/data/set", safe="Nothing was sent."
        )
    return source, target


def _code(args: argparse.Namespace, home: Home, place: Place) -> int:
    from outlive.runs.job import Job, job_name, load
    from outlive.runs.push import push
    from outlive.views import push_view

    directory = Path(args.dir).resolve()
    if not directory.is_dir():
        raise errors.UsageError(f"there is no directory {args.dir}", safe="Nothing was sent.")
    job = load(directory) or Job(name=job_name(directory.name), stages=(), project=directory)
    seen: list[Any] = []

    def preview(snapshot: Any) -> None:
        seen.append(snapshot)
        if not args.json:
            for line in push_view.preview_lines(snapshot):
                note(line)

    progress = Progress("push")
    try:
        pushed = push(replace(job, push=True), place, progress=progress, on_snapshot=preview)
    finally:
        progress.close()
    snapshot = seen[0] if seen else None
    result(
        args,
        push_view.pushed_data(place.name, snapshot, pushed),
        lambda: push_view.pushed_lines(place.name, snapshot, pushed),
        home.ledger.secrets,
    )
    return 0


def _data(args: argparse.Namespace, home: Home, place: Place, pairs: list[tuple[str, str]]) -> int:
    from outlive.runs.push import push_data
    from outlive.views import push_view

    done = []
    for source, target in pairs:
        progress = Progress(f"push {source}")
        try:
            done.append((source, push_data(place, source, target, progress)))
        finally:
            progress.close()
    result(
        args,
        push_view.sent_data(place.name, done),
        lambda: push_view.sent_lines(place.name, done),
        home.ledger.secrets,
    )
    return 0
