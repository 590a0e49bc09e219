"""Labelled lines: how a report of label and text looks at any width."""

from __future__ import annotations

from collections.abc import Iterable

from outlive.views.printable import fold, width

LABEL_COLUMNS = 14


def lines(rows: Iterable[tuple[str, str]], columns: int) -> list[str]:
    """Return rows as lines. A label "" is a headline, ``!`` a warning; long texts are folded under themselves."""
    rows = list(rows)
    most = max((width(label) for label, _ in rows if label != "!"), default=0)
    column = min(most + 4, LABEL_COLUMNS, max(4, columns // 4))
    found = []
    for label, text in rows:
        if not label:
            found += fold(text, columns, "  ")
            continue
        head = f"  {label}"
        if width(head) + 1 > column:
            found.append(head)
            head = ""
        head += " " * (column - width(head))
        folded = fold(text, max(12, columns - column))
        found += [head + folded[0], *(" " * column + rest for rest in folded[1:])]
    return found
