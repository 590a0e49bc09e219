"""What every verb prints: results to stdout, everything else to stderr, declared secrets out of both."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from outlive.views.printable import json_safe

if TYPE_CHECKING:
    from outlive.ledger.secret import Secrets

MIN_COLUMNS = 24


def columns() -> int:
    """Return the width to write for: the terminal's, or 100 where there is none."""
    try:
        told = int(os.environ.get("COLUMNS", "0"))
        return max(MIN_COLUMNS, told or os.get_terminal_size(sys.stdout.fileno()).columns or 100)
    except (AttributeError, ValueError, OSError):
        return 100


def colour_wanted() -> bool:
    """Return whether stdout is a terminal that may be coloured (``NO_COLOR`` and ``TERM=dumb`` say no)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def unicode_wanted() -> bool:
    """Return whether stdout can show block characters."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def result(
    args: argparse.Namespace, data: dict[str, Any], lines: Callable[[], Iterable[str]], secrets: Secrets | None = None
) -> None:
    """Print the verb's result: one JSON object with ``--json``, else the lines. ``secrets`` are redacted in both."""
    redact = secrets.redact if secrets is not None else _same
    if getattr(args, "json", False):
        print(json_safe(json.dumps(redact(data), ensure_ascii=False, allow_nan=False, default=str)))
    else:
        for line in lines():
            print(redact(line))
    sys.stdout.flush()


def json_line(data: dict[str, Any], secrets: Secrets | None = None) -> None:
    """Print one JSON line at once, for ``--follow``."""
    redact = secrets.redact if secrets is not None else _same
    print(json_safe(json.dumps(redact(data), ensure_ascii=False, allow_nan=False, default=str)), flush=True)


def note(text: str, secrets: Secrets | None = None) -> None:
    """Say something beside the result, on stderr."""
    print(secrets.redact(text) if secrets is not None else text, file=sys.stderr, flush=True)


class Progress:
    """A transfer's progress on stderr: one line that rewrites itself at a terminal, else one line every ten seconds."""

    def __init__(self, what: str) -> None:
        import time

        self._what, self._clock = what, time.monotonic
        self._last = self._clock()
        self._shown = False
        self._tty = sys.stderr.isatty()

    def __call__(self, done: int, total: int, name: str) -> None:
        from outlive.views.amounts import share, size
        from outlive.views.printable import cut, one_line

        now = self._clock()
        if now - self._last < (0.2 if self._tty else 10.0):
            return
        self._last, self._shown = now, True
        text = f"{self._what}: {size(done)} of {size(total)} {share(done, total)}  {one_line(name)}"
        if self._tty:
            print("\r\x1b[K" + cut(text, columns() - 1), end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._shown and self._tty:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _same(value: Any) -> Any:
    return value
