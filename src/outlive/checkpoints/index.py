"""``checkpoints_index.json``: a summary of what is there, rebuilt from the records on disk, which are the truth."""

import json
import os
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Tuple

from outlive.checkpoints.commit import ASIDE, replace_file
from outlive.checkpoints.errors import Bad, Damaged, NewerFormat, UnknownFormat
from outlive.checkpoints.record import INDEX, RECORD, Record, read_record, seal, unseal

SCHEMA = "outlive-checkpoints-index/1"
PINNED = "pinned"
PREFIX = "step-"


@dataclass(frozen=True)
class Entry:
    """One checkpoint in the index. ``verified`` and ``durable`` are what only the index knows."""

    name: str
    id: str
    seq: int
    step: int
    time: float
    metrics: Dict[str, float]
    bytes: int
    files: int
    digest: str
    kind: str
    milestone: bool = False
    pinned: bool = False
    verified: Optional[Dict[str, Any]] = None
    """``{"level", "ok", "time", "why"}``: level bytes, structure, tensors or loaded."""
    durable: Optional[Dict[str, Any]] = None
    """``{"place", "read_back", "time"}`` of the copy."""

    @property
    def bad(self) -> bool:
        return self.verified is not None and not self.verified.get("ok")

    @property
    def proved(self) -> bool:
        return self.verified is not None and bool(self.verified.get("ok"))

    @classmethod
    def of(cls, name: str, record: Record, pinned: bool = False) -> "Entry":
        return cls(
            name,
            record.id,
            record.seq,
            record.step,
            record.time,
            dict(record.metrics),
            record.bytes,
            len(record.files),
            record.digest,
            record.kind,
            record.milestone,
            pinned,
        )

    def to_dict(self) -> Dict[str, Any]:
        return dict(self.__dict__)

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> "Entry":
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        return cls(**known)


@dataclass
class Index:
    """The directory's summary, oldest first."""

    entries: List[Entry] = field(default_factory=list)
    bad: List[Bad] = field(default_factory=list)
    """What was set aside or cannot be read, with the reason."""
    next_seq: int = 1
    known: bool = False
    """Whether anything was ever recorded here, though it may all be gone."""

    @property
    def newest(self) -> Optional[Entry]:
        return self.entries[-1] if self.entries else None

    def find(self, name: str) -> Optional[Entry]:
        return next((entry for entry in self.entries if entry.name == name), None)

    def add(self, entry: Entry) -> None:
        self.entries = sorted(
            [e for e in self.entries if e.name != entry.name] + [entry], key=lambda e: (e.seq, e.name)
        )
        self.next_seq = max(self.next_seq, entry.seq + 1)
        self.known = True

    def drop(self, name: str) -> None:
        self.entries = [entry for entry in self.entries if entry.name != name]

    def change(self, name: str, **fields: Any) -> None:
        self.entries = [replace(entry, **fields) if entry.name == name else entry for entry in self.entries]

    def to_json(self) -> bytes:
        return seal(
            {
                "schema": SCHEMA,
                "next_seq": self.next_seq,
                "checkpoints": [entry.to_dict() for entry in self.entries],
                "bad": [one._asdict() for one in self.bad],
            }
        )


def read_index(directory: str) -> Tuple[Optional[Index], str]:
    """Return (index, "") as it is written, or (None, why) when it is missing or not whole."""
    path = os.path.join(directory, INDEX)
    try:
        with open(path, "rb") as handle:
            raw = handle.read()
    except FileNotFoundError:
        return None, "missing"
    except OSError as error:
        return None, "cannot be read: %s" % (error.strerror or error)
    try:
        data = unseal(raw)
        if data.get("schema") != SCHEMA:
            return None, "of another kind: %r" % data.get("schema")
        index = Index(
            [Entry.from_dict(one) for one in data["checkpoints"]],
            [Bad(**one) for one in data["bad"]],
            int(data["next_seq"]),
            True,
        )
    except (ValueError, KeyError, TypeError) as error:
        return None, "not whole: %s" % error
    return index, ""


def refuse_newer(directory: str) -> None:
    """Raise NewerFormat when a later version wrote the index: it must not be replaced by an older kind."""
    try:
        with open(os.path.join(directory, INDEX), "rb") as handle:
            data = json.loads(handle.read().decode("utf-8"))
    except (OSError, ValueError):
        return
    schema = data.get("schema") if isinstance(data, dict) else None
    kind, _slash, number = str(schema).rpartition("/")
    ours, _slash, known = SCHEMA.rpartition("/")
    if kind == ours and number.isdigit() and int(known) < int(number) < 1000:
        raise NewerFormat(os.path.join(directory, INDEX), int(number), int(known))


def survey(directory: str, strict: bool = False) -> Tuple[List[Tuple[str, Record, bool]], List[Bad], bool]:
    """Return ([(name, record, pinned)], [what is there and cannot be used], whether there is any trace of a save).

    Reads records and sizes only. Raises OSError when the directory cannot be listed; a missing one is empty. With
    ``strict`` NewerFormat is raised too: what a later version wrote is not bad, and nothing older may take its place.
    """
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return [], [], False
    found: List[Tuple[str, Record, bool]] = []
    bad: List[Bad] = []
    for name in names:
        path = os.path.join(directory, name)
        if name.startswith(ASIDE):
            bad.append(Bad(aside_name(name), path, "set aside earlier"))
            continue
        if name.startswith(".") or not os.path.isdir(path):
            continue
        if not name.startswith(PREFIX) and not os.path.exists(os.path.join(path, RECORD)):
            continue
        try:
            record = read_record(path)
        except (Damaged, UnknownFormat, NewerFormat) as error:
            if strict and isinstance(error, NewerFormat):
                raise
            bad.append(Bad(name, path, error.why))
            continue
        found.append((name, record, os.path.exists(os.path.join(path, PINNED))))
    return found, bad, bool(found or bad)


def aside_name(name: str) -> str:
    """Return the name that a checkpoint had before it was set aside."""
    return name[len(ASIDE) :].rpartition("-")[0]


def load(directory: str, strict: bool = False) -> Index:
    """Return the index of a directory as its disk says it, with what only the written index knows. Writes nothing."""
    written, why = read_index(directory)
    found, bad, trace = survey(directory, strict)
    before = {entry.name: entry for entry in written.entries} if written is not None else {}
    index = Index(next_seq=written.next_seq if written is not None else 1)
    index.known = trace or written is not None or why != "missing"
    for name, record, pinned in found:
        entry = Entry.of(name, record, pinned)
        old = before.get(name)
        if old is not None and old.id == entry.id:
            entry = replace(entry, verified=old.verified, durable=old.durable)
        index.add(entry)
    reasons = {one.where: one for one in (written.bad if written is not None else [])}
    index.bad = [reasons.get(one.where, one) for one in bad]
    # a checkpoint that the index lists and the disk lacks was not removed by us: we take it off the index first
    there = {name for name, _record, _pinned in found} | {one.name for one in bad}
    for entry in before.values():
        if entry.name not in there:
            index.bad.append(Bad(entry.name, os.path.join(directory, entry.name), "it is gone"))
    index.bad.extend(
        one for one in (written.bad if written is not None else []) if one.why == "it is gone" and one.name not in there
    )
    index.bad = list(dict.fromkeys(index.bad))[-MOST_BAD:]
    return index


MOST_BAD = 50


def write(directory: str, index: Index, sync: bool = True) -> None:
    """Replace the index."""
    replace_file(os.path.join(directory, INDEX), index.to_json(), sync)


__all__ = ["Entry", "Index", "load", "read_index", "refuse_newer", "survey", "write"]
