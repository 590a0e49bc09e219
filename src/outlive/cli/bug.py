"""A bug of ours leaves a report that can be pasted into an issue, and one sentence."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from collections.abc import Sequence

from outlive import __version__, errors


class Bug(errors.OutliveError):
    """Something that this program did not expect. What it was doing is unfinished, not failed."""

    exit_code = 1
    code = "bug"


def report(error: Exception, words: Sequence[str], verb: str) -> Bug:
    """Write the report beside the ledger and return the error that names it."""
    from outlive.runs.home import state_dir

    trace = "".join(traceback.format_exception(error))
    lines = [
        f"outlive {__version__}, Python {platform.python_version()}, {platform.platform()}",
        # values of flags may be private; their names are enough to find the way here
        "command: outlive " + " ".join([verb, *(w.split("=")[0] for w in words[1:] if w.startswith("--"))]),
        "",
        trace,
    ]
    directory = state_dir() / "bugs"
    where = directory / time.strftime("%Y%m%d-%H%M%S.txt")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        where.write_text("\n".join(lines), "utf-8", errors="replace")
    except OSError:
        print(trace, file=sys.stderr)
        where = None  # type: ignore[assignment]
    what = f"a bug in outlive: {type(error).__name__}: {error}"
    kept = f"please report it with {where}" if where is not None else "please report it with the lines above"
    if os.environ.get("OUTLIVE_DEBUG"):
        print(trace, file=sys.stderr)
    return Bug(
        what,
        why=[f"{kept} (look through it first: it may hold names of yours)"],
        safe="What runs on a box goes on.",
        next=[["outlive", "ps"]],
    )
