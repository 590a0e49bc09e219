"""A person's own rules: pages of the same form as the shipped ones, in a directory that no upgrade touches.

They are read when something is diagnosed here, never sent to a box, and change no shipped rule: on a line that an own
rule knows it speaks alone, elsewhere it stands in the same order as all others. A file with a fault is named with its
line and left out; so is a draft that nobody has filled in yet. Reading them needs PyYAML, and only where there are any.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from outlive.errors import BadConfig

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from typing import Any

    from outlive.diagnose.rulebook import Rulebook

MARK = "user-"
"""What the id of every own rule begins with."""
UNSAID = "(write here: "
"""What a draft says where a person has still to write."""
DEPTH = 14
"""Of an own rule that names none: the first among the failures that say a cause, behind machine and scheduler."""
MAX_BYTES = 256 * 1024
SAFE = "This file was left out; every other rule was used."
_WORDS = {"sources": ("what", "month"), "probes": ("cmd", "confirms"), "code_checks": ("rule",)}
_SUFFIXES = (".yaml", ".yml")


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the user's own rules: ``$XDG_CONFIG_HOME/outlive/rules`` or under ``~/.config``."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(base) / "outlive" / "rules"


class OwnRules:
    """What was found in a directory: rules in use, drafts, and files with a fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages: dict[str, dict[str, Any]] = {}
        """By id, with ``family`` and ``slug`` as shipped ones, and ``file``."""
        self.drafts: dict[str, list[str]] = {}
        """File -> keys that a person has still to write."""
        self.problems: list[BadConfig] = []
        self._small: list[list[Any]] = []

    def book(self) -> Rulebook | None:
        """Return the rulebook with these rules in it; None when there are none: the shipped one will do."""
        if not self._small:
            return None
        from outlive.diagnose import rulebook

        return rulebook.with_own(self._small)

    def data(self) -> dict[str, Any]:
        """Return what programs are told; empty when there is nothing to tell."""
        if not (self.pages or self.drafts or self.problems):
            return {}
        return {
            "directory": str(self.folder),
            "used": sorted(self.pages),
            "drafts": [{"file": file, "fill_in": keys} for file, keys in self.drafts.items()],
            "problems": [
                {"file": p.file, "line": p.line, "key": p.key, "what": p.what, "why": p.why, "next": p.next}
                for p in self.problems
            ],
        }

    def add(self, path: Path) -> None:
        """Read one file. Raises BadConfig with its line for the first fault; ``why`` names the others."""
        from outlive.platforms import source

        rule = _read(path)
        if isinstance(rule.get("id"), str) and not rule["id"].startswith(MARK):
            rule["id"] = MARK + rule["id"]
        faults = _faults(rule, self.pages)
        if faults:
            lines = [(source.line_of(path, key), key, what) for key, what in faults]
            line, key, what = lines[0]
            raise BadConfig(
                what, file=str(path), line=line, key=key, why=[f"line {at}: {k}: {w}" for at, k, w in lines[1:]]
            )
        unsaid = [key for key, value in rule.items() if UNSAID in str(value)]
        if unsaid:
            self.drafts[str(path)] = unsaid
            return
        rule.update(family="user", slug=rule["id"])
        small, faults = _compiled(rule)
        if small is None:
            key, what = faults[0]
            raise BadConfig(what, file=str(path), line=source.line_of(path, key), key=key)
        self._small.append(small)
        self.pages[rule["id"]] = {**rule, "file": str(path)}


def load(folder: Path | None = None) -> OwnRules:
    """Return the rules in ``folder`` (the user's directory when none is named). Raises nothing for what is in it."""
    own = OwnRules(directory() if folder is None else folder)
    try:
        names = sorted(n for n in os.listdir(own.folder) if n.endswith(_SUFFIXES) and not n.startswith("."))
    except FileNotFoundError:
        return own
    except OSError as error:
        own.problems.append(BadConfig(f"cannot be read: {error.strerror}", file=str(own.folder), safe=SAFE))
        return own
    for name in names:
        try:
            own.add(own.folder / name)
        except BadConfig as error:
            if isinstance(error.__cause__, ImportError):
                own.problems.append(_no_yaml(own.folder, len(names)))
                break
            error.safe = SAFE
            own.problems.append(error)
    return own


def _no_yaml(folder: Path, count: int) -> BadConfig:
    said = "a rule of your own was left out" if count == 1 else f"{count} rules of your own were left out"
    return BadConfig(
        f"{said}: reading {'it' if count == 1 else 'them'} needs PyYAML, which is not installed here",
        file=str(folder),
        safe="The shipped rules were used.",
        next=[["pip", "install", "outlive[yaml]"]],
    )


def _read(path: Path) -> dict[str, Any]:
    from outlive.platforms import source

    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadConfig("is no file", file=str(path))
        if status.st_size > MAX_BYTES:
            raise BadConfig(f"is larger than {MAX_BYTES // 1024} kB, which no rule is", file=str(path))
        return source.read(path)
    except OSError as error:
        raise BadConfig(f"cannot be read: {error.strerror}", file=str(path)) from error
    except (TypeError, ValueError, RecursionError) as error:  # a list as a key, a day that no month has, deep nesting
        raise BadConfig(f"is no rule page: {error}", file=str(path)) from error


def _faults(rule: dict[str, Any], taken: Mapping[str, Any]) -> list[tuple[str, str]]:
    from outlive.advice import rulelint

    faults = rulelint.faults(rule)
    if faults:
        return faults
    if not re.fullmatch(r"[\w.-]{1,80}", rule["id"]):
        return [("id", "letters, digits, `-`, `_` and `.`, at most 80 of them")]
    if rule["id"] in taken:
        return [("id", f"{rule['id']} is the id of {taken[rule['id']]['file']} too")]
    if not (rule.get("evidence") or {}).get("patterns"):
        return [("evidence", "names no pattern: logs are diagnosed by patterns")]
    if rule["class"] is None:
        return [("class", "says nothing")]
    evidence = rule["evidence"]
    lists = [
        ("sources", rule["sources"]),
        *((f"evidence.{key}", evidence.get(key)) for key in ("probes", "code_checks")),
    ]
    for at, value in lists:
        for n, item in enumerate(value if isinstance(value, list) else [value] if value is not None else []):
            missing = [word for word in _WORDS[at.rpartition(".")[2]] if not isinstance(item, dict) or word not in item]
            if missing:
                return [(f"{at}[{n}]", f"says no {' and no '.join(missing)}")]
    return []


def _compiled(rule: dict[str, Any]) -> tuple[list[Any] | None, list[tuple[str, str]]]:
    """Return a rule as the engine takes it, tried on its own examples; None and why when it cannot be one."""
    from outlive.advice import compile as compiler
    from outlive.diagnose.rulebook import Rulebook

    try:
        small = compiler.compact({"depth": DEPTH, **rule})
        book = Rulebook({"rules": [], "own": [small]})
        examples = rule.get("examples") or {}
        for key, fires in (("match", True), ("no_match", False)):
            for n, line in enumerate(examples.get(key) or ()):
                if bool(book.hits(line, line)) is not fires:
                    at = f"examples.{key}[{n}]"
                    return None, [(at, f"the rule {'does not fire' if fires else 'fires'} on {line!r}")]
    except BadConfig as error:
        return None, [(error.key, error.what)]
    except (re.error, OverflowError, RecursionError) as error:
        return None, [("evidence.patterns", f"no expression that can be split into parts: {error}")]
    return small, []
