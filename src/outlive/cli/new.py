"""``outlive new``: a training project that survives from its first step, or a patch for a loop of one's own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.cli.printing import note, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "new",
        help="a training project that can be killed at any moment",
        description=(
            "Write a training project (nanogpt, litgpt or hf-trainer) into a new directory: scripts to read and change,"
            " phases, checkpoints, launcher. With --from, print a patch that makes an existing loop resumable."
        ),
    )
    parser.add_argument("kind", nargs="?", metavar="KIND", help="nanogpt, litgpt or hf-trainer")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the directory to make")
    parser.add_argument("--from", dest="source", metavar="SCRIPT", help="propose a patch for this training script")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Write the project, or print the patch."""
    if args.source:
        if args.kind:
            raise errors.UsageError("--from SCRIPT takes no KIND", safe="Nothing was written.")
        return _propose(args)
    from outlive.runs.job import job_name
    from outlive.scaffold.project import KINDS, write

    if not args.kind or not args.name:
        raise errors.UsageError(
            "outlive new needs a kind and a name",
            why=[f"{name}: {what}" for name, what in KINDS.items()],
            safe="Nothing was written.",
            next=[["outlive", "new", "nanogpt", "my-gpt"]],
        )
    directory = Path(args.name)
    files = write(args.kind, directory, job_name(directory.resolve().name))
    following = [["cd", str(directory)], ["python", "train.py", "--limit-batches", "2"], ["outlive", "run"]]
    data = {
        "schema": "outlive/new/1",
        "kind": args.kind,
        "directory": str(directory),
        "files": files,
        "next": following,
    }
    result(args, data, lambda: [
        f"wrote {directory}: {len(files)} files",
        *(f"  {name}" for name in files),
        "next:",
        *("  " + " ".join(words) for words in following),
    ])  # fmt: skip
    return 0


def _propose(args: argparse.Namespace) -> int:
    from outlive.scaffold.adapt import propose

    found = propose(Path(args.source))
    data = {"schema": "outlive/new-from/1", **found}

    result(args, data, lambda: found["patch"].splitlines())
    if not args.json:
        for line in found["notes"]:
            note(line)
    return 0
