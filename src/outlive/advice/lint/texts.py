"""Scripts, Dockerfiles and requirement lists: small checks of their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outlive.advice.lint.credentials import secret_text


@dataclass(frozen=True)
class Place:
    """A hit in a text: line and column, both from 1."""

    line: int
    column: int


TextCheck = Callable[[str], Iterator[Place]]


def _lines(text: str, pattern: str) -> Iterator[Place]:
    """Yield where the pattern stands in a line that is no comment."""
    fits = re.compile(pattern)
    for number, line in enumerate(text.splitlines(), 1):
        found = None if line.lstrip().startswith("#") else fits.search(line)
        if found:
            yield Place(number, found.start() + 1)


def crlf(text: str) -> Iterator[Place]:
    at = text.find("\r\n")
    if at >= 0:
        yield Place(1, at + 1)


def unquoted_pipe(text: str) -> Iterator[Place]:
    yield from _lines(text, r"\bgrep\s+-\w*E\w*\s+(?![\"'$-])[^\s\"'|]+\|[^\s|]")


def unbounded_until(text: str) -> Iterator[Place]:
    yield from _lines(text, r"^\s*(?:until|while)\s+ssh\b")


def bare_grep_done(text: str) -> Iterator[Place]:
    yield from _lines(text, r"grep -\w*[qc]\w* [\"'][^\"']*(?i:complete|done|finished)[^\"']*[\"'] +(?!&&|\|)[^\s&|]+")


def marker_after_semicolon(text: str) -> Iterator[Place]:
    if not re.search(r"^\s*set -\w*e", text, re.M):
        yield from _lines(text, r";\s*touch\s+\S*(?i:done|complete|ok)\S*")


def tee_without_pipefail(text: str) -> Iterator[Place]:
    if re.search(r"pipefail|PIPESTATUS", text):
        return
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if re.search(r"\b(python\S*|torchrun|accelerate launch|deepspeed)\b.*\|\s*tee\b", line):
            after = "\n".join(lines[number : number + 2])
            if re.search(r"\$\?|&&", line.partition("| tee")[2] + after):
                yield Place(number, line.find("|") + 1)


def silenced_copy(text: str) -> Iterator[Place]:
    yield from _lines(text, r"\b(?:cp|rsync|scp|mv)\b[^\n;&|]*(?:2>\s*/dev/null|&>\s*/dev/null)[^\n&|]*;\s*echo")


def copy_or_true(text: str) -> Iterator[Place]:
    yield from _lines(text, r"(?:^|[;&|]\s*|\bthen\s+|\bdo\s+)\s*(?:cp|rsync|scp)\b[^\n]*\|\|\s*true")


def directory_as_proof(text: str) -> Iterator[Place]:
    yield from _lines(text, r"\[ -d [^\]]+\] *&& *(?:python|torchrun|accelerate|deepspeed|bash|sh|\./)")


def docker_no_shm(text: str) -> Iterator[Place]:
    joined = re.sub(r"\\\n", "  ", text)  # same length: lines are counted below
    for found in re.finditer(r"docker run (?!.*--(?:shm-size|ipc))[^\n]*--gpus", joined):
        before = text[: found.start()]
        yield Place(before.count("\n") + 1, found.start() - (before.rfind("\n") + 1) + 1)


def moving_image(text: str) -> Iterator[Place]:
    stages = set(re.findall(r"(?mi)^FROM\s+\S+\s+AS\s+(\S+)", text))
    for place in _lines(text, r"(?i)^FROM\s+(?!scratch\b)(?!\S*@sha256:)\S+"):
        image = text.splitlines()[place.line - 1].split()[1]
        if image not in stages and "$" not in image:
            yield place


def unpinned(text: str) -> Iterator[Place]:
    wanted = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if re.match(r"^\s*[A-Za-z0-9_.\[\]-]+\s*([<>=!~;#]|$)", line)
    ]
    loose = [(number, line) for number, line in wanted if "==" not in line and "@" not in line and "--hash" not in line]
    if loose and "--hash" not in text:
        yield Place(loose[0][0], 1)


def key_in_text(text: str) -> Iterator[Place]:
    fits = re.compile(r"([A-Za-z_][\w-]*)[\"']?\s*[=:]\s*[\"']?([A-Za-z0-9_\-]{20,})")
    for number, line in enumerate(text.splitlines(), 1):
        for found in fits.finditer(line):
            if secret_text(found[1].replace("-", "_"), found[2]):
                yield Place(number, found.start() + 1)


def blocking_launches(text: str) -> Iterator[Place]:
    yield from _lines(text, r"\bCUDA_LAUNCH_BLOCKING[\"']?\s*[=:]\s*[\"']?1\b")
