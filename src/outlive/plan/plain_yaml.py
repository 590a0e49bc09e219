"""The small part of YAML that a request is written in, read without a library.

Block mappings by indentation with spaces; scalars plain, "double" or 'single' quoted; one-line ``{a: 1}`` and
``[1, 2]``; comments. Everything else of YAML (anchors, tags, block text, block lists, several documents) is refused by
its line, never guessed. Only ``true`` and ``false`` are booleans: ``no`` and ``off`` stay words.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from outlive.errors import BadConfig

_INT = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_KEY = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]*|\"(?:[^\"\\]|\\.)*\"|'[^']*')\s*:(?:\s+|\Z)")
_WORDS: dict[str, Any] = {"null": None, "~": None, "": None, "true": True, "false": False}


def loads(text: str, *, file: str = "<stdin>") -> dict[str, Any]:
    """Return the mapping in ``text``. Raises BadConfig with the line of what is not understood."""
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadConfig(f"not valid JSON: {error.msg}", file=file, line=error.lineno) from error
        return dict(data)
    return _Reader(text, file).document()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.lines: list[tuple[int, int, str]] = []  # number, indent, content
        for number, raw in enumerate(text.splitlines(), 1):
            body = _uncommented(raw).rstrip()
            content = body.lstrip(" ")
            if not content or (content == "---" and not self.lines):
                continue
            if content.startswith("\t"):
                self.fail(number, "indented with a tab; use spaces")
            self.lines.append((number, len(body) - len(content), content))
        self.at = 0

    def fail(self, line: int, what: str) -> NoReturn:
        raise BadConfig(what, file=self.file, line=line, safe="Nothing was done.")

    def document(self) -> dict[str, Any]:
        if not self.lines:
            self.fail(1, "empty: a request is one mapping, see `outlive plan --help`")
        data = self.mapping(self.lines[0][1])
        if self.at < len(self.lines):
            self.fail(self.lines[self.at][0], "indented less than the line it should follow")
        return data

    def mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.at < len(self.lines):
            number, here, content = self.lines[self.at]
            if here < indent:
                break
            if here > indent:
                self.fail(number, "indented more than the line before it")
            match = _KEY.match(content)
            if match is None:
                self.fail(number, "not `key: value`")
            key = str(self.scalar(match.group(1), number)) if match.group(1)[0] in "\"'" else match.group(1)
            if key in found:
                self.fail(number, f"`{key}` is written twice")
            rest = content[match.end() :]
            self.at += 1
            below = self.lines[self.at] if self.at < len(self.lines) else None
            if rest == "" and below is not None and below[1] > indent:
                found[key] = self.mapping(below[1])
            else:
                found[key] = self.value(rest, number)
        return found

    def value(self, text: str, line: int) -> Any:
        if text[:1] in "{[" and text:
            value, rest = self.flow(text, line)
            if rest.strip():
                self.fail(line, f"`{rest.strip()}` after the end of the value")
            return value
        return self.scalar(text, line)

    def flow(self, text: str, line: int) -> tuple[Any, str]:
        """Return a value written on one line and what follows it."""
        closing = {"{": "}", "[": "]"}.get(text[0])
        if closing is None:
            end = _scalar_end(text)
            return self.scalar(text[:end].strip(), line), text[end:]
        rest = text[1:].lstrip()
        pairs: dict[str, Any] = {}
        items: list[Any] = []
        while True:
            if not rest:
                self.fail(line, f"`{text[0]}` is not closed on its line")
            if rest[0] == closing:
                return (pairs if closing == "}" else items), rest[1:]
            if closing == "}":
                match = _KEY.match(rest)
                if match is None:
                    self.fail(line, "not `key: value` inside `{}`")
                key, rest = match.group(1).strip("\"'"), rest[match.end() :].lstrip()
                if key in pairs:
                    self.fail(line, f"`{key}` is written twice")
                if not rest:
                    self.fail(line, "`{` is not closed on its line")
                pairs[key], rest = self.flow(rest, line)
            else:
                value, rest = self.flow(rest, line)
                items.append(value)
            rest = rest.lstrip()
            if rest.startswith(","):
                rest = rest[1:].lstrip()
            elif rest and rest[0] != closing:
                self.fail(line, "a comma is missing")

    def scalar(self, text: str, line: int) -> Any:
        if text.startswith('"'):
            try:
                return json.loads(text)
            except json.JSONDecodeError:
                self.fail(line, "a quoted text does not end where the line does")
        if text.startswith("'"):
            if len(text) < 2 or not text.endswith("'") or "'" in text[1:-1].replace("''", ""):
                self.fail(line, "a quoted text does not end where the line does")
            return text[1:-1].replace("''", "'")
        if text[:1] in ("&", "*", "!", "|", ">", "%", "@", "`") and text:
            self.fail(line, f"`{text[0]}` begins something of YAML that a request does not need")
        if text == "-" or text.startswith("- "):
            self.fail(line, "a list is written on one line: [1, 2]")
        if text in _WORDS:
            return _WORDS[text]
        if _INT.match(text):
            return int(text.replace("_", ""))
        if _FLOAT.match(text):
            return float(text.replace("_", ""))
        if _KEY.match(text):
            self.fail(line, "two keys on one line")
        return text


def _uncommented(line: str) -> str:
    """Return a line without its comment: ``#`` at the start or after a blank, outside quotes."""
    if "#" not in line:
        return line
    quote, doubled = "", False
    for i, char in enumerate(line):
        if doubled:
            doubled = False
        elif quote == "'" and line[i : i + 2] == "''":
            doubled = True
        elif quote:
            if char == quote and not (quote == '"' and line[i - 1] == "\\"):
                quote = ""
        elif char in "\"'" and (i == 0 or line[i - 1] in " ,[{:"):
            quote = char
        elif char == "#" and (i == 0 or line[i - 1] in " \t"):
            return line[:i]
    return line


def _scalar_end(text: str) -> int:
    """Return where a scalar inside ``{}`` or ``[]`` ends."""
    if text[0] in "\"'":
        quote, i = text[0], 1
        while i < len(text) and not (text[i] == quote and not (quote == '"' and text[i - 1] == "\\")):
            i += 1
        return i + 1
    ends = [text.find(char) for char in ",]}" if char in text]
    return min(ends) if ends else len(text)
