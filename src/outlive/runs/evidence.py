"""Evidence for the gate: everything that ``down`` must know of a box, read now, each gap left as a gap."""

from __future__ import annotations

from typing import Any

from outlive.gate import RunClaims
from outlive.probes.disk import disk
from outlive.runs.result import Left
from outlive.wire.values import Copy, Proof


def storage_of(path: str) -> str:
    """Return how a path of this machine keeps bytes: ``local`` when that is known, else ``network``."""
    return "local" if disk(path).network is False else "network"


def run_claims(left: Left, here: list[dict[str, Any]], proofs: tuple[Proof, ...]) -> RunClaims:
    """Return what is known of a run. ``here``: copies on this machine that stand now."""
    status = left.status
    live = bool(status["work_alive"]) if status["work_alive"] is not None else False
    return RunClaims(
        run=left.run,
        state=status["state"],
        live=live,
        live_why=status["why"],
        spec_digest=status["spec"],
        roster=tuple(left.spec["artifacts"]["roster"]),
        manifest=left.manifest,
        checkpoints=left.checkpoints,
        changed=left.changed,
        drift=left.drift,
        logs=left.logs,
        copies=(*left.copies, *(Copy.from_wire(c) for c in here)),
        proofs=proofs,
        best=left.best,
        latest=left.latest,
        work_dir=left.work,
    )
