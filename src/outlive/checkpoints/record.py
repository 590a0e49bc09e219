"""``checkpoint.json``: the record that makes a directory a checkpoint."""

import builtins
import hashlib
import json
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from outlive.checkpoints.errors import ConfigChanged, Damaged, NewerFormat, UnknownFormat

FORMAT = "outlive-checkpoint"
VERSION = 1
RECORD = "checkpoint.json"
INDEX = "checkpoints_index.json"
LOCK = "checkpoints.lock"
"""A directory with one of these two has its own pruner: the trainer that holds it."""

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""In the repr of a function or object: it differs at each start and means nothing."""

RECORD_LIMIT_BYTES = 64 << 20
"""A record lists files, not tensors; what is larger is not one of ours."""


class FileEntry(NamedTuple):
    """One file of a checkpoint."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Record:
    """One committed save. docs/design/checkpoints.md explains each key."""

    id: str
    seq: int
    step: int
    time: float
    files: Tuple[FileEntry, ...]
    kind: str = "full"
    epoch: Optional[float] = None
    tokens: Optional[int] = None
    metrics: Dict[str, float] = field(default_factory=dict)
    made_by: Dict[str, Any] = field(default_factory=dict)
    config: Dict[str, Any] = field(default_factory=dict)
    extra: Dict[str, Any] = field(default_factory=dict)
    milestone: bool = False
    version: int = VERSION

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.files)

    @property
    def digest(self) -> str:
        return digest_files(self.files)

    def to_json(self) -> "builtins.bytes":
        """Return the file's content."""
        data: Dict[str, Any] = {
            "format": FORMAT,
            "version": self.version,
            "id": self.id,
            "seq": self.seq,
            "step": self.step,
            "epoch": self.epoch,
            "tokens": self.tokens,
            "time": self.time,
            "kind": self.kind,
            "metrics": self.metrics,
            "files": [entry._asdict() for entry in sorted(self.files)],
            "bytes": self.bytes,
            "digest": self.digest,
            "made_by": self.made_by,
            "config": self.config,
            "extra": self.extra,
            "milestone": self.milestone,
        }
        return seal(data)


def seal(data: Dict[str, Any]) -> bytes:
    """Return ``data`` as readable JSON with its own digest as ``check``."""
    whole = dict(data)
    whole["check"] = _check(data)
    return (json.dumps(whole, indent=1, sort_keys=True, allow_nan=False) + "\n").encode("ascii")


def unseal(raw: bytes) -> Dict[str, Any]:
    """Return what ``seal`` was given. Raises ValueError when a bit of it is not as it was."""
    whole = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    if not isinstance(whole, dict):
        raise ValueError("not a JSON object")
    check = whole.pop("check", None)
    if check != _check(whole):
        raise ValueError("its own digest does not agree")
    return whole


def _check(data: Dict[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _refuse_constant(word: str) -> Any:
    raise ValueError("holds %s, which is not JSON" % word)


def digest_files(files: Iterable[FileEntry]) -> str:
    """Return the digest of a list of files: two checkpoints with the same bytes have the same one."""
    text = "".join("%s %d %s\n" % (entry.sha256, entry.bytes, entry.path) for entry in sorted(files))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def read_record(directory: str) -> Record:
    """Return the record of a checkpoint whose files have the sizes it says; no content is read.

    Raises Damaged, NewerFormat, and UnknownFormat where there is no record at all.
    """
    path = os.path.join(directory, RECORD)
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise UnknownFormat(directory, "it has no %s" % RECORD)
    except OSError as error:
        raise Damaged(directory, "%s cannot be read: %s" % (RECORD, error.strerror))
    try:
        size = os.fstat(fd).st_size
        if size > RECORD_LIMIT_BYTES:
            raise Damaged(directory, "%s has %d bytes" % (RECORD, size))
        raw = b""
        while True:
            block = os.read(fd, 1 << 20)
            if not block:
                break
            raw += block
    except OSError as error:
        raise Damaged(directory, "%s cannot be read: %s" % (RECORD, error.strerror or error))
    finally:
        os.close(fd)
    record = parse_record(raw, directory)
    for entry in record.files:
        full = os.path.join(directory, entry.path)
        try:
            size = os.stat(full).st_size
        except FileNotFoundError:
            raise Damaged(directory, "%s is missing" % entry.path)
        except OSError as error:
            raise Damaged(directory, "%s cannot be read: %s" % (entry.path, error.strerror))
        if size != entry.bytes:
            raise Damaged(directory, "%s has %d bytes, %d were saved" % (entry.path, size, entry.bytes))
    return record


def parse_record(raw: bytes, where: str) -> Record:
    """Return the record in ``raw``. Raises Damaged, NewerFormat or UnknownFormat, which name ``where``."""
    try:
        data = unseal(raw)
    except ValueError as error:
        newer = _newer(raw)
        if newer is not None:
            raise NewerFormat(where, newer, VERSION)
        raise Damaged(where, "%s is not whole: %s" % (RECORD, error))
    if data.get("format") != FORMAT:
        raise UnknownFormat(where, "its %s is of format %r" % (RECORD, data.get("format")))
    version = data.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise NewerFormat(where, version, VERSION)
    try:
        files = tuple(FileEntry(str(f["path"]), int(f["bytes"]), str(f["sha256"])) for f in data["files"])
        record = Record(
            id=str(data["id"]),
            seq=int(data["seq"]),
            step=int(data["step"]),
            time=float(data["time"]),
            files=files,
            kind=str(data["kind"]),
            epoch=data.get("epoch"),
            tokens=data.get("tokens"),
            metrics=dict(data.get("metrics") or {}),
            made_by=dict(data.get("made_by") or {}),
            config=dict(data.get("config") or {}),
            extra=dict(data.get("extra") or {}),
            milestone=bool(data.get("milestone")),
            version=version,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Damaged(where, "%s lacks what it must say: %r" % (RECORD, error))
    for entry in files:
        if not inside(entry.path) or entry.path == RECORD:
            raise Damaged(where, "it lists %r, which is not inside it" % entry.path)
    if record.digest != data.get("digest"):
        raise Damaged(where, "its list of files does not have the digest that it states")
    return record


def _newer(raw: bytes) -> Optional[int]:
    """A later version may seal differently: return its number if that can be read."""
    try:
        data = json.loads(raw.decode("utf-8"))
    except ValueError:
        return None
    if isinstance(data, dict) and data.get("format") == FORMAT and isinstance(data.get("version"), int):
        return data["version"] if VERSION < data["version"] < 1000 else None
    return None


def inside(path: str) -> bool:
    """Return whether a relative path stays where it is put."""
    parts = path.split("/")
    return bool(path) and not path.startswith("/") and "\0" not in path and not {"", ".", ".."} & set(parts)


def clean_metrics(metrics: Optional[Dict[str, Any]]) -> Dict[str, float]:
    """Return the finite numbers among ``metrics``; anything with ``item()`` counts as the number it holds."""
    clean: Dict[str, float] = {}
    for name, value in (metrics or {}).items():
        try:
            number = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError):
            continue
        if math.isfinite(number):
            clean[str(name)] = number
    return clean


def digest_config(values: Dict[str, Any]) -> str:
    """Return the digest of a configuration."""
    text = json.dumps(_plain(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def plain_config(values: Dict[str, Any]) -> Dict[str, Any]:
    """Return ``{"digest", "values"}`` as a record holds it: what JSON cannot say is said by its repr."""
    return {"digest": digest_config(values), "values": _plain(values)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value if math.isfinite(value) else repr(float(value))
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(inner) for inner in value), key=repr)
    return ADDRESS.sub("", repr(value))


def refuse_changed_config(then: Dict[str, Any], now: Dict[str, Any], allow: Iterable[str] = ()) -> None:
    """Raise ConfigChanged with every difference between two configurations, except in names of ``allow``.

    Nested values are named with dots; allowing ``optim`` allows everything below it.
    """
    allowed = tuple(allow)
    left, right = _flat(plain_config(then)["values"]), _flat(plain_config(now)["values"])
    rows: List[Tuple[str, str, str]] = []
    for name in sorted(set(left) | set(right)):
        if any(name == one or name.startswith(one + ".") for one in allowed):
            continue
        if left.get(name, _ABSENT) != right.get(name, _ABSENT):
            rows.append((name, _shown(left, name), _shown(right, name)))
    if rows:
        raise ConfigChanged(rows)


_ABSENT = object()


def _shown(flat: Dict[str, Any], name: str) -> str:
    return json.dumps(flat[name]) if name in flat else "not there"


def _flat(values: Dict[str, Any], above: str = "") -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, above + str(name) + "."))
        else:
            flat[above + str(name)] = value
    return flat
