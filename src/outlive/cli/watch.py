"""``outlive watch``: follow a run, with a bounded end. A watcher reports even if nothing changed."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.cli.printing import colour_wanted, columns, json_line, note, result, unicode_wanted

if TYPE_CHECKING:
    from outlive.ledger import Run
    from outlive.runs.home import Home
    from outlive.views.watch_view import Picture


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "watch",
        help="follow a run until it ends",
        description="Follow a run. At a terminal: a display that ends with the run; Ctrl-C leaves, the run goes on. "
        "Elsewhere: one look, unless --follow or --until. Ends with 0 succeeded (or what --until waits for happened), "
        "1 ended otherwise, 4 no answer, 6 unknown, 7 not ended when the looking was over.",
    )
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="a run, its prefix, its box, @last; left out: the only one"
    )
    parser.add_argument("--once", action="store_true", help="one look")
    parser.add_argument("--follow", action="store_true", help="follow, also without a terminal: lines")
    parser.add_argument("--until", default=None, metavar="WHAT", help="done, finding (an alarm), change, or step=N")
    parser.add_argument("--timeout", default=None, metavar="TIME", help="end with 7 after this long (like 9m)")
    parser.add_argument("--exit-status", action="store_true", help="end with the job's own status")
    parser.add_argument("--json", action="store_true", help="one JSON object; with --follow or --until JSON lines")


def run(args: argparse.Namespace) -> int:
    """Watch and return how the run stands."""
    from outlive.cli.known import the_run
    from outlive.runs.home import Home
    from outlive.runs.watch import Until

    home = Home.default()
    until = Until.parse(args.until) if args.until is not None else None
    timeout_s = _seconds(args.timeout) if args.timeout is not None else None
    if args.once and (args.follow or until is not None):
        raise errors.UsageError("--once is one look; leave out --follow and --until")
    record = the_run(home, args.run)
    if not args.run and not args.json:
        note(f"{record.run} on {record.box}")
    tty = sys.stdout.isatty() and not args.json
    if args.once or not (tty or args.follow or until is not None):
        return _once(home, record, args, timeout_s)
    return follow_to_end(home, record, args, tty=tty and not args.follow, until=until, timeout_s=timeout_s)


def _seconds(text: str) -> float:
    from outlive.runs.job import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise errors.UsageError(f"--timeout: {error}") from error


def _once(home: Home, record: Run, args: argparse.Namespace, timeout_s: float | None) -> int:
    from outlive.cli import seen as memory
    from outlive.runs.watch import once

    picture = _picture(home, record)
    seen = once(home, record, timeout_s=timeout_s or 20.0)
    picture.add(seen)
    _samples(home, record, picture)
    if seen.status is not None:
        memory.remember(home, record.box, [seen.status])
    result(args, picture.data(seen), lambda: picture.once_lines(columns()), home.ledger.secrets)
    return code_of(picture, args, followed=False)


def follow_to_end(
    home: Home, record: Run, args: argparse.Namespace, *, tty: bool, until: Any = None, timeout_s: float | None = None
) -> int:
    """Follow a run with a display (``tty``), as lines, or as JSON lines, and return the exit code."""
    from outlive.cli import seen as memory
    from outlive.runs.watch import follow

    picture = _picture(home, record)
    secrets = home.ledger.secrets
    met = False
    live = None
    if tty:
        from outlive.cli.live import Live

        live = Live(secrets, colour_wanted(), unicode_wanted())
    try:
        if live is not None:
            live.draw(picture)
        pause = _redrawing(live, picture) if live is not None else time.sleep
        for seen in follow(
            home, record, until=until, timeout_s=timeout_s, sleep=pause, give_up_s=_give_up_s(tty, timeout_s)
        ):
            picture.add(seen)
            _samples(home, record, picture)
            if seen.status is not None:
                memory.remember(home, record.box, [seen.status])
            if args.json:
                json_line(picture.data(seen), secrets)
            elif live is not None:
                live.draw(picture)
            else:
                for line in picture.line(seen):
                    print(secrets.redact(line), flush=True)
        met = True
    finally:
        if live is not None:
            live.close()
    if not args.json and picture.status is not None and picture.status["ended"]:
        from outlive.views.printable import fold

        for line in picture.end_lines():
            for part in fold(secrets.redact(line), columns(), "  "):
                print(part, flush=True)
    _then(home, record, picture, args)
    return code_of(picture, args, followed=True, waited_for_end=until is None or until.kind == "done", met=met)


def _then(home: Home, record: Run, picture: Picture, args: argparse.Namespace) -> None:
    """Carry out ``--then down`` of a run that has ended, and say how that went; never asks."""
    if picture.status is None:
        return
    from outlive.runs.then import after_end

    done = after_end(home, record, picture.status)
    if done is None:
        return
    from outlive.views import down_view

    if args.json:
        json_line(down_view.data(done), home.ledger.secrets)
        return
    for line in down_view.lines(done, columns()):
        print(home.ledger.secrets.redact(line), flush=True)
    if done.refusal is not None:
        note(done.refusal.sentence(), home.ledger.secrets)


def code_of(
    picture: Picture, args: argparse.Namespace, *, followed: bool, waited_for_end: bool = True, met: bool = False
) -> int:
    """Return the exit code: see the description of the verb."""
    status = picture.status
    if status is None:
        return 6
    if args.exit_status and status["ended"]:
        own = _own_status(status)
        if own is not None:
            return own
        note("the job's own status is not known; ending with 6")
        return 6
    if status["ended"]:
        return 0 if status["state"] == "succeeded" else 1
    if followed and met and not waited_for_end:
        return 0
    return 6 if status["state"] == "unknown" else 7


def _own_status(status: dict[str, Any]) -> int | None:
    evidence = (status.get("outcome") or {}).get("evidence") or {}
    for key in ("exit_code", "exit_status"):
        if isinstance(evidence.get(key), int):
            return int(evidence[key]) & 0xFF
    if isinstance(evidence.get("signal"), int):
        return 128 + int(evidence["signal"])
    return 0 if status["state"] == "succeeded" else None


def _give_up_s(tty: bool, timeout_s: float | None) -> float | None:
    """A program gets an answer within ten minutes; a person at a terminal decides for themselves."""
    return None if tty or timeout_s is not None else 600.0


def _picture(home: Home, record: Run) -> Picture:
    from outlive.views.watch_view import Picture

    picture = Picture(record.run, record.box)
    picture.read_mirror(_mirror(home, record))
    return picture


def _samples(home: Home, record: Run, picture: Picture) -> None:
    picture.read_sample(_mirror(home, record))


def _mirror(home: Home, record: Run) -> Any:
    return home.mirror(record.run) / home.box_of(record.box).box_id[:12]


def _redrawing(live: Any, picture: Picture) -> Any:
    def pause(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            live.draw(picture)

    return pause
