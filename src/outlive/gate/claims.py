"""The evidence that enters the gate, as values. Whoever builds them has already read everything.

``None`` always means "could not be read". Defaults are the cautious reading: what a caller forgets
to fill in is unknown or unsafe, never green. Paths are absolute and already resolved (links
followed) by whoever read them; the gate compares text only.
"""

import hashlib
import json
import posixpath
from dataclasses import dataclass
from typing import Any

from outlive.wire.values import Copy, Entry, Manifest, Proof

ACTIONS = ("detach", "stop", "destroy", "purge")
"""detach: forget our hold, deletes nothing. stop: park the machine. destroy: the machine and what does
not outlive it. purge: our own directory on a machine that stays."""

STORAGE = ("local", "network", "remote")
"""How a place keeps bytes, which decides what a read-back is worth."""


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a plain value, the same for equal values on every machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def within(path: str, parent: str) -> bool:
    """Return whether ``path`` is ``parent`` or below it. A path that is not absolute is within nothing."""
    if not path.startswith("/") or not parent.startswith("/"):
        return False
    # normpath keeps a leading double slash, which POSIX allows to mean something else; nothing here does.
    path, parent = (posixpath.normpath(p).replace("//", "/", 1) for p in (path, parent))
    return path == parent or path.startswith(parent.rstrip("/") + "/")


@dataclass(frozen=True)
class Tier:
    """One storage tier of the box, with the facts' answer for the verb in question."""

    name: str
    path: str
    survives: bool | None = None
    """The verb in question leaves it; None (the facts do not say) is treated as deleted."""
    survives_destroy: bool | None = None
    own_disk: bool = True
    """It is part of the machine itself, so it is never a safe place."""


@dataclass(frozen=True)
class SafePlace:
    """A place that copies were made to. Whether it is safe here is for the gate to say."""

    name: str
    """As in ``Copy.place``: ``here:/path``, ``mount:/path`` or ``rclone:remote:path``."""
    storage: str = "network"
    """One of ``STORAGE``; anything else is judged like ``network``."""
    on_box: bool | None = None
    """For a remote: it leads back to the box's own disk. None is unknown, and unknown is not safe."""

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    @property
    def path(self) -> str:
        return self.name.partition(":")[2]


@dataclass(frozen=True)
class RunClaims:
    """What is known of one run on the box, whoever started it."""

    run: str
    state: str
    """One of ``wire.states.RUN_STATES``."""
    live: bool | None = None
    """An attempt is alive by process identity and artifact age; None when that could not be read."""
    live_why: str = ""
    """The evidence for ``live``, in words."""
    spec_digest: str = ""
    roster: tuple[str, ...] = ()
    """Declared roster lines; empty when the roster is inferred."""
    manifest: Manifest | None = None
    checkpoints: tuple[Entry, ...] = ()
    """Every checkpoint that retention has kept, in the manifest or not."""
    changed: tuple[str, ...] | None = None
    """Paths whose stat no longer equals the record, looked at just now; None when nobody looked."""
    drift: tuple[Entry, ...] | None = None
    """Files of the work directory's code that differ from the snapshot; None when not compared."""
    logs: tuple[Entry, ...] | None = None
    """Log and metric files with the digest they have now; None when not listed."""
    copies: tuple[Copy, ...] = ()
    """In the order in which they were made: a later copy to the same path replaces the earlier one."""
    proofs: tuple[Proof, ...] = ()
    best: tuple[str, ...] = ()
    """Paths (files, or directories of a sharded one) of the best checkpoint."""
    latest: tuple[str, ...] = ()
    """Paths of the latest checkpoint."""
    work_dir: str = ""
    """The run's work directory on the box, to judge where a link leads."""


@dataclass(frozen=True)
class ForeignProcess:
    """A process on the box that is none of ours and none of a run's."""

    pid: int
    command: str
    user: str = ""
    holds_gpu: bool = False
    gpu_bytes: int | None = None
    writes: tuple[str, ...] = ()
    """Regular files that it has open for writing."""


@dataclass(frozen=True)
class UnclaimedFile:
    """A file that no snapshot, manifest, declared data or known cache accounts for."""

    path: str
    bytes: int
    age_s: float | None = None


@dataclass(frozen=True)
class Unclaimed:
    """The result of the scan of the tiers that the verb deletes, changed since ``up``."""

    files: tuple[UnclaimedFile, ...] = ()
    """The biggest first; may be fewer than ``count``."""
    count: int = 0
    bytes: int = 0
    complete: bool = False
    """The scan came to its end."""


@dataclass(frozen=True)
class Costs:
    """What the box costs, as far as it is known."""

    per_h: float | None = None
    currency: str = ""
    so_far: float | None = None
    why_unknown: str = ""
    still_bills: tuple[str, ...] = ()
    """What goes on billing after the verb: a disk, an address, a subscription."""


@dataclass(frozen=True)
class DangerClock:
    """Something that the platform does by itself, and when."""

    text: str
    at_s: float | None = None
    """Wall clock; None when only the rule is known."""


@dataclass(frozen=True)
class BoxClaims:
    """Everything that the gate is told about one box and one verb."""

    box: str
    action: str
    platform: str = ""
    provider_id: str = ""
    box_id: str = ""
    verb: str = ""
    """The platform's own word for the action."""
    machine_stops: bool = True
    tiers: tuple[Tier, ...] = ()
    root_dir: str = ""
    """The root directory of a ``local:`` box, which stands for its own disk."""
    same_machine: bool = False
    """The box is this machine."""
    reachable: bool = False
    evidence_age_s: float | None = None
    box_wall_s: float | None = None
    """The box's own clock when the evidence was read: ages of its files are differences on it."""
    runs: tuple[RunClaims, ...] | None = None
    """Every run found there; None when they could not be listed."""
    places: tuple[SafePlace, ...] = ()
    processes: tuple[ForeignProcess, ...] | None = None
    """Foreign processes with the files they write; None when they could not be listed."""
    gpu_holders: tuple[ForeignProcess, ...] | None = None
    """Foreign processes that hold a GPU; empty where there is none, None when it could not be read."""
    unclaimed: Unclaimed | None = None
    costs: Costs | None = None
    danger_clocks: tuple[DangerClock, ...] | None = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"no such action: {self.action!r}; one of {', '.join(ACTIONS)}")

    @property
    def deletes(self) -> tuple[Tier, ...]:
        """The tiers that the verb deletes, or that nothing says it spares."""
        return tuple(t for t in self.tiers if t.survives is not True)

    def tier_of(self, path: str) -> Tier | None:
        """Return the innermost tier that holds ``path``."""
        holding = [t for t in self.tiers if within(path, t.path)]
        return max(holding, key=lambda t: len(posixpath.normpath(t.path)), default=None)

    def deleted(self, path: str) -> bool | None:
        """Return whether the verb deletes ``path``; None when no tier answers for it."""
        tier = self.tier_of(path)
        if tier is not None:
            return tier.survives is not True
        return False if self.action in ("purge", "detach") else None

    def roster_digest(self) -> str:
        """Return the digest of what the runs must leave. It stands still while they work.

        It changes when a run appears or goes, and when a spec or a roster line changes.
        """
        runs = self.runs
        return digest_of(None if runs is None else sorted([r.run, r.spec_digest, list(r.roster)] for r in runs))

    def run_names(self) -> tuple[str, ...]:
        return tuple(sorted(r.run for r in self.runs or ()))
