"""JSON and JSON lines. Small texts go to the parser in C, large or deeply nested ones through a bounded scanner."""

import codecs
import json
import re
from typing import BinaryIO, List

from outlive.artifacts.findings import PARSE_IN_C, PARSE_IN_PYTHON, Bad, Layout, Source

WHOLE_BYTES = 16 << 20
"""Up to here a text is parsed in one piece; objects in memory take some ten times that."""

MAX_TOKEN_CHARS = 64 << 20
MAX_DEPTH = 10_000_000

_TOKEN = re.compile(
    r'[ \t\r\n]+|[{}\[\],:]|"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"'
    r"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity"
)
_NUMBERISH = re.compile(r"[-+.0-9eE]+")
_UNFINISHED = re.compile(
    r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*\\?|-?(?:\d+\.?)?(?:\d+[eE][+-]?|\d*\.\d+[eE][+-]?)?|[tfnNI-][a-zA-Z]{0,8}'
)


class Scanner:
    """Accepts the text of one JSON value piece by piece, without building it."""

    def __init__(self) -> None:
        self._open = bytearray()
        self._text = ""
        # What may come next: v value, V value or ], k key, K key or }, c colon, s separator or end, e nothing.
        self._state = "v"

    def feed(self, text: str, last: bool = False) -> None:
        """Take more text; raises ``Bad``: corrupt at once, truncated when ``last`` and the value is not complete."""
        text = self._text + text
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                break
            if text[at] in "-0123456789":
                # "0" may go on as "0.5", and "0." is no token yet: a number is taken once something else follows it.
                run = _NUMBERISH.match(text, at)
                if run is None or run.end() > match.end() or (run.end() == len(text) and not last):
                    break
            elif match.end() == len(text) and not last and text[match.end() - 1] not in "{}[],:":
                break
            token = match.group()
            self._take(token, at)
            at = match.end()
        self._text = text[at:]
        if len(self._text) > MAX_TOKEN_CHARS:
            raise Bad("over_budget", "JSON with a single string too long to hold")
        rest = self._text
        if rest and not _UNFINISHED.fullmatch(rest) and not _TOKEN.fullmatch(rest):
            raise Bad("corrupt", "no JSON at %r" % rest[:30])
        if last and (rest or self._open or self._state != "e"):
            raise Bad("truncated", "JSON ends before its value does")

    def _take(self, token: str, at: int) -> None:
        first, state = token[0], self._state
        if first in " \t\r\n":
            return
        if first in "{[":
            if state not in "vV":
                raise Bad("corrupt", "JSON with %s out of place" % first)
            self._open.append(ord(first))
            if len(self._open) > MAX_DEPTH:
                raise Bad("over_budget", "JSON nested too deeply to follow")
            self._state = "K" if first == "{" else "V"
        elif first in "}]":
            pair = ord("{" if first == "}" else "[")
            if state not in ("s", "K" if first == "}" else "V") or not self._open or self._open.pop() != pair:
                raise Bad("corrupt", "JSON with %s out of place" % first)
            self._state = "s" if self._open else "e"
        elif first == ",":
            if state != "s":
                raise Bad("corrupt", "JSON with a comma out of place")
            self._state = "k" if self._open[-1] == ord("{") else "v"
        elif first == ":":
            if state != "c":
                raise Bad("corrupt", "JSON with a colon out of place")
            self._state = "v"
        elif state in "kK":
            if first != '"':
                raise Bad("corrupt", "JSON object with a key that is no string")
            self._state = "c"
        elif state in "vV":
            self._state = "s" if self._open else "e"
        else:
            raise Bad("corrupt", "JSON with a value out of place: %r" % token[:30])


def _parses(text: str) -> bool:
    """Return whether ``text`` is one JSON value; False also means "too deep for this parser"."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def inspect_json(source: Source, layout: Layout) -> None:
    """Check one JSON value. A file of several values, one per line, is taken for what it is: JSON lines."""
    f = source.f
    f.seek(0)
    start = f.read(4)
    encoding = "utf-8-sig"
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-32" if start in (b"\xff\xfe\0\0", b"\0\0\xfe\xff") else "utf-16"
    f.seek(0)
    if source.size <= WHOLE_BYTES:
        layout.spend(source.size, PARSE_IN_C)
        try:
            if _parses(f.read().decode(encoding)):
                return
        except UnicodeDecodeError:
            pass  # the scanner says where
        f.seek(0)
        first = f.readline(WHOLE_BYTES).decode(encoding, "replace").strip()
        if first[:1] in ("{", "[") and f.tell() < source.size and _parses(first):
            layout.kind = "jsonl"
            inspect_jsonl(source, layout)
            return
    f.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    scanner = Scanner()
    while True:
        block = f.read(1 << 20)
        layout.spend(len(block), PARSE_IN_PYTHON)
        try:
            text = decoder.decode(block, not block)
        except UnicodeDecodeError as err:
            raise Bad("corrupt" if block else "truncated", "JSON is not %s: %s" % (encoding, err.reason))
        scanner.feed(text, last=not block)
        if not block:
            return


def inspect_jsonl(source: Source, layout: Layout) -> None:
    """Check that every line is a JSON value; a last line without newline that is none was torn."""
    f = source.f
    f.seek(0)
    number = 0
    bad: List[int] = []
    while True:
        line = _line(f, layout)
        if not line:
            break
        number += 1
        text = line.strip()
        if number == 1 and text.startswith(codecs.BOM_UTF8):
            text = text[3:]
        if not text or _line_parses(text):
            continue
        if not line.endswith(b"\n"):
            layout.find("truncated", "line %d, the last, is torn" % number)
        else:
            bad.append(number)
    if bad:
        shown = ", ".join(str(n) for n in bad[:5])
        # a log that a killed process appended to and its successor continued has a few; a file of another kind has many
        code = "corrupt" if 2 * len(bad) > number else "bad_lines"
        layout.find(code, "%d of %d lines are no JSON: %s%s" % (len(bad), number, shown, " ..." * (len(bad) > 5)))


def _line(f: BinaryIO, layout: Layout) -> bytes:
    line = f.readline(MAX_TOKEN_CHARS + 1)
    layout.spend(len(line), PARSE_IN_C)
    if len(line) > MAX_TOKEN_CHARS:
        raise Bad("over_budget", "JSON lines with a line too long to hold")
    return line


def _line_parses(raw: bytes) -> bool:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    if _parses(text):
        return True
    if max(text.count("["), text.count("{")) < 500:
        return False
    try:
        Scanner().feed(text, last=True)
    except Bad:
        return False
    return True
