"""Values that siblings exchange: readings, evidence, outcomes, manifests, proofs, offers.

Each is a frozen dataclass that round-trips through plain JSON types with ``to_wire`` and
``from_wire``. Unknown keys are ignored on the way in, so an older reader survives a newer writer.
"Unknown" is always ``None``; nothing here replaces it with a default that could be believed.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Type, TypeVar

V = TypeVar("V", bound="Value")


@dataclass(frozen=True)
class Value:
    """Base of every value on the wire."""

    def to_wire(self) -> Dict[str, Any]:
        """Return the value as JSON-ready plain types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_wire(cls: Type[V], data: Dict[str, Any]) -> V:
        """Build the value from ``to_wire``'s output; unknown keys are ignored.

        Raises TypeError when a key without default is missing.
        """
        known = cls.__dataclass_fields__
        return cls(**{k: v for k, v in data.items() if k in known})


@dataclass(frozen=True)
class Reading(Value):
    """One thing that was measured, or could not be."""

    name: str
    value: Any = None
    unit: str = ""
    why_unknown: str = ""
    """Why ``value`` is None; empty when it is known."""
    source: str = ""
    """What was read: a file, a command."""


@dataclass(frozen=True)
class ProcessId(Value):
    """A process that cannot be confused with a later one of the same number."""

    machine: str
    """Digest of boot id, start of pid 1, pid namespace and box id: a boot id alone is the host's."""
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Evidence(Value):
    """All that is known of how an attempt ended. Input of ``diagnose.outcome.classify``."""

    exit_code: Optional[int] = None
    """Status from the exit record; None when nobody saw the end."""
    signal: Optional[int] = None
    """Signal that ended the work (a status above 128 counts as one); None when it was none or unknown."""
    exit_seen: bool = False
    """An exit record exists, so ``exit_code`` and ``signal`` are facts."""
    our_stop: str = ""
    """Why we ended it ourselves: ``asked``, ``lease``, ``hung``; empty when we did not."""
    machine_changed: Optional[bool] = None
    """The machine identity differs from the one the attempt started on."""
    oom_kill_delta: Optional[int] = None
    """Growth of the cgroup's ``oom_kill`` counter over the attempt; None when unreadable."""
    disk_bytes_free: Optional[int] = None
    disk_inodes_free: Optional[int] = None
    disk_refused: str = ""
    """``bytes`` or ``inodes`` when our own gate or a log line says the disk refused a write."""
    scheduler_word: str = ""
    """The scheduler's or platform's own word: PREEMPTED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY ..."""
    notice: str = ""
    """A preemption or shutdown notice seen before the end."""
    fatal_lines: Tuple[str, ...] = ()
    """Last lines of the log that look like a fatal error; data, never a verdict by themselves."""
    nan_seen: bool = False
    artifacts_ok: Optional[bool] = None
    """Every artifact that the stage must produce is there and passes its structure check."""
    artifacts_why: str = ""
    last_step: Optional[int] = None
    total_steps: Optional[int] = None
    new_checkpoints: int = 0
    """Checkpoints committed during this attempt."""

    @classmethod
    def from_wire(cls, data: Dict[str, Any]) -> "Evidence":
        known = {f.name for f in dataclasses.fields(cls)}
        clean = {k: v for k, v in data.items() if k in known}
        clean["fatal_lines"] = tuple(clean.get("fatal_lines") or ())
        return cls(**clean)


@dataclass(frozen=True)
class Outcome(Value):
    """How an attempt ended and the one remedy of that class."""

    cls: str
    """One of ``wire.states.OUTCOME_CLASSES``."""
    remedy: str
    """One of ``wire.states.REMEDIES``."""
    sentence: str
    """What happened, in words made from the evidence."""
    evidence: Dict[str, Any] = field(default_factory=dict)
    """The fields that decided."""


@dataclass(frozen=True)
class Entry(Value):
    """One file of a manifest. ``path`` is relative to the work directory, with ``/``."""

    path: str
    bytes: int
    sha256: str = ""
    mtime_ns: int = 0
    mode: int = 0o644
    role: str = "artifact"
    """artifact, checkpoint, log, code-drift."""
    link: str = ""
    """Target of a symbolic link; such an entry has no digest and is never followed outside."""
    step: Optional[int] = None

    def to_wire(self) -> Dict[str, Any]:
        return dict(self.__dict__)  # flat, and there are many thousand of them


@dataclass(frozen=True)
class Manifest(Value):
    """What is there: the roster's files as they stood at one time."""

    run: str
    entries: Tuple[Entry, ...] = ()
    inferred: bool = False
    frozen: bool = False
    missing: Tuple[str, ...] = ()
    """Roster lines that match no file."""
    tombstones: Tuple[str, ...] = ()
    """Paths that our retention removed on purpose."""

    def to_wire(self) -> Dict[str, Any]:
        return {
            "run": self.run,
            "entries": [e.to_wire() for e in self.entries],
            "inferred": self.inferred,
            "frozen": self.frozen,
            "missing": list(self.missing),
            "tombstones": list(self.tombstones),
        }

    @classmethod
    def from_wire(cls, data: Dict[str, Any]) -> "Manifest":
        return cls(
            run=data["run"],
            entries=tuple(Entry.from_wire(e) for e in data.get("entries", ())),
            inferred=bool(data.get("inferred")),
            frozen=bool(data.get("frozen")),
            missing=tuple(data.get("missing", ())),
            tombstones=tuple(data.get("tombstones", ())),
        )


LEVELS = ("none", "bytes", "structure", "tensors", "loaded")
"""Proof levels, weakest first."""

READ_BACK = ("cache", "storage", "remote_hash")
"""How a copy was read back; on network file systems and remotes ``cache`` proves nothing."""


@dataclass(frozen=True)
class Proof(Value):
    """A statement about a digest: how far these bytes were checked, by whom, and where."""

    sha256: str
    bytes: int
    level: str
    kind: str = "unknown"
    """Container type that was recognised: torch-zip, safetensors, npz, json ..."""
    findings: Tuple[Dict[str, str], ...] = ()
    """``{"code": ..., "text": ...}``; code ``corrupt`` or ``nonfinite`` makes the proof a refutation."""
    where: str = "box"
    read_back: str = "cache"
    wall_s: float = 0.0

    @property
    def ok(self) -> bool:
        """False when the bytes were refuted (corrupt, truncated, empty, non-finite)."""
        return not any(f.get("code") in REFUTING for f in self.findings)

    def to_wire(self) -> Dict[str, Any]:
        return dict(self.__dict__, findings=tuple(dict(f) for f in self.findings))

    @classmethod
    def from_wire(cls, data: Dict[str, Any]) -> "Proof":
        known = cls.__dataclass_fields__
        clean = {k: v for k, v in data.items() if k in known}
        clean["findings"] = tuple(dict(f) for f in clean.get("findings") or ())
        return cls(**clean)


REFUTING = frozenset({"corrupt", "truncated", "empty", "nonfinite"})
"""Finding codes that refute a proof; others (``pickle_globals``, ``unknown_type``) only lower its level."""


@dataclass(frozen=True)
class Copy(Value):
    """One copy of a digest outside the box's own disk."""

    sha256: str
    place: str
    """``here:/path``, ``rclone:remote:path`` or ``mount:/path``."""
    path: str
    read_back: str = "cache"
    wall_s: float = 0.0

    def to_wire(self) -> Dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Offer(Value):
    """Something that can be rented, as a value; prices carry the time they were read."""

    provider: str
    sku: str
    gpu: str = ""
    gpus: int = 0
    price_per_h: Optional[float] = None
    currency: str = ""
    spot: bool = False
    region: str = ""
    read_wall_s: float = 0.0


def level_at_least(level: str, floor: str) -> bool:
    """Return whether ``level`` is ``floor`` or stronger."""
    return LEVELS.index(level) >= LEVELS.index(floor)


__all__: List[str] = [
    "LEVELS",
    "READ_BACK",
    "REFUTING",
    "Copy",
    "Entry",
    "Evidence",
    "Manifest",
    "Offer",
    "Outcome",
    "ProcessId",
    "Proof",
    "Reading",
    "Value",
    "level_at_least",
]
