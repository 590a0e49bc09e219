"""Evidence for the gate: everything that ``down`` must know of a box, read now, each gap left as a gap."""

from __future__ import annotations

import posixpath
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from outlive import errors
from outlive.gate import (
    BoxClaims,
    RunClaims,
    SafePlace,
)
from outlive.gate import files as gate_files
from outlive.gate.places import CopyIndex
from outlive.ledger import LedgerState
from outlive.platforms.model import Verb
from outlive.probes.process import machine_identity
from outlive.runs.ending import action_of, below, clocks_of, costs_of, storage_of, tiers_of
from outlive.runs.home import Home
from outlive.runs.place import Place
from outlive.runs.remotes import leads_to_box
from outlive.runs.result import Left, listing, read_left, standing
from outlive.runs.scanned import gpu_holders, own_directory, unclaimed, writers
from outlive.runs.scanned import scan as scan_box
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.values import Copy, Proof


@dataclass(frozen=True)
class Gathered:
    """Claims for one verb, with what they were made from. ``unreachable``: why the box could not be asked."""

    claims: BoxClaims
    lefts: tuple[Left, ...] = ()
    unreachable: errors.OutliveError | None = None
    gathered_b: float = 0.0
    lost_here: tuple[str, ...] = ()
    """Copies that were written here and are not what they were."""
    own_files: int = 0
    own_bytes: int = 0
    """What our directory on the box holds."""
    notes: tuple[str, ...] = field(default=())


def run_claims(left: Left, here: list[dict[str, Any]], proofs: tuple[Proof, ...]) -> RunClaims:
    """Return what is known of a run. ``here``: copies on this machine that stand now."""
    status = left.status
    return RunClaims(
        run=left.run,
        state=status["state"],
        live=bool(status["work_alive"]) or (status["supervised"] and not status["ended"]),
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


def delivery(place: Place, left: Left, here: list[dict[str, Any]], proofs: tuple[Proof, ...]) -> str:
    """Return a run's delivery state against what ``down`` would do to this box."""
    action, verb = action_of(place.platform)
    action = "purge" if action == "detach" else action
    run = run_claims(left, here, proofs)
    base = _base(place, action, verb)
    return gate_files.delivery(run, BoxClaims(**base, same_machine=place.is_local, places=_places(place, [run])))


def gather(home: Home, place: Place, action: str, verb: Verb | None) -> Gathered:
    """Ask the box and this machine for everything that the gate wants to know about ``action``. Raises nothing for
    trouble of the place: that is evidence too."""
    began_b = boot_s()
    try:
        place.agent.exec.prove_fresh()
        nonce = secrets.token_hex(8)
        frames = place.frames("poll", {"nonce": nonce, "runs": None})
        head = frames[0][0]
        if head.get("nonce") != nonce:
            raise errors.Unreachable(f"{place.name} answered another question", place=place.name)
    except errors.OutliveError as error:
        return _unreachable(home, place, action, verb, error)
    statuses = [f[0]["status"] for f in frames[1:] if f[0]["t"] == "run" and "status" in f[0]]
    base = _base(place, action, verb)
    base.update(reachable=True, box_wall_s=float(head["wall_s"]))
    base["same_machine"] = place.is_local or machine_identity(place.box.box_id) == head["machine"]
    if action == "detach":
        claims = BoxClaims(**base, runs=tuple(_alive_only(s) for s in statuses), evidence_age_s=boot_s() - began_b)
        return Gathered(claims, gathered_b=began_b)
    state = home.state()
    lefts: list[Left] = []
    runs: list[RunClaims] = []
    lost: list[str] = []
    for status in statuses:
        try:
            left = read_left(place, status["run"], unclaimed=True)
        except errors.OutliveError:
            runs.append(_alive_only(status))
            continue
        here, gone = standing(state.runs[left.run].copies if left.run in state.runs else [])
        lost += gone
        lefts.append(left)
        runs.append(run_claims(left, here, proofs_of(state, left)))
    scan = scan_box(place, base["tiers"], action)
    own, own_stray = own_directory(place, {left.run for left in lefts})
    claims = BoxClaims(
        **base,
        runs=tuple(runs),
        places=_places(place, runs),
        processes=writers(scan, place, action),
        gpu_holders=gpu_holders(scan, place),
    )
    loose = [_loose(place, claims, left) for left in lefts]
    claims = replace(
        claims,
        unclaimed=unclaimed(scan, [f for files in loose for f in files], own_stray, action, float(head["wall_s"])),
        evidence_age_s=boot_s() - began_b,
    )
    files, size = (own[0], own[1]) if own is not None else (0, 0)
    return Gathered(claims, tuple(lefts), None, began_b, tuple(lost), files, size)


def _loose(place: Place, claims: BoxClaims, left: Left) -> list[dict[str, Any]]:
    """Return the files of a work directory that nothing accounts for, not even a copy that `pull --glob` made.

    Links have no bytes of their own; what they lead to is judged where it lies.
    """
    run = next(r for r in claims.runs or () if r.run == left.run)
    copied = {copy.path for copy in run.copies}
    copies = CopyIndex(run, claims)
    known = [e.path for e in left.unclaimed if e.path in copied]
    now, _ = listing(place, left.work, paths=known)
    safe = {e.path for e in now if copies.safe(e.sha256)}
    return [
        {"path": posixpath.join(left.work, e.path), "bytes": e.bytes, "mtime_w": e.mtime_ns / 1e9}
        for e in left.unclaimed
        if not e.link and e.path not in safe
    ]


def proofs_of(state: LedgerState, left: Left) -> tuple[Proof, ...]:
    """Return every proof about a run's digests: the box's and those that this client remembers."""
    wanted = {e.sha256 for e in (*left.entries, *left.logs, *left.drift)}
    known = [Proof.from_wire(p) for sha256 in wanted for p in state.proofs.get(sha256, ())]
    return (*left.proofs, *known)


def _alive_only(status: dict[str, Any]) -> RunClaims:
    live = bool(status["work_alive"]) or (status["supervised"] and not status["ended"])
    return RunClaims(status["run"], status["state"], live, status["why"], status["spec"])


def _base(place: Place, action: str, verb: Verb | None) -> dict[str, Any]:
    box = place.box
    return {
        "box": box.name,
        "action": action,
        "platform": box.platform,
        "provider_id": box.provider_id,
        "box_id": box.box_id,
        "verb": verb.label.said() if verb is not None and verb.role != "none" else action,
        "machine_stops": action in ("stop", "destroy"),
        "tiers": tiers_of(place, action, verb),
        "root_dir": box.root,
        "costs": costs_of(place, action, verb),
        "danger_clocks": clocks_of(place, action),
    }


def _unreachable(home: Home, place: Place, action: str, verb: Verb | None, error: errors.OutliveError) -> Gathered:
    """What is known of a box that does not answer: the ledger, "as of"."""
    state = home.state()
    runs, lost = [], []
    for record in state.runs.values():
        if record.box == place.name and not record.forgotten:
            here, gone = standing(record.copies)
            lost += gone
            elsewhere = [c for c in record.copies if not c["place"].startswith("here:")]
            runs.append(
                RunClaims(
                    record.run,
                    record.state or "unknown",
                    None,
                    "as of the last look",
                    spec_digest=record.spec_digest,
                    copies=tuple(Copy.from_wire(c) for c in (*elsewhere, *here)),
                )
            )
    base = _base(place, action, verb)
    seen_w = place.box.state_w or place.box.first_w
    claims = BoxClaims(
        **base,
        same_machine=place.is_local,
        runs=tuple(runs),
        reachable=False,
        evidence_age_s=max(0.0, wall_s() - seen_w),
    )
    return Gathered(claims, (), error, boot_s(), tuple(lost))


def _places(place: Place, runs: list[RunClaims]) -> tuple[SafePlace, ...]:
    disks: dict[str, Any] = place.box.facts.get("disks") or {}
    found = []
    for name in sorted({copy.place for run in runs for copy in run.copies}):
        kind, _, path = name.partition(":")
        if kind == "here":
            found.append(SafePlace(name, storage_of(path)))
        elif kind == "mount":
            tops = [top for top in disks if below(path, top)]
            known = disks[max(tops, key=len)] if tops else {}
            found.append(SafePlace(name, "local" if known.get("network") is False else "network"))
        elif kind == "rclone":
            found.append(SafePlace(name, "remote", leads_to_box(place, path)))
    return tuple(found)
