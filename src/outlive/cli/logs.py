"""``outlive logs``: what the run itself printed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.cli.printing import json_line, note, result

if TYPE_CHECKING:
    from outlive.ledger import Run
    from outlive.runs.home import Home

TAIL = 200
LINE_BYTES = 65536
"""A longer line is shown in pieces."""


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "logs",
        help="what the run itself printed",
        description="The run's own output. Control characters are made visible and declared secrets redacted, "
        "unless --raw.",
    )
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="left out: the only one")
    parser.add_argument("--follow", "-f", action="store_true", help="go on until the run ends; ends as `watch` does")
    parser.add_argument("--tail", default=str(TAIL), metavar="N", help=f"the last N lines, or `all` (default {TAIL})")
    parser.add_argument("--raw", action="store_true", help="the bytes as they are")
    parser.add_argument("--json", action="store_true", help="one JSON object; with --follow JSON lines")


def run(args: argparse.Namespace) -> int:
    """Print the log. 4 when the box does not answer: then what was read before is printed."""
    from outlive.cli.known import the_run
    from outlive.runs import logs
    from outlive.runs.home import Home

    if args.tail != "all" and not args.tail.isdigit():
        raise errors.UsageError(f"--tail takes a number or `all`, not {args.tail!r}")
    wanted = None if args.tail == "all" else int(args.tail)
    home = Home.default()
    record = the_run(home, args.run)
    if args.follow:
        return _follow(home, record, args, wanted)
    try:
        pieces: Iterable[bytes]
        if wanted is None:
            pieces = logs.whole(home, record)
        else:
            data = logs.tail(home, record, last_bytes=max(65536, min(4 << 20, wanted * 512)))
            pieces = [_last_lines(data, wanted)]
        _show(args, home, record, pieces, current=True)
        return 0
    except errors.PlaceError as error:
        copy = logs.mirrored(home, record)
        if copy is None:
            raise
        age = time.time() - copy.stat().st_mtime
        if not args.json:
            from outlive.views.amounts import ago

            note(f"outlive: {error.what}; this is what was read here {ago(age)}")
        data = copy.read_bytes()
        _show(args, home, record, [data if wanted is None else _last_lines(data, wanted)], current=False, age_s=age)
        return error.exit_code


def _show(
    args: argparse.Namespace,
    home: Home,
    record: Run,
    pieces: Iterable[bytes],
    *,
    current: bool,
    age_s: float | None = None,
) -> None:
    if args.raw and not args.json:
        for piece in pieces:
            _write(piece)
        return
    lines = (text for text, _ in _texts(pieces))
    if args.json:
        data = {
            "schema": "outlive/logs/1",
            "run": record.run,
            "box": record.box,
            "current": current,
            "age_s": age_s,
            "untrusted": {"lines": list(lines)},
        }
        result(args, data, list, home.ledger.secrets)
        return
    for line in lines:
        print(home.ledger.secrets.redact(line))
    sys.stdout.flush()


def _texts(pieces: Iterable[bytes]) -> Iterator[tuple[str, bool]]:
    """Yield (line, whether it ended) as text that is safe for a terminal."""
    from outlive.views.printable import last_state_of, printable

    rest = b""
    for piece in pieces:
        parts = (rest + piece).split(b"\n")
        rest = parts.pop()
        for part in parts:
            yield printable(last_state_of(_gap(part))), True
        while len(rest) > LINE_BYTES:
            yield printable(_gap(rest[:LINE_BYTES])), False
            rest = rest[LINE_BYTES:]
    if rest:
        yield printable(last_state_of(_gap(rest))), False


def _gap(part: bytes) -> str:
    """Return a line as text; the zeros where a log that outgrew its limit was given back are named, not printed."""
    zeros = part.count(b"\0")
    if zeros > 4096:
        return f"[{zeros} bytes of the log were given back here: it outgrew its limit]" + part.replace(
            b"\0", b""
        ).decode("utf-8", "replace")
    return part.decode("utf-8", "replace")


def _last_lines(data: bytes, count: int) -> bytes:
    if count == 0:
        return b""
    lines = (
        data.splitlines(keepends=True)
        if b"\r" not in data
        else [part + b"\n" for part in data.rstrip(b"\n").split(b"\n")]
    )
    return b"".join(lines[-count:])


def _write(piece: bytes) -> None:
    view = memoryview(piece)
    sys.stdout.flush()
    while view:
        view = view[os.write(sys.stdout.fileno(), view) :]


def _follow(home: Home, record: Run, args: argparse.Namespace, wanted: int | None) -> int:
    """Print what comes until the run has ended and all of it was read. A lost connection is said and tried again."""
    from outlive.runs.look import poll_run
    from outlive.runs.place import open_place

    secrets = home.ledger.secrets
    place = open_place(home, home.box_of(record.box))
    offset = 0 if wanted is None else -max(65536, min(4 << 20, wanted * 512))
    first, rest, failures = True, b"", 0
    last_answer = time.monotonic()
    try:
        while True:
            try:
                _, status, parts = poll_run(place, record.run, {"log": offset})
                failures, last_answer = 0, time.monotonic()
            except (errors.PlaceError, errors.TimeOver) as error:
                failures += 1
                if failures == 1:
                    note(f"outlive: {error.what}; this says nothing about the run; trying again")
                if time.monotonic() - last_answer > 600:
                    raise
                time.sleep(min(30.0, 2.0**failures))
                continue
            start, data = parts.get("log", (max(0, offset), b""))
            offset = start + len(data)
            if first and wanted is not None:
                data = _last_lines(data if start == 0 else data.partition(b"\n")[2], wanted)
            first = False
            if args.raw and not args.json:
                _write(data)
            else:
                whole, newline, rest = (rest + data).rpartition(b"\n")
                for text, _ in _texts([whole + newline]):
                    _say(args, record, text, secrets)
            if offset >= status["log_bytes"] and status["ended"]:
                for text, _ in _texts([rest]):
                    _say(args, record, text, secrets)
                return 0 if status["state"] == "succeeded" else 1
            if not data:
                time.sleep(1.0)
    finally:
        place.close()


def _say(args: argparse.Namespace, record: Run, text: str, secrets: Any) -> None:
    if args.json:
        json_line({"schema": "outlive/logs/1", "run": record.run, "untrusted": {"lines": [text]}}, secrets)
    else:
        print(secrets.redact(text), flush=True)
