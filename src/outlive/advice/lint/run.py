"""Read files, ask every check, and return what was found."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outlive import errors
from outlive.advice.lint.hit import Check
from outlive.advice.lint.registry import CODE, TEXT, Page, pages
from outlive.advice.lint.source import Source

MAX_BYTES = 1_000_000
"""Larger files are data or generated."""

MAX_FAMILY = 15
"""Files that are read to understand one."""

SKIPPED_DIRS = {
    "__pycache__",
    "node_modules",
    "site-packages",
    "build",
    "dist",
    "venv",
    "env",
    "wandb",
    "outputs",
    "runs",
}
OK = re.compile(r"#\s*outlive:\s*ok\b([ \t]+[\w, \t-]+)?")
CONFIGS = {".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".env"}


@dataclass(frozen=True)
class Finding:
    """One finding. ``path`` as it was given, ``line`` and ``column`` from 1."""

    path: str
    line: int
    column: int
    id: str
    check: str
    severity: str
    title: str
    message: str
    fix: str
    source_ids: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {**self.__dict__, "source_ids": list(self.source_ids)}


@dataclass
class Report:
    """What a look at some files gave. ``silenced`` counts findings that a comment in the file had answered."""

    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    training: int = 0
    lines: int = 0
    silenced: int = 0

    @property
    def bad(self) -> bool:
        """Return whether something was found that is more than advice."""
        return any(finding.severity != "info" for finding in self.findings)


def lint(paths: Iterable[str]) -> Report:
    """Look at files and directories. Raises UsageError for what is missing, too big or not text."""
    report = Report()
    found: list[Finding] = []
    sources: list[Source] = []
    for path, named in _files(list(paths)):
        text = _read(path, named)
        if text is None:
            continue
        report.files += 1
        report.lines += text.count("\n") + 1
        kind = _kind(path, text)
        if kind == "python":
            try:
                sources.append(parse(text, path))
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                found.append(_unreadable(path, error))
        else:
            found += _text_findings(path, text, kind, report)
    link(sources)
    for source in sources:
        report.training += source.is_training and not source.fragment
        found += findings_of(source, report)
    report.findings = sorted(set(found), key=lambda one: (one.path, one.line, one.column, one.check))
    return report


def parse(text: str, path: str = "train.py") -> Source:
    """Parse Python text. Raises SyntaxError and ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the code that is looked at, not ours to print
        tree = ast.parse(text.removeprefix("\ufeff"))
    source = Source(path, text, tree)
    source.family = [source]
    return source


def _files(paths: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield (file, whether it was named itself); directories are walked, in order."""
    seen: set[str] = set()
    for path in paths:
        if not os.path.exists(path):
            raise errors.UsageError(f"`{path}` is not there", safe="Nothing was looked at.", next=[])
        if not os.path.isdir(path):
            if path not in seen:
                seen.add(path)
                yield path, True
            continue
        for folder, names, files in os.walk(path):
            names[:] = sorted(name for name in names if name not in SKIPPED_DIRS and not name.startswith("."))
            for name in sorted(files):
                whole = os.path.join(folder, name)
                if whole not in seen and _wanted(name):
                    seen.add(whole)
                    yield whole, False


def _wanted(name: str) -> bool:
    return name.endswith((".py", ".sh", ".slurm", ".sbatch")) or name.startswith("Dockerfile") or _requirements(name)


def _requirements(name: str) -> bool:
    return bool(re.match(r"^requirements[\w.-]*\.txt$", name))


def _kind(path: str, text: str) -> str:
    name = os.path.basename(path)
    end = os.path.splitext(name)[1].lower()
    first = text[:100].split("\n")[0]
    if end in (".py", ".pyw") or (first.startswith("#!") and "python" in first):
        return "python"
    if end in (".sh", ".bash", ".slurm", ".sbatch") or first.startswith("#!"):
        return "shell"
    if name.startswith("Dockerfile") or end == ".dockerfile":
        return "docker"
    if _requirements(name):
        return "requirements"
    return "config" if end in CONFIGS or name == ".env" else "python" if not end else "other"


def _read(path: str, named: bool) -> str | None:
    """Return a file's text; what cannot be read is an error if it was named, else passed over."""
    trouble = ""
    try:
        if not os.path.isfile(path):
            trouble = "is no regular file"
        elif os.path.getsize(path) > MAX_BYTES:
            trouble = f"is larger than {MAX_BYTES // 1_000_000} MB: that is data, not code"
        else:
            data = Path(path).read_bytes()
            if b"\0" in data[:8192]:
                trouble = "is a binary file"
            else:
                return data.decode("utf-8", "surrogateescape")
    except OSError as error:
        trouble = f"cannot be read: {error.strerror}"
    if not named:
        return None
    raise errors.UsageError(f"`{path}` {trouble}", safe="Nothing was looked at.", next=[])


def _unreadable(path: str, error: Exception) -> Finding:
    line = getattr(error, "lineno", None) or 1
    column = getattr(error, "offset", None) or 1
    why = getattr(error, "msg", None) or str(error) or type(error).__name__
    return Finding(
        path, line, max(column, 1), "syntax", "syntax", "error", "Not valid Python", f"this does not parse: {why}",
        "mend it, or look at it with the Python version it is written for", (),
    )  # fmt: skip


def link(sources: list[Source]) -> None:
    """Give each source the files that it imports, from those at hand and from beside it on the disk."""
    by_path = {os.path.abspath(source.path): source for source in sources}
    stands: dict[str, list[str]] = {}
    for source in sources:
        source.family = [source]
        todo = [(source, 0)]
        while todo and len(source.family) < MAX_FAMILY:
            at, depth = todo.pop(0)
            if at.path not in stands:
                stands[at.path] = _imported(at)
            for path in stands[at.path]:
                other = by_path.get(path)
                if other is None and os.path.isfile(path):
                    other = _beside(path)
                    if other is not None:
                        by_path[path] = other
                if other is not None and other not in source.family:
                    source.family.append(other)
                    if depth < 2:
                        todo.append((other, depth + 1))


def _beside(path: str) -> Source | None:
    try:
        if os.path.getsize(path) > MAX_BYTES:
            return None
        return parse(Path(path).read_text("utf-8", "surrogateescape"), path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(source: Source) -> list[str]:
    """Return where the modules that a file imports stand: beside it, or in the package that it is part of."""
    here = os.path.dirname(os.path.abspath(source.path))
    package = here  # the directory that holds the outermost package around the file
    while os.path.isfile(os.path.join(package, "__init__.py")):
        package = os.path.dirname(package)
    own = os.path.relpath(here, package).split(os.sep)[0]
    found: list[str] = []
    for module in sorted(source.modules):
        dots = len(module) - len(module.lstrip("."))
        parts = [part for part in module.split(".") if part]
        if not parts:
            continue
        roots = [here]
        if dots:
            roots = [os.path.abspath(os.path.join(here, *[".."] * (dots - 1)))]
        elif package != here and parts[0] == own:
            roots = [package]
        for root in roots:
            for tail in (f"{os.path.join(*parts)}.py", os.path.join(*parts, "__init__.py")):
                path = os.path.join(root, tail)
                if path not in found and os.path.isfile(path):
                    found.append(path)
    return found


def findings_of(source: Source, report: Report | None = None, checks: dict[str, Check] | None = None) -> list[Finding]:
    """Ask the checks about one file; comments in it have the last word."""
    told = pages()
    lines = source.text.splitlines()
    found: list[Finding] = []
    for slug, check in (CODE if checks is None else checks).items():
        page = told[slug]
        if page.needs == "training" and not source.is_training:
            continue
        if page.needs == "torch" and (source.is_test or not source.uses_torch):
            continue
        for hit in check(source):
            line, column = getattr(hit.node, "lineno", 1), getattr(hit.node, "col_offset", 0) + 1
            last = getattr(hit.node, "end_lineno", line) if not hasattr(hit.node, "body") else line
            finding = _finding(page, source.path, line, column, hit.words, hit.severity)
            if any(answered(lines, number, page) for number in range(line, min(last, line + 20) + 1)):
                if report is not None:
                    report.silenced += 1
                continue
            found.append(finding)
    return found


def _finding(
    page: Page, path: str, line: int, column: int, words: dict[str, str] | None = None, severity: str = ""
) -> Finding:
    words = words or {}
    blanks = re.compile(r"\{(\w+)\}")
    fill = [blanks.sub(lambda blank: words.get(blank[1], blank[0]), text) for text in (page.message, page.fix)]
    return Finding(
        path, line, column, page.ids[0], page.slug, severity or page.severity, page.title, fill[0], fill[1], page.ids
    )


def answered(lines: list[str], number: int, page: Page) -> bool:
    """Return whether the line, or a comment alone on the line above, says ``# outlive: ok`` to this page."""
    for at in (number, number - 1):
        if not 1 <= at <= len(lines):
            continue
        text = lines[at - 1]
        if at == number - 1 and not text.lstrip().startswith("#"):
            continue
        found = OK.search(text)
        if found:
            ids = re.findall(r"[\w-]+", found[1] or "")
            if not ids or page.slug in ids or any(id in ids for id in page.ids):
                return True
    return False


def _text_findings(path: str, text: str, kind: str, report: Report) -> list[Finding]:
    lines = text.splitlines()
    found: list[Finding] = []
    for slug, (check, kinds) in TEXT.items():
        if kind not in kinds:
            continue
        page = pages()[slug]
        for place in check(text):
            if answered(lines, place.line, page):
                report.silenced += 1
            else:
                found.append(_finding(page, path, place.line, place.column))
    return found
