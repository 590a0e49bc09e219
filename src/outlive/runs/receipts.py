"""What is written beside a result: manifest, proofs, the receipt of `pull` and of `down`; and into the safe place."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive import errors
from outlive.gate import Receipt
from outlive.sync.arrive import make_durable
from outlive.sync.fetch import OURS
from outlive.wire.clock import wall_s
from outlive.wire.names import sync_directory, write_aside
from outlive.wire.values import Proof

if TYPE_CHECKING:
    from outlive.runs.home import Home
    from outlive.runs.place import Place
    from outlive.runs.pull import PullResult
    from outlive.runs.result import Left

PULL_RECEIPT = "receipt.json"
PULL_SCHEMA = "outlive/pull-receipt/1"
DIRECT_BYTES = 1 << 20


def _json(data: Any) -> bytes:
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True).encode("ascii") + b"\n"


def _in_lines(data: Any) -> bytes:
    """Like ``_json``, each value on a line of its own without indent: many times as fast for many thousand files."""
    return json.dumps(data, sort_keys=True, separators=(",\n", ": ")).encode("ascii") + b"\n"


def write_pull(result: PullResult, left: Left, proofs: Iterable[Proof], place: Place) -> None:
    """Write ``.outlive/manifest.json``, ``proofs.json`` and ``receipt.json`` of a pull."""
    own = result.dir / OURS
    own.mkdir(parents=True, exist_ok=True)
    about = {e.sha256 for e in left.entries} | {e["sha256"] for e in result.entries}
    receipt = {
        "schema": PULL_SCHEMA,
        "run": result.run,
        "box": result.box,
        "box_id": place.box.box_id,
        "platform": place.platform.id,
        "state": result.state,
        "live": result.live,
        "whole": result.whole,
        "delivery": result.delivery,
        "read_back": result.read_back,
        "same_machine": place.is_local,
        "spec": left.status["spec"],
        "outcome": left.status["outcome"],
        "step": left.status["step"],
        "wall_s": wall_s(),
        "files": result.entries,
        "levels": result.levels,
        "wrong": result.wrong,
        "missing": result.missing,
        "refuted": result.refuted,
        "kept": result.kept,
        "links_outside": result.links_outside,
        "notes": result.notes,
    }
    _publish(
        own,
        {
            "manifest.json": left.manifest.to_wire(),
            "proofs.json": [p.to_wire() for p in proofs if p.sha256 in about],
            PULL_RECEIPT: receipt,
        },
    )


def _publish(own: Path, files: dict[str, Any]) -> None:
    """Write files aside, wait for the disk once, and name them."""
    asides = {name: own / f"{name}.{os.getpid()}.part" for name in files}
    try:
        for name, data in files.items():
            asides[name].write_bytes(_in_lines(data))
        make_durable(str(own), [str(aside) for aside in asides.values()], few=0)
        for name, aside in asides.items():
            os.replace(aside, own / name)
    except OSError:
        for aside in asides.values():
            aside.unlink(missing_ok=True)
        raise
    sync_directory(str(own))


def digest_from_storage(path: str) -> str:
    """Return the SHA-256 of a file read past the page cache; "" where this file system cannot do that."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        return ""
    digest = hashlib.sha256()
    buffer = mmap.mmap(-1, DIRECT_BYTES)  # page-aligned, as direct reads need
    try:
        if not getattr(os, "O_DIRECT", 0):
            return ""
        while True:
            count = os.readv(fd, [buffer])
            digest.update(buffer[:count])
            if count < DIRECT_BYTES:  # short only at the end
                return digest.hexdigest()
    except OSError:
        return ""
    finally:
        buffer.close()
        os.close(fd)


# ---- the receipt of `down` ----


def write_down(home: Home, receipt: Receipt, dirs: Iterable[Path]) -> list[Path]:
    """Write the receipt as JSON and text beside each result and into our state directory; return the JSON paths."""
    name = f"receipt-{receipt.action}-{receipt.box}"
    data, text = _json(receipt.to_json()), receipt.to_text().encode("utf-8", "surrogateescape")
    written = []
    own = home.dir / "receipts"
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamped = own / f"{name}-{int(receipt.made_s)}"
    places = [stamped, *(top / OURS / name for top in dirs if (top / OURS).is_dir())]
    for stem in places:
        write_aside(f"{stem}.json", data, 0o644)
        write_aside(f"{stem}.txt", text, 0o644)
        written.append(Path(f"{stem}.json"))
    return written


def into_safe_place(place: Place, to: str, runs: Iterable[str], receipt: Receipt) -> tuple[list[str], str]:
    """Write the receipt beside the durable copies; return (where it is now, why it could not be written or "").

    Goes through the box's shell, because after a purge our program is not there any more.
    """
    data = _json(receipt.to_json())
    name = f"receipt-{receipt.action}-{receipt.box}.json"
    written: list[str] = []
    for run in runs:
        if to.startswith("rclone:"):
            path = f"{to[len('rclone:') :].rstrip('/')}/{run}/{name}"
            argv = ["rclone", "rcat", "--", path]
        else:
            path = f"{to.rstrip('/')}/{run}/{name}"
            script = '[ -d "${1%/*}" ] || exit 9; umask 022; cat >"$1.part" && mv -f "$1.part" "$1"'
            argv = ["sh", "-c", script, "receipt", path]
        try:
            done = place.agent.exec.run(argv, stdin=data, timeout_s=60.0)
        except errors.OutliveError as error:
            return written, error.what
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-200:]
            return written, f"{path}: {said or f'status {done.returncode}'}"
        written.append(path)
    return written, ""
