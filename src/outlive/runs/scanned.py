"""Readings of a box for the gate: who else works there, and what lies there that nobody accounts for."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from outlive import errors
from outlive.gate import ForeignProcess, Tier, Unclaimed, UnclaimedFile
from outlive.runs.place import Place
from outlive.runs.result import listing
from outlive.wire.names import DIR, BoxFiles

SCAN_BUDGET_S = 20.0

_NAMES = BoxFiles("/")
OUR_NAMES = frozenset(
    v.rsplit("/", 1)[1] for v in vars(_NAMES).values() if isinstance(v, str) and posixpath.dirname(v) == _NAMES.dir
)
"""Names of ours in our directory on a box, with all below them. What else is there was put by somebody."""
OUR_PROGRAMS = re.compile(
    r"supervisor-[0-9a-f]+\.(pyz|[\w.-]+\.code)|train-[0-9a-f]+\.zip|(keeper|quick)-[0-9a-f]+\.sh"
)

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


def scan(place: Place, tiers: tuple[Tier, ...], action: str) -> dict[str, Any] | None:
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


def own_directory(place: Place, runs: set[str]) -> tuple[tuple[int, int] | None, list[dict[str, Any]] | None]:
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


def unclaimed(
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


def writers(scan: dict[str, Any] | None, place: Place, action: str) -> tuple[ForeignProcess, ...] | None:
    if scan is None:
        return None
    writers = scan["writers"]
    if writers is None:
        return ()
    if writers["unreadable"] is None:
        return None
    if writers["unreadable"] and action != "purge":
        # Without root nobody may look into root's processes, and every box has some. What those wrote shows all the
        # same: a complete scan for unclaimed files names it, clause 6. Another user's processes stay unknown.
        if writers.get("unreadable_uids") != [0] or not scan["unclaimed"]["complete"]:
            return None
    ours = posixpath.join(place.box.root, DIR, "supervisor-")
    return tuple(
        ForeignProcess(h["pid"], h["command"], str(h["uid"] if h["uid"] is not None else ""), writes=tuple(h["files"]))
        for h in writers["holders"]
        if ours not in h["command"] and not _keepers_own(h["files"])
    )


def _keepers_own(files: list[str]) -> bool:
    """Whether a process only has our keeper's error file open: its `sleep` inherits that and has no name of ours."""
    return bool(files) and all(posixpath.basename(f) in ("keeper.err", "supervisor.err") for f in files)


def gpu_holders(scan: dict[str, Any] | None, place: Place) -> tuple[ForeignProcess, ...] | None:
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
