"""Boxes and runs share one namespace: which one a word means, and names for new boxes."""

import os.path
import re
from typing import Literal

from outlive.errors import Ambiguous, UnknownName, UsageError
from outlive.ledger.state import Box, LedgerState, Run
from outlive.wire.names import RUN_ID
from outlive.wire.states import RUN_ENDED

BOX_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

LAST = "@last"

Want = Literal["any", "box", "run"]


def resolve(state: LedgerState, word: str = "", cwd: str = "", want: Want = "any") -> Box | Run:
    """Return the box or run that a word means.

    ``word`` is a whole name, a prefix that fits only one, ``@last`` (the run that was started last),
    or empty. Empty means, inside a project directory, its only run that has not ended, else its
    newest; elsewhere the only box. ``cwd`` is an absolute path. What was forgotten is not found.
    Raises UnknownName, or Ambiguous with the candidates.
    """
    boxes = {b.name: b for b in state.boxes.values() if not b.forgotten} if want != "run" else {}
    runs = {r.run: r for r in state.runs.values() if not r.forgotten and r.last_n >= 0} if want != "box" else {}
    known: dict[str, Box | Run] = {**boxes, **runs}
    kind = want if want != "any" else "box or run"
    if word == LAST:
        return _last(state, known)
    if not word:
        return _only(list(boxes.values()), _of_project(runs, cwd), kind)
    if word in known:
        return known[word]
    fitting = sorted(name for name in known if name.startswith(word))
    if len(fitting) == 1:
        return known[fitting[0]]
    if fitting:
        raise Ambiguous(f"`{word}` fits {len(fitting)} names", name=word, candidates=fitting)
    raise UnknownName.of(kind, word, known)


def _last(state: LedgerState, known: dict[str, Box | Run]) -> Box | Run:
    run = state.runs.get(state.last_run)
    if run is None:
        raise UnknownName("no run was started from here yet", name=LAST, candidates=sorted(known))
    if state.last_run in known:
        return run
    if run.box in known:
        return known[run.box]
    raise UnknownName(f"the last run, {run.run}, was forgotten", name=LAST, candidates=sorted(known))


def _of_project(runs: dict[str, Run], cwd: str) -> list[Run]:
    """Return the runs of the innermost project that ``cwd`` is in, oldest first."""
    here = [r for r in runs.values() if r.cwd and _inside(cwd, r.cwd)]
    innermost = max((r.cwd.rstrip("/") for r in here), key=len, default="")
    return [r for r in here if r.cwd.rstrip("/") == innermost]


def _only(boxes: list[Box], here: list[Run], kind: str) -> Box | Run:
    open_ = [r for r in here if r.state not in RUN_ENDED]
    standing = [b for b in boxes if not b.gone]
    found: list[Box | Run] = [*open_] if open_ else [*here[-1:]] if here else [*standing]
    if len(found) == 1:
        return found[0]
    if found:
        names = sorted(f.name for f in found)
        raise Ambiguous(f"which {kind}? there are {len(names)}", candidates=names)
    raise UnknownName(f"no {kind} is known here yet")


def _inside(path: str, parent: str) -> bool:
    path, parent = os.path.normpath(path), os.path.normpath(parent)
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def new_name(state: LedgerState, alias: str = "", platform: str = "", asked: str = "") -> str:
    """Return a name for a new box: the one asked for, else its ssh alias, else ``<platform>-<n>``.

    Raises UsageError when the asked name is taken or cannot be a name. A taken alias gets a number.
    Names of boxes that are gone are not given again.
    """
    taken = {*state.boxes, *state.runs, *state.past_names}
    if asked:
        why = why_bad(asked)
        if why:
            raise UsageError(f"`{asked}` cannot be a name: {why}")
        if asked in taken:
            raise UsageError(f"the name `{asked}` is taken or was given before")
        return asked
    if alias and not why_bad(alias):
        return alias if alias not in taken else _numbered(alias, 2, taken)
    return _numbered(platform if platform and not why_bad(platform) else "box", 1, taken)


def why_bad(name: str) -> str:
    """Return why a word cannot name a box; ``""`` when it can."""
    if not BOX_NAME.fullmatch(name):
        return "letters, digits, dot, dash and underscore, at most 63, the first a letter or digit"
    return "it looks like a run's id" if RUN_ID.match(name) else ""


def _numbered(stem: str, first: int, taken: set[str]) -> str:
    number = first
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"
