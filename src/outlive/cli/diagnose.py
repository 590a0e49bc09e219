"""``outlive diagnose``: the root cause in a log, and what to do about it."""

from __future__ import annotations

import argparse
import os
from typing import Any

from outlive import errors


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "diagnose",
        help="the root cause in a log, and what to do about it",
        description="Reads logs (plain or gzip, several of one incident at once) or the log of a run, and names the "
        "root cause with its evidence, how sure that is, and the remedy. Opens no connection for files.",
    )
    parser.add_argument("logs", nargs="*", metavar="LOG|RUN", help="files, `-` for standard input, or one run")
    parser.add_argument(
        "--propose-rule",
        action="store_true",
        help="also write the draft of a rule for this log into your own directory of rules, redacted",
    )
    parser.add_argument("--name", metavar="SLUG", help="name of that draft: small letters, digits and `-`")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis. 0 whenever there is an answer, also `not known`."""
    from outlive.cli.printing import columns, result
    from outlive.views.finding_view import lines

    name = getattr(args, "name", None)
    if not getattr(args, "propose_rule", False):
        if name is not None:
            raise errors.UsageError("--name names a draft: it goes with --propose-rule", safe="Nothing was done.")
        data = _data(args.logs, None)
    else:
        data = _data(args.logs, name or "")
    result(args, data, lambda: lines(data, columns()))
    return 0


def _data(words: list[str], propose: str | None) -> dict[str, Any]:
    from outlive.runs import diagnose

    if len(words) == 1 and _is_run(words[0]) or not words:
        from outlive.cli.known import the_run
        from outlive.runs.home import Home

        home = Home.default()
        record = the_run(home, words[0] if words else "")
        data: dict[str, Any] = home.ledger.secrets.redact(diagnose.of_run(home, record, propose))
        return data
    if words.count("-") > 1:
        raise errors.UsageError("standard input can be read once", safe=diagnose.SAFE)
    return diagnose.of_paths(words, propose)


def _is_run(word: str) -> bool:
    """Whether a word means a run: no file of that name, and nothing in it that only paths have."""
    return word != "-" and not os.path.exists(word) and "/" not in word and not word.endswith((".log", ".txt", ".gz"))
