"""Host keys of boxes: our own known_hosts file, identities that outlive addresses, and the story of a changed key.

A rented box is not its host:port, which a platform gives to the next one. A box reached by URL is therefore recorded
under ``outlive-<box-id>``. Before its id is known (first contact) its key goes to a file of that one contact, and
``settle`` moves it under the id, or finds that the id is known with another key.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from outlive.errors import HostKeyChanged

PENDING = "outlive-first-contact"


def alias_for(box_id: str) -> str:
    """Return the name under which the keys of box ``box_id`` stand. Raises ValueError for an id ssh could misread."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", box_id):
        raise ValueError(f"not a box id: {box_id!r}")
    return f"outlive-{box_id}"


def lines_for(name: str, file: Path) -> list[str]:
    """Return the lines of ``file`` whose first field is ``name``."""
    try:
        text = file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.split(" ", 1)[0] == name]


def fingerprints(lines: list[str]) -> list[str]:
    """Return ``SHA256:... (TYPE)`` of each known_hosts line, as ssh-keygen says it; [] if it cannot read them."""
    if not lines:
        return []
    done = subprocess.run(
        ["ssh-keygen", "-l", "-f", "-"], input="\n".join(lines).encode() + b"\n", capture_output=True, timeout=10
    )
    found = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        words = line.split()
        if len(words) >= 3:
            found.append(f"{words[1]} {words[-1]}")
    return found


def settle(pending: Path, box_id: str, file: Path, place: str) -> None:
    """Record the keys of a first contact under ``box_id`` in ``file``; may be repeated.

    Raises HostKeyChanged, recording nothing, when the id is known with other keys.
    """
    name = alias_for(box_id)
    new = [f"{name} {line.split(' ', 1)[1]}" for line in lines_for(PENDING, pending)]
    with _locked(file):
        old = lines_for(name, file)
        if old and new and not set(old) & set(new):
            raise HostKeyChanged(
                f"{place} calls itself {box_id}, and its host key is not the recorded one",
                place=place,
                recorded=", ".join(fingerprints(old)),
                shown=", ".join(fingerprints(new)),
                safe="nothing was changed; the recorded key was kept",
                why=["either the box was rebuilt from its disk, or this is a copy of that disk on another machine"],
            )
        missing = [line for line in new if line not in old]
        if missing:
            _rewrite(file, add=missing)


def forget(name: str, file: Path) -> int:
    """Remove the lines of ``name`` from our ``file``; returns how many. For keys that the user said are gone."""
    with _locked(file):
        gone = len(lines_for(name, file))
        if gone:
            _rewrite(file, drop=name)
    return gone


def changed(error: HostKeyChanged, stderr: str) -> HostKeyChanged:
    """Return ``error`` with both fingerprints, taken from ssh's words and the file they name."""
    shown = re.search(r"sent by the remote host is\s+(\S+?)\.?\s*$", stderr, re.MULTILINE)
    kind = re.search(r"fingerprint for the (\S+) key", stderr)
    offending = re.search(r"Offending (?:\S+ )?key in (.+):(\d+)\s*$", stderr, re.MULTILINE)
    recorded: list[str] = []
    if offending:
        try:
            lines = Path(offending[1]).read_text("utf-8", "replace").splitlines()
            recorded = fingerprints(lines[int(offending[2]) - 1 : int(offending[2])])
        except OSError:
            pass  # the file is the user's and may be unreadable; the error is complete without it
    error.shown = f"{shown[1]} ({kind[1]})" if shown and kind else ""
    error.recorded = ", ".join(recorded)
    keys = [f"recorded: {error.recorded}"] if error.recorded else []
    keys += [f"shown:    {error.shown}"] if error.shown else []
    keys += [f"recorded in {offending[1]}, line {offending[2]}"] if offending else []
    error.why = keys + [line for line in error.why if not line.startswith("ssh: ")]
    return error


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(file.with_name(file.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _rewrite(file: Path, add: list[str] | None = None, drop: str = "") -> None:
    old = file.read_text("utf-8", "replace").splitlines() if file.exists() else []
    lines = [line for line in old if not drop or line.split(" ", 1)[0] != drop] + (add or [])
    import tempfile

    handle, aside = tempfile.mkstemp(dir=file.parent, prefix=file.name + ".")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write("".join(line + "\n" for line in lines))
        out.flush()
        os.fsync(out.fileno())
    os.replace(aside, file)
