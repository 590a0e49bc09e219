"""Text that came from a box, made safe for a terminal: it can move no cursor, set no title and hide nothing."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, clipboard
    r"|\x1b[P^_X][^\x1b]*(?:\x1b\\)?"  # device control strings
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves
    r"|\x1b[ -/]*[0-~]"
)
# Direction marks make a line read as what it is not; what is left of C0 and C1 must not reach a terminal.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
_JSON_UNSAFE = re.compile("[\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text without escape sequences; other controls but tab and newline become visible (``\\x07``)."""
    return _CONTROLS.sub(lambda found: _visible(found[0]), _ESCAPES.sub("", text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """Return ``printable`` text on one line: newlines and tabs become a space."""
    return printable(re.sub(r"[\r\n\t]+", " ", text)).strip()


def last_state_of(line: str) -> str:
    """Return what a terminal would show of a line that overwrote itself with carriage returns, as progress bars do."""
    return next((part for part in reversed(line.rstrip("\r").split("\r")) if part.strip()), "")


def json_safe(text: str) -> str:
    """Return JSON text whose characters can neither act on a terminal nor fail to be encoded; same value."""
    return _JSON_UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def width(text: str) -> int:
    """Return the columns that ``text`` takes in a terminal: Chinese characters take two, combining marks none."""
    return sum(_columns(char) for char in text)


def cut(text: str, columns: int) -> str:
    """Return ``text`` in at most that many columns; what was cut is marked with ``~``."""
    if width(text) <= columns:
        return text
    taken, used = [], 0
    for char in text:
        used += _columns(char)
        if used > columns - 1:
            break
        taken.append(char)
    return "".join(taken) + "~" if columns > 0 else ""


def pad(text: str, columns: int) -> str:
    """Return ``text`` with blanks up to that many columns."""
    return text + " " * max(0, columns - width(text))


def fold(text: str, columns: int, indent: str = "") -> list[str]:
    """Return ``text`` as lines of at most that many columns, broken at blanks where it has them."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        room = columns - (width(indent) if lines else 0)
        if line and width(line) + 1 + width(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
        while width(line) > columns - (width(indent) if lines else 0) > 8:
            room = columns - (width(indent) if lines else 0)
            head = cut(line, room)[:-1]
            lines.append(head)
            line = line[len(head) :]
    lines.append(line)
    return [lines[0], *(indent + rest for rest in lines[1:])]


def table(rows: list[list[str]], columns: int, gap: str = "  ") -> list[str]:
    """Return rows as aligned lines that fit ``columns``; the last cell of each row is folded below itself."""
    if not rows:
        return []
    widths = [
        max(width(row[i]) for row in rows if i < len(row) - 1) if any(i < len(r) - 1 for r in rows) else 0
        for i in range(max(len(row) for row in rows))
    ]
    lines = []
    for row in rows:
        head = gap.join(pad(cell, widths[i]) for i, cell in enumerate(row[:-1]))
        head = head + gap if head else ""
        room = columns - width(head)
        if room >= 16 or width(row[-1]) <= room:
            folded = fold(row[-1], max(room, 1))
            lines.append((head + folded[0]).rstrip())
            lines += [" " * width(head) + rest for rest in folded[1:]]
        else:  # too narrow for a table: the long cell goes on lines of its own
            lines += [cut(head.rstrip(), columns), *("    " + rest for rest in fold(row[-1], max(8, columns - 4)))]
    return lines


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _visible(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"
