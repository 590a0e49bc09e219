"""`outlive platforms ls|show|lint`: what is known about who lends boxes."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Register the verb and its three words."""
    parser = subparsers.add_parser(
        "platforms",
        help="what is known about who lends boxes",
        description="What is known about who lends boxes: storage survival, billing verbs, danger clocks.",
    )
    words = parser.add_subparsers(dest="word", metavar="ls|show|lint", required=True)

    ls = words.add_parser("ls", help="all platforms, one per line")
    show = words.add_parser("show", help="one platform: survival, meter, clocks, the six verbs, first contact")
    show.add_argument("platform", help="its id, see `platforms ls`")
    lint = words.add_parser("lint", help="check facts: schema, contradictions, age; exit 1 when something is wrong")
    lint.add_argument("files", nargs="*", type=Path, metavar="FILE", help="YAML or JSON files; left out: all known")
    for word in (ls, show, lint):
        word.add_argument("--json", action="store_true", help="one JSON object on stdout")
        word.add_argument("--today", type=datetime.date.fromisoformat, default=None, help=argparse.SUPPRESS)
    for word in (ls, show):
        word.add_argument("--lang", choices=("en", "zh"), default="en", help="language where both were written")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the word and return the exit code."""
    today: datetime.date = args.today or datetime.date.today()
    return {"ls": _ls, "show": _show, "lint": _lint}[args.word](args, today)


def _ls(args: argparse.Namespace, today: datetime.date) -> int:
    from outlive.platforms.load import all_ids, load, user_dir
    from outlive.views import platform as view

    overrides = user_dir()
    platforms = [load(id, overrides=overrides) for id in all_ids(overrides=overrides)]
    _print(args, view.ls_data(platforms), lambda: view.ls_lines(platforms, args.lang))
    return 0


def _show(args: argparse.Namespace, today: datetime.date) -> int:
    from outlive.platforms.load import load, user_dir
    from outlive.views import platform as view

    platform = load(args.platform, overrides=user_dir())
    _print(args, view.show_data(platform, today), lambda: view.show_lines(platform, today, args.lang))
    return 0


def _lint(args: argparse.Namespace, today: datetime.date) -> int:
    from outlive.platforms import lint, source
    from outlive.platforms.load import all_ids, data_of, user_dir

    if args.files:
        everything = {path.stem: source.read(path) for path in args.files}
    else:
        overrides = user_dir()
        everything = {id: data_of(id, overrides=overrides)[0] for id in all_ids(overrides=overrides)}
    problems = lint.lint_all(everything, today)
    errors = [p for p in problems if p.level == "error"]
    data = {
        "schema": "outlive/platforms/1",
        "checked": sorted(everything),
        "problems": [{"platform": p.platform, "at": p.at, "level": p.level, "what": p.what} for p in problems],
    }
    summary = f"{len(everything)} platforms, {len(errors)} errors, {len(problems) - len(errors)} warnings"
    _print(args, data, lambda: [*(f"{p.level}: {p}" for p in problems), summary])
    return 1 if errors else 0


def _print(args: argparse.Namespace, data: dict[str, Any], lines: Any) -> None:
    if args.json:
        json.dump(data, sys.stdout, ensure_ascii=False)
        print()
    else:
        print("\n".join(lines()))
