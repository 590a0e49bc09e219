"""A draft of a rule from a log that no rule knows: symptom, cause, fix, and the sample that it must fire on.

It is a file of the user's own, beside what is shipped and never part of it: nothing here changes a shipped rule, an
upgrade leaves it alone, and a draft that is there already is not written over. What looks like a secret, an address
or a person's directory is taken out of the sample; a person still reads it before it goes anywhere.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from outlive.advice import rulelint
from outlive.advice.literals import MIN_CHARS, required
from outlive.advice.user_rules import MARK, UNSAID
from outlive.advice.user_rules import directory as user_rules
from outlive.diagnose.fatal import fatal_lines
from outlive.diagnose.prefixes import strip_prefixes
from outlive.errors import UsageError
from outlive.probes.secret_values import looks_secret

SAMPLE_LINES = 60
_LINE_LIMIT = 400
_NAME_LIMIT = 60
_SAFE = "Nothing was written."

_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){4,7}\b")
_MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_IN_URL = re.compile(r"(?<=://)[^\s/@]+:[^\s/@]+(?=@)")
_HOME = re.compile(r"(?<=/home/)[^/\s:'\"]+|(?<=/Users/)[^/\s:'\"]+")
_SETTING = re.compile(r"\b([A-Za-z_][\w.-]*)(\s*[=:]\s*)(['\"]?)([^\s'\",;]+)")
_WORD = re.compile(r"[A-Za-z0-9+/=_.-]{12,}")
_PLACEHOLDERS = r"REDACTED|USER@HOST|ADDRESS|\[redacted\]"  # the last: a declared secret, taken out before
_CHANGING = re.compile(
    r"(?P<masked>"
    + _PLACEHOLDERS
    + r")|(?P<hex>\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b)|(?P<path>(?:/[\w.@%+=~-]+){2,}/?)"
    r"|(?P<quoted>'[^'\n]{1,120}'|\"[^\"\n]{1,120}\")|(?P<number>\d+(?:\.\d+)?)"
)
_PATTERNS = {
    "masked": r"\S+",
    "hex": r"[0-9a-fx]+",
    "path": r"/\S+",
    "quoted": r"""(?:'[^']*'|"[^"]*")""",
    "number": r"\d+(?:\.\d+)?",
}


class Draft(NamedTuple):
    """What was written, and what a person still has to fill in."""

    rule: Path
    sample: Path
    fires_on: str
    open: list[str]


def redacted(text: str) -> str:
    """Return a text without secret-looking values, addresses, mail addresses and names of home directories."""
    text = _IN_URL.sub("REDACTED", text)
    text = _SETTING.sub(lambda m: f"{m[1]}{m[2]}{m[3]}REDACTED" if looks_secret(m[1], m[4]) else m[0], text)
    text = _WORD.sub(lambda m: "REDACTED" if looks_secret("value", m[0]) else m[0], text)
    text = _MAIL.sub("USER@HOST", text)
    text = _ADDRESS.sub("ADDRESS", text)
    return _HOME.sub("USER", text)


def pattern_of(line: str) -> str:
    """Return an expression for a line and its like: what changes from run to run is left open."""
    out, at = [], 0
    for found in _CHANGING.finditer(line):
        out += [_literal(line[at : found.start()]), _PATTERNS[found.lastgroup or "number"]]
        at = found.end()
    return "".join([*out, _literal(line[at:])])


def draft(
    excerpt: str,
    *,
    fires_on: str = "",
    name: str = "",
    title: str = "",
    cause: str = "",
    fix: Sequence[str] = (),
    directory: Path | None = None,
    today: datetime.date | None = None,
) -> Draft:
    """Write a draft for the log ``excerpt`` into ``directory`` and return where it lies.

    The rule fires on the line ``fires_on``, else on the last line that looks fatal, else on the last line. Raises
    UsageError for an excerpt without a line, for a line without a word, for a name that is none, and where nothing can
    be written.
    """
    lines = [line[:_LINE_LIMIT] for line in redacted(excerpt).splitlines() if line.strip()][-SAMPLE_LINES:]
    if not lines:
        raise UsageError("there is no line in this log to make a rule from", safe=_SAFE)
    fires_on = redacted(fires_on.strip())[:_LINE_LIMIT].strip() or _deciding(lines)
    slug = name or _slug(fires_on)
    if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", slug) or len(slug) > _NAME_LIMIT:
        raise UsageError(
            f"`{slug}` is no name for a rule: small letters, digits and `-`, at most {_NAME_LIMIT}", safe=_SAFE
        )
    directory = user_rules() if directory is None else directory
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        slug = _free(directory, slug)
    except OSError as error:
        raise _unwritable(directory, error) from error
    pattern = pattern_of(fires_on)
    fields = {"title": title, "cause": cause, "fix": "; ".join(fix)}
    rule: dict[str, Any] = {
        "id": MARK + slug,
        "title": title or fires_on[:80],
        "class": "python_exception_generic",
        "severity": "error",
        "home": "log_rule",
        "seen": fires_on,
        "cause": cause or f"{UNSAID}why it happens)",
        "evidence": {"patterns": [{"re": pattern, "scope": ["run_log"], "role": "conclusive"}]},
        "fix": list(fix) or [f"{UNSAID}what helps, in order)"],
        "remedy": "stop_and_ask",
        "examples": {"match": [fires_on], "no_match": ["step 100 loss 2.31 lr 3e-4"]},
        "sources": [{"what": "a run of ours", "month": f"{today or datetime.date.today():%Y-%m}"}],
    }
    if required(pattern) is None:
        raise UsageError(f"no rule can be made from `{fires_on}`: no word of {MIN_CHARS} letters in it", safe=_SAFE)
    faults = rulelint.faults(rule)
    if faults:
        raise UsageError(f"no rule can be made from `{fires_on}`: {faults[0][1]}", safe=_SAFE)
    sample, page = directory / f"{slug}.log", directory / f"{slug}.yaml"
    try:
        _write(sample, "\n".join(lines) + "\n")
        _write(page, _yaml(rule, slug))
    except OSError as error:
        raise _unwritable(directory, error) from error
    return Draft(page, sample, fires_on, [key for key, said in fields.items() if not said])


def _unwritable(directory: Path, error: OSError) -> UsageError:
    return UsageError(
        f"no draft can be written into {directory}: {error.strerror or error}",
        safe="What was there is untouched.",
        next=[["env", "XDG_CONFIG_HOME=/another/place", "outlive", "diagnose", "LOG", "--propose-rule"]],
    )


def _deciding(lines: Sequence[str]) -> str:
    known = fatal_lines("\n".join(lines).encode("utf-8", "replace"))
    return strip_prefixes((known or lines)[-1]).strip() or lines[-1].strip()


def _literal(text: str) -> str:
    return re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(text))


def _slug(line: str) -> str:
    words = re.findall(r"[a-z]{3,}", re.sub(_PLACEHOLDERS, " ", line).lower())[:6]
    return "-".join(words)[:_NAME_LIMIT].strip("-") or "unknown-failure"


def _free(directory: Path, slug: str) -> str:
    taken = {path.stem for path in directory.iterdir()}
    return next(name for n in range(1, len(taken) + 2) if (name := slug if n == 1 else f"{slug}-{n}") not in taken)


def _write(path: Path, text: str) -> None:
    """Write a new file that only its owner reads. Raises FileExistsError rather than write over one."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _yaml(rule: dict[str, Any], slug: str) -> str:
    """Return the rule as YAML: every text in JSON's own notation, which YAML reads as it stands."""
    lines = [
        "# A draft, not used before what stands in brackets is written. Read the sample beside it, narrow the",
        "# expression (role conclusive: this line alone is enough; indicator: it usually means this), and add lines",
        "# that look alike and must not fire under no_match. A list anti_patterns beside patterns takes lines away.",
        f"# sample: {slug}.log",
        "# severity: " + ", ".join(rulelint.SEVERITIES),
        "# remedy: " + ", ".join(rulelint.REMEDIES),
        *textwrap.wrap(
            "class: " + ", ".join(sorted(rulelint.CLASSES)), 110, initial_indent="# ", subsequent_indent="# "
        ),
    ]
    return "\n".join([*lines, *_block(rule, "")]) + "\n"


def _block(value: Any, indent: str) -> list[str]:
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                lines += [f"{indent}{key}:", *_block(item, indent + "  ")]
            else:
                lines.append(f"{indent}{key}: {_quoted(item)}")
        return lines
    lines = []
    for item in value:
        if isinstance(item, dict):
            first, *rest = _block(item, indent + "  ")
            lines += [f"{indent}- {first.strip()}", *rest]
        else:
            lines.append(f"{indent}- {_quoted(item)}")
    return lines


def _quoted(text: str) -> str:
    """In double quotes; what does not print, as YAML's escape."""
    if re.fullmatch(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*", text) and text not in ("true", "false", "null"):
        return text
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(text, ensure_ascii=False))
