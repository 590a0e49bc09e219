"""Templates as files, filled strictly: a placeholder without a value and a value without a placeholder are both errors.

``@{name}`` is a placeholder: nothing in shell, YAML, JSON or Python looks like it. On a line of its own it stands for a
block: the lines of the value get its indentation, and an empty value removes the line. A value is never read again,
so a text that happens to hold ``@{`` comes out as it went in.
"""

from __future__ import annotations

import re
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")
_PLACEHOLDER = re.compile(r"@\{([a-z_]+)\}")
_BLOCK = re.compile(r"([ ]*)@\{([a-z_]+)\}\n?")


class TemplateError(Exception):
    """Template and values do not fit together: a bug of ours."""


def template(name: str) -> str:
    """Return the text of a template of this package."""
    return (TEMPLATES / name).read_text("utf-8")


def placeholders(text: str) -> set[str]:
    """Return the names that ``text`` asks for."""
    return set(_PLACEHOLDER.findall(text))


def fill(name: str, /, **values: str) -> str:
    """Return template ``name`` with ``values`` put in. Raises TemplateError unless the names are exactly the same."""
    return fill_text(template(name), values, name)


def fill_text(text: str, values: dict[str, str], name: str = "template") -> str:
    """Return ``text`` with ``values`` put in; see ``fill``."""
    wanted = placeholders(text)
    missing, unused = wanted - set(values), set(values) - wanted
    if missing or unused:
        raise TemplateError(f"{name}: no value for {sorted(missing)}, no place for {sorted(unused)}")
    lines = []
    for line in text.splitlines(keepends=True):  # of the template, which is ours
        block = _BLOCK.fullmatch(line)
        if block:
            indent, value = block.group(1), values[block.group(2)]
            lines += (
                [f"{indent}{part}\n" if part else "\n" for part in value.removesuffix("\n").split("\n")]
                if value
                else []
            )
        else:
            lines.append(_PLACEHOLDER.sub(lambda found: values[found.group(1)], line))
    return "".join(lines)
