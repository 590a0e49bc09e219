"""``outlive run``: push, start detached, hand back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.cli.printing import Progress, columns, note, result

if TYPE_CHECKING:
    from outlive.runs.job import Job

SAFE = "Nothing was pushed or started."


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "run",
        help="push, start detached, hand back",
        usage="outlive run [options] [-- CMD ...]",
        description="Push this project and start the job on a box, detached. Same job, same spec: attaches, resumes, "
        "or says that it is finished. Words after -- reach the program exactly; without them outlive.toml decides.",
    )
    parser.add_argument("--on", default="", metavar="BOX", help="where; left out: the only box")
    parser.add_argument(
        "--name", default="", metavar="JOB", help="name of the job (default: outlive.toml, else the directory)"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="K=V", help="a variable of the work; may be repeated"
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="NAME",
        help="a variable of this shell that the work gets as a secret",
    )
    parser.add_argument(
        "--durable", default=None, metavar="PATH", help="safe place: a path there, rclone:remote:path, here, none"
    )
    parser.add_argument("--max-hours", type=float, default=None, metavar="H", help="the run's lease in hours of work")
    parser.add_argument("--max-cost", default=None, metavar="AMOUNT", help="the run's lease in money, like 20USD")
    parser.add_argument(
        "--roster", action="append", default=[], metavar="GLOB", help="a file the run must leave; may be repeated"
    )
    parser.add_argument("--checkpoints", default=None, metavar="DIR", help="where it saves, relative to the project")
    parser.add_argument(
        "--keep-latest", type=int, default=None, metavar="N", help="older checkpoints are pruned on the box"
    )
    parser.add_argument(
        "--stall", default=None, metavar="TIME", help="nothing advances for this long: stalled (like 10m)"
    )
    parser.add_argument(
        "--from", dest="origin", default="", metavar="RUN", help="start from this run's newest proved checkpoint"
    )
    parser.add_argument(
        "--then", choices=("keep", "pause", "down"), default=None, help="what becomes of the box after a proved end"
    )
    parser.add_argument("--no-push", action="store_true", help="start without the project's files")
    parser.add_argument("--wait", action="store_true", help="follow it to its end")
    parser.add_argument("--exit-status", action="store_true", help="with --wait: end with the job's own status")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(takes_command=True)


def run(args: argparse.Namespace) -> int:
    """Start the job and say what is kept. 1 when it ended badly at once."""
    from outlive.runs import run as runs_run
    from outlive.runs.home import Home
    from outlive.runs.place import open_place
    from outlive.views import started_view

    home = Home.default()
    job = job_of(args)
    if args.origin:
        from outlive.runs.move import move

        target = open_place(home, home.box_of(args.on)) if args.on else None
        done = move(home, job, args.origin, target)
    else:
        place = runs_run.choose_box(home, args.on)
        if not args.on:
            note(f"on {place.name}")
        progress = Progress("push")
        try:
            done = runs_run.run(
                home,
                job,
                place,
                progress=progress,
                allow_no_safe_place=args.durable == "none",
                on_push=None if args.json else _preview,
            )
        finally:
            progress.close()
            place.close()
    secrets = home.ledger.secrets
    if args.wait:
        from outlive.cli import watch

        if not args.json:
            for line in _lines(started_view.started_rows(done)):
                note(line, secrets)
        record = home.run_of(done.run)
        return watch.follow_to_end(home, record, args, tty=sys.stdout.isatty() and not args.json)
    result(args, started_view.started_data(done), lambda: _lines(started_view.started_rows(done)), secrets)
    return 1 if done.status["ended"] and done.status["state"] not in ("succeeded", "stopped") else 0


def job_of(args: argparse.Namespace) -> Job:
    """Return the job that outlive.toml and the flags mean together. Raises UsageError; opens no connection."""
    from dataclasses import replace

    from outlive.artifacts.manifest import relative_path
    from outlive.runs.job import job_name, money, seconds
    from outlive.runs.run import job_from
    from outlive.wire.names import JOB_NAME

    if args.name and not JOB_NAME.match(args.name):
        raise errors.UsageError(
            f"--name {args.name}: small letters, digits, '.', '_', '-', at most 40; for example {job_name(args.name)}",
            safe=SAFE,
        )
    if args.exit_status and not args.wait:
        raise errors.UsageError("--exit-status needs --wait: without it nobody is here when the job ends", safe=SAFE)
    job = job_from(Path.cwd(), tuple(args.command), args.name)
    env = dict(job.env)
    for pair in args.env:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise errors.UsageError(f"--env {pair}: write NAME=VALUE; a secret goes in as --secret NAME", safe=SAFE)
        env[key] = value
    secrets = dict(job.secrets)
    for name in args.secret:
        inside, equals, here = name.partition("=")
        if not inside.isidentifier() or (equals and not here.isidentifier()):
            raise errors.UsageError(
                "--secret takes the name of a variable (or NAME=NAME_HERE), never a value", safe=SAFE
            )
        secrets[inside] = here or inside
    keep = job.keep
    if args.keep_latest is not None:
        if args.keep_latest < 1:
            raise errors.UsageError(
                "--keep-latest is at least 1: the newest good checkpoint is never pruned", safe=SAFE
            )
        keep = {**(keep or {"best": 0}), "latest": args.keep_latest}
    limits = dict(job.limits)
    try:
        if args.stall is not None:
            limits["stall_s"] = seconds(args.stall)
        max_cost = money(args.max_cost) if args.max_cost is not None else job.max_cost
        roster = job.roster + tuple(relative_path(glob) for glob in args.roster)
        checkpoints = relative_path(args.checkpoints) if args.checkpoints else job.checkpoints
    except ValueError as error:
        raise errors.UsageError(str(error), safe=SAFE) from error
    if args.max_hours is not None and not args.max_hours > 0:
        raise errors.UsageError("--max-hours must be more than 0", safe=SAFE)
    durable = job.durable_to if args.durable is None else args.durable
    if not (durable in ("auto", "here", "none") or durable.startswith(("/", "rclone:", "{durable}", "{data}"))):
        raise errors.UsageError(
            f"--durable is a path on the box, rclone:remote:path, here, auto or none, not {durable!r}", safe=SAFE
        )
    return replace(
        job,
        env=env,
        secrets=secrets,
        keep=keep,
        limits=limits,
        max_cost=max_cost,
        roster=roster,
        checkpoints=checkpoints,
        durable_to=durable,
        push=job.push and not args.no_push,
        then=args.then or job.then,
        max_s=args.max_hours * 3600 if args.max_hours is not None else job.max_s,
    )


def _preview(snapshot: Any) -> None:
    from outlive.views.push_view import preview_lines

    for line in preview_lines(snapshot):
        note(line)


def _lines(rows: list[tuple[str, str]]) -> list[str]:
    from outlive.views import labelled

    return labelled.lines(rows, columns())
