"""``outlive explain``: which known failure fits a description, and the page of one."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from outlive import errors
from outlive.cli.printing import columns, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "explain",
        help="known failures that fit a description; the page of one",
        description="Describe what you see, in English or Chinese, and get the known failures that fit best. "
        "With an id (U7) or a name (inodes-exhausted-or-hidden-hog) instead: its page. Nothing is sent anywhere.",
    )
    parser.add_argument("words", nargs="*", metavar="WORDS", help="what you see, or an id; `-` reads it from stdin")
    parser.add_argument("-n", "--limit", type=int, default=5, metavar="N", help="so many results (5)")
    parser.add_argument("--lang", choices=("en", "zh"), default=None, help="language of titles and labels")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the page that was named, or the pages that fit. 0 whenever there is an answer, also a weak one."""
    said = (sys.stdin.read(100_000) if args.words == ["-"] else " ".join(args.words)).strip()
    if not said:
        raise errors.UsageError(
            "explain what? Say what you see in your own words, or name an entry",
            safe="Nothing was done.",
            next=[
                ["outlive", "explain", "no space left but df shows 200 GB free"],
                ["outlive", "explain", "loss 不下降"],
                ["outlive", "explain", "U7"],
            ],
        )
    if args.limit < 1:
        raise errors.UsageError(f"--limit {args.limit}: at least one", safe="Nothing was done.")
    from outlive.advice import words

    lang = args.lang or ("zh" if words.IS_HAN.search(said) or _locale().startswith("zh") else "en")
    if not (_looks_like_a_name(said) and _page(args, said, lang)):
        _found(args, said, lang)
    return 0


def _found(args: argparse.Namespace, said: str, lang: str) -> None:
    from outlive.advice.search import Index
    from outlive.views import explain_view

    hits, weak = Index.load().search(said, args.limit)
    result(
        args,
        explain_view.found_data(said, hits, weak),
        lambda: explain_view.found_lines(hits, weak, lang, columns()),
    )


def _page(args: argparse.Namespace, name: str, lang: str) -> bool:
    """Print the page of that name; False when it is an ordinary word after all. Raises UnknownName."""
    from outlive.advice import named

    found = named.page(name)
    if found is None:
        return False
    from outlive.views import explain_view

    result(
        args,
        explain_view.page_data(found),
        lambda: explain_view.page_lines(found, lang, columns()),
    )
    return True


def _looks_like_a_name(said: str) -> bool:
    return len(said) <= 60 and said.isascii() and not any(c.isspace() for c in said) and ("-" in said or said.isalnum())


def _locale() -> str:
    return os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
