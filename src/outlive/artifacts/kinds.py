"""Which container a file is: by its content first, by its name second."""

from typing import Dict, FrozenSet

from outlive.artifacts.findings import Bad, Source
from outlive.artifacts.formats import columns, compressed, images, numpy_files, safetensors_files, tfevents, torch_files
from outlive.artifacts.formats.zips import EMPTY_ARCHIVE, LOCAL_HEADER, archives

HIGHEST: Dict[str, str] = {
    "bz2": "structure",
    "csv": "structure",
    "gif": "structure",
    "gz": "structure",
    "hdf5": "bytes",
    "jpeg": "structure",
    "json": "structure",
    "jsonl": "structure",
    "log": "structure",
    "npy": "tensors",
    "npz": "tensors",
    "parquet": "structure",
    "pickle": "structure",
    "png": "structure",
    "safetensors": "tensors",
    "tar": "structure",
    "tar.bz2": "structure",
    "tar.gz": "structure",
    "tar.xz": "structure",
    "text": "structure",
    "tfevents": "structure",
    "torch-legacy": "tensors",
    "torch-zip": "tensors",
    "tsv": "structure",
    "unknown": "bytes",
    "webp": "structure",
    "xz": "structure",
    "yaml": "structure",
    "zip": "structure",
}
"""Every kind, and the highest level that it has without a framework."""

SIGNATURES = (
    (torch_files.LEGACY_MAGIC, "torch-legacy"),
    (numpy_files.MAGIC, "npy"),
    (columns.PARQUET, "parquet"),
    (columns.PARQUET_ENCRYPTED, "parquet"),
    (columns.HDF5, "hdf5"),
    (images.PNG, "png"),
    (images.JPEG, "jpeg"),
    (images.GIF[0], "gif"),
    (images.GIF[1], "gif"),
    (b"\x1f\x8b\x08", "gz"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\0", "xz"),
)

PROMISED: Dict[str, str] = {
    ".bz2": "bz2",
    ".gif": "gif",
    ".gz": "gz",
    ".h5": "unknown",
    ".jpeg": "jpeg",
    ".jpg": "jpeg",
    ".npy": "npy",
    ".npz": "npz",
    ".parquet": "parquet",
    ".pickle": "pickle",
    ".pkl": "pickle",
    ".png": "png",
    ".pt": "torch-zip",
    ".pth": "torch-zip",
    ".safetensors": "safetensors",
    ".tar": "tar",
    ".tgz": "gz",
    ".webp": "webp",
    ".xz": "xz",
    ".zip": "zip",
}
"""Names that promise a container. A file that is something unknown instead (zeros, an error page) is damaged."""

TEXTS: Dict[str, str] = {
    ".csv": "csv",
    ".geojson": "json",
    ".ipynb": "json",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".tsv": "tsv",
    ".yaml": "yaml",
    ".yml": "yaml",
}

LOG_SUFFIXES: FrozenSet[str] = frozenset({".log", ".err", ".out", ".stdout", ".stderr"})

MAY_BE_EMPTY: FrozenSet[str] = frozenset({".done", ".lock", ".gitkeep", ".keep", ".ok", ".complete"}) | LOG_SUFFIXES
"""Suffixes of files that say something by being there, or that nothing was written to."""

EMPTY_NAMES: FrozenSet[str] = frozenset({"__init__.py", "_SUCCESS", ".gitkeep", ".keep", "py.typed", "DONE", "done"})


def suffix_of(name: str) -> str:
    """Return the extension in lower case, with its dot; of ``.gitkeep`` the whole name."""
    dot = name.rfind(".")
    return name[dot:].lower() if dot >= 0 else ""


def highest_level(kind: str) -> str:
    """Return the highest level that a kind has without a framework; ``bytes`` for kinds that are not known."""
    return HIGHEST.get(kind, "bytes")


def may_be_empty(name: str) -> bool:
    """Return whether a file of that name is whole when it has no bytes: a marker, a log."""
    return name in EMPTY_NAMES or suffix_of(name) in MAY_BE_EMPTY


def named_kind(name: str) -> str:
    """Return the kind that a name alone suggests, or ``unknown``."""
    suffix = suffix_of(name)
    if ".tfevents." in name:
        return "tfevents"
    if suffix in LOG_SUFFIXES:
        return "log"
    return PROMISED.get(suffix) or TEXTS.get(suffix) or "unknown"


def recognise(source: Source) -> str:
    """Return the kind of a file that is not empty. Reads little; never fails on odd content."""
    head = source.at(0, min(source.size, 4096))
    if head.startswith((LOCAL_HEADER, EMPTY_ARCHIVE)):
        return _zip_kind(source, head)
    for signature, kind in SIGNATURES:
        if head.startswith(signature):
            if kind in compressed.OPENERS and compressed.holds_tar(source, kind):
                return "tar." + kind
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    # before pickles: a header of 640, 896, 1152 or 1408 bytes begins like one, and no pickle has these zeros
    if safetensors_files.looks_like(head, source.size):
        return "safetensors"
    if head[0] == 0x80 and len(head) > 1 and 2 <= head[1] <= 5:
        return "pickle"
    if compressed.is_tar_header(head[: compressed.BLOCK]):
        return "tar"
    if tfevents.looks_like(head):
        return "tfevents"
    named = named_kind(source.name)
    if named == "unknown" and _is_text(head):
        return "text"
    return named


def _zip_kind(source: Source, head: bytes) -> str:
    named = named_kind(source.name)
    try:
        names = next(archives(source)).namelist()
    except (Bad, StopIteration):
        names = [head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("utf-8", "replace")]
    if any(n == "data.pkl" or n.endswith("/data.pkl") for n in names) or named == "torch-zip":
        return "torch-zip"
    if named == "npz" or (names and all(n.endswith(".npy") for n in names)):
        return "npz"
    return "zip"


def _is_text(head: bytes) -> bool:
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as err:
        return err.reason == "unexpected end of data"
    return True
