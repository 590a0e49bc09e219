"""Evidence for the gate: everything that ``down`` must know of a box, read now, each gap left as a gap."""

from __future__ import annotations

import posixpath
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from outlive import errors
from outlive.gate import (
    BoxClaims,
    Costs,
    DangerClock,
    ForeignProcess,
    RunClaims,
    SafePlace,
    Tier,
    Unclaimed,
    UnclaimedFile,
)
from outlive.gate import files as gate_files
from outlive.gate.places import CopyIndex
from outlive.ledger import LedgerState
from outlive.platforms.model import Platform, Verb
from outlive.probes.disk import disk
from outlive.probes.process import machine_identity
from outlive.runs.home import Home
from outlive.runs.place import Place
from outlive.runs.remotes import leads_to_box
from outlive.runs.result import Left, listing, read_left, standing
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.names import DIR, BoxFiles
from outlive.wire.values import Copy, Proof

SCAN_BUDGET_S = 20.0

_NAMES = BoxFiles("/")
OUR_NAMES = frozenset(
    v.rsplit("/", 1)[1] for v in vars(_NAMES).values() if isinstance(v, str) and posixpath.dirname(v) == _NAMES.dir
)
"""Names of ours in our directory on a box, with all below them. What else is there was put by somebody."""
OUR_PROGRAMS = re.compile(r"supervisor-[0-9a-f]+\.pyz|train-[0-9a-f]+\.zip|keeper-[0-9a-f]+\.sh")

SHELL_TRACES = frozenset(
    {
        ".bash_history",
        ".zsh_history",
        ".python_history",
        ".lesshst",
        ".viminfo",
        ".wget-hsts",
        ".sudo_as_admin_successful",
    }
)
"""What every login leaves in a home directory; nobody wants it back."""


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


def storage_of(path: str) -> str:
    """Return how a path of this machine keeps bytes: ``local`` when that is known, else ``network``."""
    return "local" if disk(path).network is False else "network"


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


def action_of(platform: Platform, action: str | None = None, purge: bool = False) -> tuple[str, Verb | None]:
    """Return (the gate's action, the platform's verb) that ``down`` means. Raises UsageError, UnknownName."""
    if purge:
        if action:
            raise errors.UsageError("--purge deletes our directory and stops nothing; ask for one thing at a time")
        return "purge", None
    if not platform.has_meter:
        if action:
            raise errors.UsageError(f"nothing bills on {platform.names.said()}, so there is nothing to {action}")
        return "detach", None
    verb = platform.verb("stop" if action == "pause" else action or platform.meter_stop_verb)
    if verb.role not in ("pause", "destroy", "cancel", "cleanup"):
        raise errors.UsageError(f"{verb.label.said()} of {platform.names.said()} does not end a box")
    return ("stop" if verb.role == "pause" else "destroy"), verb


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
    scan = _scan(place, base["tiers"], action)
    own, own_stray = _own_directory(place, {left.run for left in lefts})
    claims = BoxClaims(
        **base,
        runs=tuple(runs),
        places=_places(place, runs),
        processes=_writers(scan, place, action),
        gpu_holders=_gpu_holders(scan, place),
    )
    loose = [_loose(place, claims, left) for left in lefts]
    claims = replace(
        claims,
        unclaimed=_unclaimed(scan, [f for files in loose for f in files], own_stray, action, float(head["wall_s"])),
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


# ---- facts ----


def tiers_of(place: Place, action: str, verb: Verb | None) -> tuple[Tier, ...]:
    """Return the storage of the box with the facts' answer for the verb. What no tier holds is as lost as the root."""
    box, platform = place.box, place.platform
    paths: dict[str, str] = dict(box.facts.get("tiers") or {})
    spared = set(platform.safe_tiers(verb.name)) if verb is not None and verb.role != "none" else set()
    found = []
    for tier in platform.tiers:
        survives = tier.name in spared if action in ("stop", "destroy") else True
        own = tier.kind == "local-disk" and tier.scope in ("instance", "host", "unknown")
        forever = tier.survives_destroy == "yes"
        for path in dict.fromkeys(p for p in (paths.get(tier.name), tier.mount) if p):
            found.append(Tier(tier.name, path, survives, forever, own))
    if action == "purge":
        return (Tier("our directory", posixpath.join(box.root, DIR), False, False, True), *found)
    if action in ("stop", "destroy") and not any(_below(box.root, t.path) for t in found):
        found.append(Tier("root", box.root, False, False, True))
    return tuple(found)


def _below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def costs_of(place: Place, action: str, verb: Verb | None) -> Costs:
    """Return what the box has cost by the recorded price, and what goes on billing after the verb."""
    platform = place.platform
    if not platform.has_meter:
        return Costs(why_unknown="your own machine: nothing bills")
    bills: tuple[str, ...] = ()
    if action in ("stop", "destroy") and verb is not None:
        state = "stopped" if verb.role == "pause" else "destroyed"
        bills = tuple(
            m.what.said() for m in platform.bills_after([verb.name]) if getattr(m, state) not in ("no", "n/a")
        )
    else:
        bills = tuple(m.what.said() for m in platform.billing.meters if m.running not in ("no", "n/a"))
    price = place.box.price
    if not price:
        return Costs(why_unknown="nobody said; outlive up BOX --price", still_bills=bills)
    hours = max(0.0, wall_s() - place.box.first_w) / 3600
    per_h = float(price["per_h"])
    return Costs(per_h, str(price.get("currency", "")), round(per_h * hours, 4), still_bills=bills)


def clocks_of(place: Place, action: str) -> tuple[DangerClock, ...]:
    """Return the platform's own timers: with a date where it is known when they started, or start with this verb."""
    now = wall_s()
    starts = {"box-started": place.box.facts.get("up_wall_s") or place.box.first_w}
    if action == "stop":
        starts.update({"box-stopped": now, "in-box-shutdown": now})
    if action == "destroy":
        starts.update({"box-released": now})
    found = []
    for clock in place.platform.danger_clocks:
        text = f"{clock.what.said()}: {clock.consequence.said()}"
        start = starts.get(clock.starts_when)
        at_s = None if start is None or clock.after_hours is None else float(start) + clock.after_hours * 3600
        found.append(DangerClock(text, at_s))
    return tuple(found)


def _places(place: Place, runs: list[RunClaims]) -> tuple[SafePlace, ...]:
    disks: dict[str, Any] = place.box.facts.get("disks") or {}
    found = []
    for name in sorted({copy.place for run in runs for copy in run.copies}):
        kind, _, path = name.partition(":")
        if kind == "here":
            found.append(SafePlace(name, storage_of(path)))
        elif kind == "mount":
            tops = [top for top in disks if _below(path, top)]
            known = disks[max(tops, key=len)] if tops else {}
            found.append(SafePlace(name, "local" if known.get("network") is False else "network"))
        elif kind == "rclone":
            found.append(SafePlace(name, "remote", leads_to_box(place, path)))
    return tuple(found)


# ---- the box ----


def _scan(place: Place, tiers: tuple[Tier, ...], action: str) -> dict[str, Any] | None:
    """Ask who writes and what lies where the verb deletes. Only where people put files: a system's own directories
    change all the time."""
    mounts = {t.mount for t in place.platform.tiers if t.mount}
    paths = [t.path for t in tiers if t.survives is not True and (t.path not in mounts or action == "purge")]
    python = str(place.box.facts.get("python") or "")
    known = [posixpath.dirname(posixpath.dirname(python))] if python.startswith("/") else []
    request = {
        "tiers": list(dict.fromkeys(paths)),
        "since_wall_s": float(place.box.facts.get("up_wall_s") or place.box.first_w),
        "known": [k for k in known if k not in ("/", "/usr", *paths)],
        "budget_s": SCAN_BUDGET_S,
    }
    try:
        return place.call("gate_scan", request, timeout_s=SCAN_BUDGET_S + 60)
    except errors.OutliveError:
        return None


def _own_directory(place: Place, runs: set[str]) -> tuple[tuple[int, int] | None, list[dict[str, Any]] | None]:
    """Return (files and bytes of our directory, files in it that are not ours); None where it could not be listed."""
    try:
        entries, _ = listing(place, posixpath.join(place.box.root, DIR), digests=False)
    except errors.OutliveError:
        return None, None
    stray = []
    for entry in entries:
        parts = entry.path.split("/")
        ours = parts[0] in OUR_NAMES or (len(parts) == 1 and OUR_PROGRAMS.fullmatch(parts[0]))
        if parts[0] == "runs" and (len(parts) < 3 or parts[1] not in runs):
            ours = False
        if not ours and not entry.link and ".part" not in entry.path:
            path = posixpath.join(place.box.root, DIR, entry.path)
            stray.append({"path": path, "bytes": entry.bytes, "mtime_w": entry.mtime_ns / 1e9})
    return (len(entries), sum(e.bytes for e in entries)), stray


def _unclaimed(
    scan: dict[str, Any] | None,
    loose: list[dict[str, Any]],
    stray: list[dict[str, Any]] | None,
    action: str,
    box_wall_s: float,
) -> Unclaimed | None:
    if scan is None or stray is None:
        return None
    found = scan["unclaimed"]
    files = [*stray, *loose]
    count, size = len(files), sum(f["bytes"] for f in files)
    if action != "purge":  # our own directory was looked at above, file by file
        traces = [f for f in found["files"] if posixpath.basename(f["path"]) in SHELL_TRACES]
        files += [f for f in found["files"] if f not in traces]
        count += found["count"] - len(traces)
        size += found["bytes"] - sum(f["bytes"] for f in traces)
    files.sort(key=lambda f: (-f["bytes"], f["path"]))
    return Unclaimed(
        tuple(UnclaimedFile(f["path"], f["bytes"], round(max(0.0, box_wall_s - f["mtime_w"]), 1)) for f in files[:50]),
        count,
        size,
        bool(found["complete"]) or action == "purge",
    )


def _writers(scan: dict[str, Any] | None, place: Place, action: str) -> tuple[ForeignProcess, ...] | None:
    if scan is None:
        return None
    writers = scan["writers"]
    if writers is None:
        return ()
    if writers["unreadable"] is None:
        return None
    if writers["unreadable"] and action != "purge":
        return None  # our own directory is closed to other users; a whole tier is not
    ours = posixpath.join(place.box.root, DIR, "supervisor-")
    return tuple(
        ForeignProcess(h["pid"], h["command"], str(h["uid"] if h["uid"] is not None else ""), writes=tuple(h["files"]))
        for h in writers["holders"]
        if ours not in h["command"]
    )


def _gpu_holders(scan: dict[str, Any] | None, place: Place) -> tuple[ForeignProcess, ...] | None:
    if scan is None:
        return None
    gpu = scan["gpu_holders"]
    if gpu["why_unknown"] and place.box.facts.get("gpu_state") != "none":
        return None
    return tuple(
        ForeignProcess(
            h["pid"], h["command"], str(h["uid"] if h["uid"] is not None else ""), True, h["memory_used_bytes"]
        )
        for h in gpu["holders"]
    )


def words_of(platform: Platform, verb: Verb) -> list[str]:
    """Return what a person does, in the console's own words."""
    return [step.said() for step in verb.steps]
