"""What several verbs need of this client: the home, declared secrets, the run or box that a word means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.ledger import Box, Run
from outlive.runs.home import Home


def home() -> Home:
    """Return this client's state. Opens nothing."""
    return Home.default()


def declare_secrets(home: Home, record: Run | None, names: list[str] | None = None) -> None:
    """Declare the secrets that a run's project names, as far as this shell has them, so that they are redacted."""
    sources = list(names or [])
    if record is not None and record.cwd and os.path.isdir(record.cwd) and _has_job(Path(record.cwd)):
        from outlive.runs.job import load

        try:
            job = load(Path(record.cwd))
        except errors.BadConfig:
            job = None  # the file was changed since; what the run itself names is still covered
        if job is not None:
            sources += [*job.secrets.values(), *(word[4:] for word in job.notify)]
    for name in sources:
        home.ledger.secrets.add(os.environ.get(name, ""))


def _has_job(directory: Path) -> bool:
    """Return whether `runs.job.load` would find a file: most looks at a run need none of what reads one."""
    return any((folder / "outlive.toml").is_file() for folder in (directory, *directory.parents))


def the_run(home: Home, word: str) -> Run:
    """Return the run that a word means, with its secrets declared."""
    record = home.run_of(word)
    declare_secrets(home, record)
    return record


def box_of(home: Home, word: str) -> Box:
    """Return the box that a word means."""
    return home.box_of(word)


def untouched(status: dict[str, Any]) -> str:
    """Return what is true of a run that somebody only looked at."""
    return "" if status.get("ended") else "The run goes on."
