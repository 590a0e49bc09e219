"""Checks that a file is whole, and proofs about its digest: standard library only, nothing in a file is executed."""

import os
import stat
from typing import BinaryIO, Callable, Dict, List, Optional

from outlive.artifacts.digest import Changed, OnBytes, refuse_change
from outlive.artifacts.findings import Bad, Check, Layout, Source
from outlive.artifacts.formats import (
    columns,
    compressed,
    images,
    json_texts,
    numpy_files,
    pickles,
    safetensors_files,
    tables,
    texts,
    tfevents,
    torch_files,
    zips,
)
from outlive.artifacts.kinds import highest_level, may_be_empty, named_kind, recognise
from outlive.artifacts.onepass import read_through, settle
from outlive.wire import clock
from outlive.wire.values import LEVELS, Proof

INSPECTORS: Dict[str, Callable[[Source, Layout], None]] = {
    "bz2": compressed.inspect_stream,
    "csv": tables.inspect_csv,
    "gif": images.inspect_gif,
    "gz": compressed.inspect_stream,
    "hdf5": columns.inspect_hdf5,
    "jpeg": images.inspect_jpeg,
    "json": json_texts.inspect_json,
    "jsonl": json_texts.inspect_jsonl,
    "log": texts.inspect_log,
    "npy": numpy_files.inspect_npy,
    "npz": numpy_files.inspect_npz,
    "parquet": columns.inspect_parquet,
    "pickle": pickles.inspect_pickle,
    "png": images.inspect_png,
    "safetensors": safetensors_files.inspect_safetensors,
    "tar": compressed.inspect_tar,
    "tar.bz2": compressed.inspect_packed_tar,
    "tar.gz": compressed.inspect_packed_tar,
    "tar.xz": compressed.inspect_packed_tar,
    "text": texts.inspect_text,
    "tfevents": tfevents.inspect_tfevents,
    "torch-legacy": torch_files.inspect_torch_legacy,
    "torch-zip": torch_files.inspect_torch_zip,
    "tsv": tables.inspect_tsv,
    "webp": images.inspect_webp,
    "xz": compressed.inspect_stream,
    "yaml": texts.inspect_text,
    "zip": zips.inspect_zip,
}

READ_BUFFER_BYTES = 1 << 16


def check(path: str, level: str = "structure", budget_bytes: Optional[int] = None) -> Check:
    """Check the content of a file up to ``level`` (bytes, structure or tensors) and say how far it got.

    ``budget_bytes`` bounds what may be unpacked or parsed; beyond it the finding is ``over_budget`` and the level
    ``bytes``. Whatever the file holds, nothing of it is executed and no error comes of it but a finding. A file that
    cannot be read is level ``none`` with the finding ``unreadable``. Raises ``Changed`` when the file changes meanwhile
    and ValueError for another level.
    """
    proof = _examine(path, level, budget_bytes, want_digest=False)
    return Check(proof.level, proof.kind, proof.findings)


def prove(
    path: str,
    level: str = "structure",
    budget_bytes: Optional[int] = None,
    on_bytes: Optional[OnBytes] = None,
    where: str = "box",
    read_back: str = "cache",
) -> Proof:
    """Digest a file and check it like ``check``, as one statement about the same bytes.

    Large containers are read once for both. The level is capped by what the kind has (``highest_level``). A file that
    cannot be read gives level ``none`` and an empty digest. Raises ``Changed`` and ValueError like ``check``.
    """
    return _examine(path, level, budget_bytes, True, on_bytes, where, read_back)


def _examine(
    path: str,
    level: str,
    budget_bytes: Optional[int],
    want_digest: bool,
    on_bytes: Optional[OnBytes] = None,
    where: str = "box",
    read_back: str = "cache",
) -> Proof:
    if level not in LEVELS[1:4]:
        raise ValueError("level must be one of %s, not %r" % (", ".join(LEVELS[1:4]), level))
    size = 0
    try:
        # Not blocking, so that a pipe in the place of a file cannot hold us.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with open(fd, "rb", buffering=READ_BUFFER_BYTES) as f:
            before = os.fstat(f.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise OSError("not a regular file")
            size = before.st_size
            source = Source(f, size, os.path.basename(path))
            layout = _inspect(source, level, budget_bytes)
            sha256 = _pass(f, size, layout, want_digest, on_bytes)
            refuse_change(path, f.fileno(), before, size)
    except OSError as err:
        text = "cannot be read: %s" % (err.strerror or err)
        unreadable = {"code": "unreadable", "text": text}
        return Proof(
            "", size, "none", named_kind(os.path.basename(path)), (unreadable,), where, read_back, clock.wall_s()
        )
    findings: List[Dict[str, str]] = list(layout.findings)
    if layout.unlisted:
        findings[-1] = {"code": findings[-1]["code"], "text": findings[-1]["text"] + " (and %d more)" % layout.unlisted}
    reached = min(layout.level, level, highest_level(layout.kind), key=LEVELS.index)
    return Proof(sha256, size, reached, layout.kind, tuple(findings), where, read_back, clock.wall_s())


def _inspect(source: Source, level: str, budget_bytes: Optional[int]) -> Layout:
    """Recognise the file and let its reader describe it; every trouble with its content ends as a finding."""
    layout = Layout("unknown", level, budget_bytes)
    if not source.size:
        named = named_kind(source.name)
        layout.kind = named
        if may_be_empty(source.name):
            layout.kind = "log" if named == "log" else "text"
        else:
            layout.find("empty", "the file has no bytes")
        return layout
    try:
        layout.kind = recognise(source)
        if level == "bytes":
            return layout
        inspector = INSPECTORS.get(layout.kind)
        if inspector is None:
            layout.find("unknown_type", "no check is known for this type; its bytes were digested")
            return layout
        inspector(source, layout)
        settle(layout, source.size)
    except Bad as bad:
        layout.find(bad.code, bad.text)
    except OSError as err:
        if err.errno is not None:
            raise
        layout.find("corrupt", "its %s reader gave up: %s" % (layout.kind, err))  # a decompressor's, not the system's
    except MemoryError:
        layout.find("over_budget", "checking it took more memory than there is")
    except Exception as err:  # the outer edge: a parser that hostile bytes confused has found that they are damaged
        layout.find("corrupt", "its %s reader gave up: %s: %s" % (layout.kind, type(err).__name__, err))
    if not layout.ok:
        layout.checksums = []
        layout.values = []
    return layout


def _pass(f: BinaryIO, size: int, layout: Layout, want_digest: bool, on_bytes: Optional[OnBytes]) -> str:
    raw = f.raw  # type: ignore[attr-defined]
    raw.seek(0)
    return read_through(raw, size, layout, want_digest, on_bytes)


__all__ = ["Changed", "Check", "INSPECTORS", "check", "highest_level", "prove"]
