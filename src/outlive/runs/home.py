"""The client's own state: one directory with the ledger, mirrors of runs, keys and known hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from outlive import errors
from outlive.ledger import Box, Ledger, LedgerState, Run, load, resolve


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``$OUTLIVE_HOME``, or ``outlive`` under ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    own = environ.get("OUTLIVE_HOME")
    if own:
        return Path(own).expanduser().absolute()
    base = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local/state")
    return Path(base) / "outlive"


@dataclass
class Home:
    """What this client remembers. Everything but the ledger may be deleted; boxes remember the rest."""

    dir: Path
    ssh_config: Path | None = None

    @classmethod
    def default(cls) -> Home:
        """Return the home that the environment names. Opens nothing."""
        config = os.environ.get("OUTLIVE_SSH_CONFIG")
        return cls(state_dir(), Path(config) if config else None)

    @cached_property
    def ledger(self) -> Ledger:
        try:
            self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise errors.NoSpace(
                f"the state directory {self.dir} cannot be made: {error.strerror}",
                safe="Nothing was done; runs on boxes go on.",
                next=[["env", "OUTLIVE_HOME=/another/place", "outlive"]],
            ) from error
        return Ledger(self.dir / "ledger.jsonl")

    def state(self) -> LedgerState:
        """Return the fold of the ledger as it stands now."""
        return load(self.ledger, self.dir / "cache.sqlite")

    def mirror(self, run: str) -> Path:
        """Return this client's directory for what it has read of a run (journal, metrics, log)."""
        path = self.dir / "runs" / run
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def find(self, word: str = "", want: str = "any", state: LedgerState | None = None) -> Box | Run:
        """Return the box or run that a word means here. ``state``: if it was read. Raises UnknownName or Ambiguous."""
        return resolve(self.state() if state is None else state, word, os.getcwd(), want)  # type: ignore[arg-type]

    def box_of(self, word: str = "") -> Box:
        """Return the box that a word means: a box's name, or the box of a run."""
        found = self.find(word)
        if isinstance(found, Box):
            return found
        state = self.state()
        box = state.boxes.get(found.box)
        if box is None:
            raise errors.UnknownName(f"run {found.run} was on a box that is not known here any more", name=word)
        return box

    def run_of(self, word: str = "", state: LedgerState | None = None) -> Run:
        """Return the run that a word means: a run's id or prefix, ``@last``, or the only run of a box."""
        state = self.state() if state is None else state
        found = self.find(word, state=state)
        if isinstance(found, Run):
            return found
        runs = [r for r in state.runs.values() if r.box == found.name and not r.forgotten]
        alive = [r for r in runs if r.state not in ("succeeded", "suspect", "failed", "stopped")] or runs[-1:]
        if len(alive) == 1:
            return alive[0]
        if not alive:
            raise errors.UnknownName(
                f"no run on {found.name} is known here",
                name=word,
                next=[["outlive", "adopt", found.name], ["outlive", "run", "--on", found.name, "--", "CMD"]],
            )
        raise errors.Ambiguous(f"{found.name} has several runs", name=word, candidates=[r.run for r in alive])
