"""What of a project belongs into its snapshot: git's ignore files, ours, and a list of things nobody means.

Weakest first: our defaults, `.git/info/exclude`, each `.gitignore` from the repository's top down, each
`.outliveignore` from the project's top down. The last match decides, as in git. Whether git tracks a file does not
matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

DEFAULT_IGNORE: tuple[str, ...] = (
    # results and our own files
    "/outlive-runs/",
    ".outlive/",
    ".outlive-part-*",
    # version control: the snapshot is the version
    ".git",
    ".hg/",
    ".svn/",
    # rebuilt by interpreters and tools
    "__pycache__/",
    "*.py[co]",
    ".cache/",
    ".eggs/",
    "*.egg-info/",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".nox/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".tox/",
    ".hypothesis/",
    "node_modules/",
    # environments of this machine
    ".venv/",
    "venv/",
    "virtualenv/",
    ".direnv/",
    # left by editors and file managers
    "*.swp",
    "*~",
    ".DS_Store",
    "Thumbs.db",
)
GIT_FILE, OUR_FILE = ".gitignore", ".outliveignore"


@dataclass(frozen=True)
class _Patterns:
    """The lines of one file. ``base`` is its directory relative to the repository's top ("" or "a/b/").

    Nearly every name of a project is meant by no line. ``names``, ``starts`` and ``ends`` are what the last part of a
    name must be, or begin or end with, for a line to mean it; only then, and for ``hard`` lines always, a pattern is
    tried.
    """

    base: str
    compiled: tuple[Any, ...]
    openings: tuple[str, ...] = ()
    """Patterns that take something inside a directory back in, relative to ``base``."""
    names: frozenset[str] = frozenset()
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    hard: tuple[Any, ...] = ()

    @classmethod
    def of(cls, base: str, lines: Iterable[str]) -> _Patterns:
        from pathspec import GitIgnoreSpec

        lines = [line for line in lines if line]
        back = [line[1:].strip().strip("/") for line in lines if line.startswith("!")]
        spec = GitIgnoreSpec.from_lines(lines)
        compiled = [(p, line) for p, line in zip(spec.patterns, lines, strict=True) if p.include is not None]
        names: set[str] = set()
        starts: list[str] = []
        ends: list[str] = []
        hard: list[Any] = []
        for pattern, line in compiled:
            kind, word = _plain(line)
            if kind == "name":
                names.add(word)
            elif kind:
                (starts if kind == "start" else ends).append(word)
            else:
                hard.append(pattern)
        return cls(
            base,
            tuple(p for p, _ in compiled),
            tuple(b for b in back if "/" in b),
            frozenset(names),
            tuple(starts),
            tuple(ends),
            tuple(hard),
        )

    def verdict(self, path: str, is_dir: bool) -> bool | None:
        """True: ignored, False: taken back in, None: no line is about this name itself."""
        if not path.startswith(self.base):
            return None
        name = path[len(self.base) :]
        last = name.rsplit("/", 1)[-1]
        maybe = last in self.names or last.startswith(self.starts) or last.endswith(self.ends)
        for pattern in reversed(self.compiled if maybe else self.hard):
            if _means(pattern, name, is_dir):
                return bool(pattern.include)
        return None

    def may_open(self, directory: str) -> bool:
        """Whether a line takes something below an ignored directory back in, by naming the way to it."""
        if not directory.startswith(self.base):
            return False
        way = directory[len(self.base) :].split("/")
        for opening in self.openings:
            parts = opening.split("/")
            for part, name in zip(parts, way, strict=False):
                if part == "**":
                    return True
                if not fnmatchcase(name, part):
                    break
            else:
                if len(parts) > len(way):
                    return True
        return False


def _plain(line: str) -> tuple[str, str]:
    """Return what a line asks of the last part of a name: ("name" | "start" | "end", text), or ("", "") if it is hard
    to say."""
    text = line.removeprefix("!").rstrip("/")
    if not text or re.search(r"[\s\\?\[\]!]", text):
        return "", ""
    last = text.rsplit("/", 1)[-1]
    stars = last.count("*")
    if stars == 0:
        return "name", last
    if stars == 1 and len(last) > 1 and last[0] == "*":
        return "end", last[1:]
    if stars == 1 and len(last) > 1 and last[-1] == "*":
        return "start", last[:-1]
    return "", ""


def _means(pattern: Any, name: str, is_dir: bool) -> bool:
    """Whether a pattern names this very entry. One that names a directory above it was asked there."""
    regex = pattern.regex
    for found in regex.finditer(name + "/" if is_dir else name):
        if "ps_d" in regex.groupindex and found.group("ps_d"):  # the slash behind the name that the pattern means
            if found.end("ps_d") == len(name) + 1:
                return True
        elif not is_dir or regex.search(name):  # `a/**` means what is in `a`, not `a`
            return True
    return False


@dataclass
class Ignore:
    """The rules for one project. Ask from the top down: ``enter`` each directory before its names."""

    project_dir: str
    extra: tuple[str, ...] = ()
    """Lines stronger than any file, relative to the project's top."""
    defaults: tuple[str, ...] = DEFAULT_IGNORE
    _top: str = ""
    _default: list[_Patterns] = field(default_factory=list)
    _git: list[_Patterns] = field(default_factory=list)
    _ours: list[_Patterns] = field(default_factory=list)
    _last: list[_Patterns] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project_dir = os.path.realpath(self.project_dir)
        repository = self.project_dir
        while not os.path.lexists(os.path.join(repository, ".git")):
            above = os.path.dirname(repository)
            if above == repository:
                repository = self.project_dir
                break
            repository = above
        inner = os.path.relpath(self.project_dir, repository)
        self._top = "" if inner == "." else inner + "/"
        self._default = [_Patterns.of(self._top, self.defaults)]
        exclude = _read(os.path.join(repository, ".git", "info", "exclude"))
        self._git = [_Patterns.of("", exclude)] if exclude else []
        if self._top:
            names = inner.split("/")
            for depth in range(len(names)):
                base = "/".join(names[:depth])
                lines = _read(os.path.join(repository, base, GIT_FILE))
                if lines:
                    self._git.append(_Patterns.of(base + "/" if base else "", lines))
        if self.extra:
            self._last = [_Patterns.of(self._top, self.extra)]

    def enter(self, directory: str, names: Iterable[str]) -> None:
        """Read the ignore files of ``directory`` ("" is the project's top), which holds ``names``."""
        base = self._top + (directory + "/" if directory else "")
        names = set(names)
        for file, kept in ((GIT_FILE, self._git), (OUR_FILE, self._ours)):
            if file in names:
                lines = _read(os.path.join(self.project_dir, directory, file))
                if lines:
                    kept.append(_Patterns.of(base, lines))

    def ignored(self, path: str, is_dir: bool, parent_ignored: bool = False) -> bool:
        """Return whether an entry stays out. ``parent_ignored``: its directory is only looked at for exceptions."""
        full = self._top + path
        for group in (self._last, self._ours):
            for patterns in reversed(group):
                verdict = patterns.verdict(full, is_dir)
                if verdict is not None and not (parent_ignored and not verdict and not _deep(patterns, full)):
                    return verdict
        if parent_ignored:
            return True
        for group in (self._git, self._default):
            for patterns in reversed(group):
                verdict = patterns.verdict(full, is_dir)
                if verdict is not None:
                    return verdict
        return False

    def worth_entering(self, directory: str) -> bool:
        """Return whether `.outliveignore` takes something below this ignored directory back in."""
        full = self._top + directory
        return any(p.may_open(full) for p in (*self._ours, *self._last))


def _deep(patterns: _Patterns, full: str) -> bool:
    """Inside an ignored directory a bare ``!*.json`` takes nothing back in; ``!data/*.json`` does."""
    above = full.rsplit("/", 1)[0]
    return patterns.may_open(above)


def _read(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            return text.read().replace("\r\n", "\n").split("\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
