"""``outlive ckpt ls|verify|best|resume-point``: checkpoints in a directory here, or of a run."""

from __future__ import annotations

import argparse
from typing import Any

from outlive.cli.printing import columns, note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb and its four words."""
    parser = subparsers.add_parser(
        "ckpt",
        help="list checkpoints, prove them, find the best and the one to resume from",
        description="Checkpoints in a directory here or of a run: our own, and those of torch, Lightning, Hugging "
        "Face, DeepSpeed, torch.distributed.checkpoint and safetensors. Nothing is loaded, executed or changed.",
    )
    words = parser.add_subparsers(dest="word", metavar="ls|verify|best|resume-point", required=True)
    ls = words.add_parser("ls", help="all of them, the newest last")
    verify = words.add_parser("verify", help="read them and compare; exit 1 when one is damaged")
    best = words.add_parser("best", help="the path of the best by a metric")
    resume = words.add_parser("resume-point", help="the path of the newest good one, read whole")
    for word in (ls, verify, best, resume):
        word.add_argument(
            "where",
            nargs="?",
            default="",
            metavar="DIR|RUN",
            help="a directory or file here, or a run; left out: the only run",
        )
    verify.add_argument("names", nargs="*", metavar="NAME", help="only these, as `ls` names them")
    for word in (verify, resume):
        word.add_argument(
            "--level",
            choices=("bytes", "structure", "tensors"),
            default="structure" if word is verify else "",
            help="how far: digests, containers too, or values too (NaN, infinity)",
        )
    best.add_argument("--metric", default="", metavar="NAME", help="left out: val_loss, else loss")
    best.add_argument("--mode", choices=("min", "max"), default="min", help="which end is better (default min)")
    for word in (ls, verify, best, resume):
        word.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Carry out the word. 1 when something is damaged or nothing fits, 6 when a check could not be made."""
    from outlive.runs import ckpt
    from outlive.runs.home import Home
    from outlive.views import ckpt_view

    home = Home.default()
    if args.word == "verify":
        found = ckpt.verify(home, args.where, args.names, args.level)
    elif args.word == "best":
        found = ckpt.best(home, args.where, args.metric, args.mode)
    elif args.word == "resume-point":
        found = ckpt.resume_point(home, args.where, args.level)
    else:
        found = ckpt.listing(home, args.where)
    ages = ckpt.ages(found)
    short = args.word in ("best", "resume-point")
    result(
        args,
        ckpt_view.data(found, ages),
        lambda: ckpt_view.path_line(found) if short else ckpt_view.lines(found, ages, columns()),
        home.ledger.secrets,
    )
    if not args.json:
        for text in found.notes:
            note(f"outlive: {text}")
    return found.exit_code
