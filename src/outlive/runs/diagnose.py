"""``diagnose``: logs from files, standard input or a run, read once in one engine; what they mean as data."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.advice import user_rules
from outlive.diagnose.engine import Engine
from outlive.diagnose.verdict import judge

if TYPE_CHECKING:
    from outlive.ledger import Run
    from outlive.runs.home import Home

PIECE_BYTES = 1 << 18
SAFE = "Nothing was changed."
_GZIP = b"\x1f\x8b"
_TELLS = (
    "the exit status or signal, and who sent it: sacct, journalctl, kubectl describe pod",
    "the kernel's log: dmesg -T | grep -i -E 'oom|xid|segfault'",
    "the logs of the other ranks and nodes: the first failure in time is the cause",
    "more of the log: the lines before the end, standard error included",
)


def of_paths(paths: list[str], propose: str | None = None) -> dict[str, Any]:
    """Return the diagnosis of log files (``-``: standard input), as one incident. Raises UsageError.

    ``propose``: also write the draft of a rule, under that name; "" chooses one.
    """
    own = user_rules.load()
    engine = Engine(own.book())
    for path, pieces in [(path, _pieces(path)) for path in paths]:  # a bad name is said before anything is read
        engine.begin(path)
        for piece in pieces:
            engine.feed(piece)
    data = result(engine, own)
    if propose is not None:
        data["proposed_rule"] = proposed(engine, data, propose)
    return data


def of_run(home: Home, record: Run, propose: str | None = None) -> dict[str, Any]:
    """Return the diagnosis of a run's own log. Raises PlaceError when neither the box nor a copy here answers."""
    from outlive.runs import logs

    own = user_rules.load()
    engine = Engine(own.book())
    engine.begin(record.run)
    note = ""
    try:
        for piece in logs.whole(home, record):
            engine.feed(piece)
    except errors.PlaceError as error:
        copy = logs.mirrored(home, record)
        if copy is None:
            raise
        engine = Engine(own.book())
        engine.begin(record.run)
        for piece in _pieces(str(copy)):
            engine.feed(piece)
        note = f"{error.what}; this rests on what was read here before"
    data = result(engine, own)
    data["run"] = record.run
    if note:
        data["note"] = note
    if propose is not None:
        data["proposed_rule"] = proposed(engine, data, propose, home.ledger.secrets.redact)
    return data


def proposed(
    engine: Engine, data: dict[str, Any], name: str = "", redact: Callable[[str], str] = str
) -> dict[str, Any]:
    """Write the draft of a rule for what was read, from the line that decided it, and return where it lies."""
    from outlive.advice import drafts

    decided = [e["text"] for f in data["findings"] if f["severity"] != "info" for e in f["evidence"]][:1]
    lines = list(engine.tail)
    lines = [text for text in decided if not any(text in line for line in lines)] + lines
    made = drafts.draft(redact("\n".join(lines)), fires_on=redact("".join(decided)), name=name)
    return {
        "rule": str(made.rule),
        "sample": str(made.sample),
        "fires_on": made.fires_on,
        "fill_in": made.open,
        "test": ["outlive", "diagnose", str(made.sample)],
    }


def result(engine: Engine, own: user_rules.OwnRules) -> dict[str, Any]:
    """Return what an engine that was fed everything has to say."""
    from outlive.advice.finding import told

    found = [told(finding, engine.sources, own.pages) for finding in judge(engine)]
    verdict, sentence = _verdict(engine, found)
    data: dict[str, Any] = {
        "schema": "outlive/diagnose/1",
        "verdict": verdict,
        "sentence": sentence,
        "findings": found,
        "sources": engine.sources,
        "lines": engine.lines,
        "bytes": engine.bytes,
    }
    if own.data():
        data["own_rules"] = own.data()
    if verdict == "not_known":
        data["would_tell"] = list(_TELLS)
        data["untrusted"] = {"last_lines": list(engine.tail)[-5:]}
    return data


def _verdict(engine: Engine, found: list[dict[str, Any]]) -> tuple[str, str]:
    if any(f["severity"] == "error" for f in found):
        first = next(f for f in found if f["severity"] == "error")
        return "found", f"{first['title']} ({first['class']}, {first['confidence']})"
    doubtful = [f for f in found if f["severity"] == "warning" and "note" not in f]
    if doubtful:
        return "possible", f"perhaps: {doubtful[0]['title']} ({doubtful[0]['class']}, possible)"
    if engine.lines == 0:
        return "not_known", "the log is empty"
    if engine.progress or found:
        return "nothing_wrong", "nothing wrong here"
    return "not_known", "no line of this log says what happened"


def _pieces(path: str) -> Iterator[bytes]:
    if path == "-":
        return _stream(sys.stdin.buffer)
    try:
        kind = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise errors.UsageError(f"there is no file {path}", safe=SAFE) from error
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be read: {error.strerror}", safe=SAFE) from error
    if stat.S_ISDIR(kind):
        names = sorted(p.name for p in Path(path).iterdir() if p.is_file())[:5]
        raise errors.UsageError(
            f"{path} is a directory" + (f" (it holds {', '.join(names)}); name the log files" if names else ""),
            safe=SAFE,
        )
    return _file(path)


def _file(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as handle:
            head = handle.read(PIECE_BYTES)
            if head.startswith(_GZIP):
                yield from _inflated(itertools.chain([head], iter(lambda: handle.read(PIECE_BYTES), b"")))
                return
            if _binary(head):
                raise errors.UsageError(f"{path} is no text: it holds zero bytes, as binary files do", safe=SAFE)
            # what is appended while we read is read too, but a log that grows faster than that ends here
            room = os.fstat(handle.fileno()).st_size + (64 << 20)
            while head and room > 0:
                yield head
                room -= len(head)
                head = handle.read(PIECE_BYTES)
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be read: {error.strerror or error}", safe=SAFE) from error


def _stream(stream: Any) -> Iterator[bytes]:
    parts = iter(lambda: stream.read1(PIECE_BYTES), b"")
    first = next(parts, b"")
    rest = itertools.chain([first], parts)
    return _inflated(rest) if first.startswith(_GZIP) else rest


def _inflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack gzip, several members too. What is cut short or damaged gives what came before."""
    import zlib

    inflate = zlib.decompressobj(31)
    for part in parts:
        while part:
            try:
                yield inflate.decompress(part)
            except zlib.error:
                return
            part = inflate.unused_data
            if part:
                inflate = zlib.decompressobj(31)


def _binary(head: bytes) -> bool:
    """Whether this is no log: many zero bytes. A log that gave space back begins with zeros only."""
    body = head.lstrip(b"\0")
    return body.count(b"\0") > max(8, len(body) // 1000)
