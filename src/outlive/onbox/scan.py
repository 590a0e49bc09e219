"""What the gate wants to know of a whole box: live work of anyone, and files that nobody claimed."""

import json
import os
import stat
import time
from typing import Any, Dict, List, Optional, Tuple

from outlive.artifacts.patterns import DEFAULT_IGNORE, ignorer
from outlive.onbox.status import machine_of, status
from outlive.probes import gpu_holders, holders
from outlive.wire.clock import boot_s, wall_s
from outlive.wire.names import DIR, BoxFiles, write_aside

TOP = 20


def gate_scan(box: BoxFiles, request: Dict[str, Any]) -> Dict[str, Any]:
    """Return evidence about the box, each part with its own "unknown".

    ``request``: ``tiers`` (paths that the verb deletes), ``since_wall_s`` (of `up`), ``known`` (absolute paths
    that are accounted for), ``budget_s``. ``unclaimed``: files changed since `up` in no run, snapshot, pushed
    data or known cache, biggest first, with ``complete`` false when the time was not enough.
    """
    machine = machine_of(box)
    runs = [status(box, box.run(r), machine) for r in box.run_ids()]
    tiers = [os.path.realpath(t) for t in request.get("tiers") or []]
    back_s = went_back(box, machine)
    return {
        "runs": runs,
        "gpu_holders": gpu_holders.holders().to_wire(),
        "writers": holders.holders(tiers).to_wire() if tiers else None,
        "unclaimed": unclaimed(
            tiers,
            float(request.get("since_wall_s", 0.0)) - back_s,
            [box.dir] + list(request.get("known") or []),
            float(request.get("budget_s", 20.0)),
            {path: until_w - back_s for path, until_w in claims(box).items()},
        ),
    }


def born(box: BoxFiles) -> Dict[str, Any]:
    """Return what ``box.json`` holds from the first: when `up` was, on both clocks of which machine."""
    return {"up_wall_s": wall_s(), "up_boot_s": boot_s(), "up_machine": machine_of(box)}


def went_back(box: BoxFiles, machine: str) -> float:
    """Return by how many seconds the wall clock was set back since `up`, 0.0 when it was not.

    A file made since then would bear a time before `up`, and nobody would ask whose it is.
    """
    try:
        with open(box.box, "rb") as handle:
            data = json.loads(handle.read().decode("utf-8"))
        since_w = wall_s() - float(data["up_wall_s"])
    except (FileNotFoundError, ValueError, KeyError):
        return 0.0
    since_b = boot_s() - float(data["up_boot_s"]) if data.get("up_machine") == machine else 0.0
    # clocks are trimmed by a little all the time
    return since_b - since_w if since_b - since_w > 2.0 else 0.0


def claim(box: BoxFiles, paths: List[str]) -> None:
    """Remember that what lies at these paths now was pushed from elsewhere, so that its loss is none.

    What is written there later is not covered: a claim ends at the moment it is made.
    """
    try:
        with open(box.box, "rb") as handle:
            data = json.loads(handle.read().decode("utf-8"))
    except (FileNotFoundError, ValueError):
        data = born(box)
    kept = [c for c in data.get("claimed", []) if c["path"] not in paths]
    data["claimed"] = kept + [{"path": os.path.realpath(p), "until_w": wall_s()} for p in paths]
    write_aside(box.box, json.dumps(data).encode("utf-8"))


def claims(box: BoxFiles) -> Dict[str, float]:
    """Return path -> wall time of its claim."""
    try:
        with open(box.box, "rb") as handle:
            found = json.loads(handle.read().decode("utf-8")).get("claimed", [])
    except (FileNotFoundError, ValueError):
        return {}
    return {c["path"]: float(c["until_w"]) for c in found}


def _pushed(path: str, changed_w: float, pushed: Dict[str, float]) -> bool:
    return any(changed_w <= until and (path == top or path.startswith(top + os.sep)) for top, until in pushed.items())


def unclaimed(
    tiers: List[str], since_wall_s: float, known: List[str], budget_s: float, pushed: Optional[Dict[str, float]] = None
) -> Dict[str, Any]:
    """Walk ``tiers`` on one file system each and return ``{"files", "count", "bytes", "complete"}``."""
    until = time.monotonic() + budget_s
    pushed = pushed or {}
    claimed = {os.path.realpath(k) for k in known}
    ignored = ignorer(DEFAULT_IGNORE)
    found: List[Tuple[int, str, float]] = []
    count, total, complete = 0, 0, True
    for tier in tiers:
        try:
            device = os.stat(tier).st_dev
        except OSError:
            complete = False
            continue
        stack = [tier]
        while stack:
            if time.monotonic() > until:
                complete = False
                break
            try:
                items = list(os.scandir(stack.pop()))
            except OSError:
                complete = False
                continue
            for item in items:
                try:
                    info = item.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(info.st_mode):
                    skip = item.path in claimed or ignored(item.name) or item.name == DIR or info.st_dev != device
                    if not skip and item.path not in ("/proc", "/sys", "/dev", "/run", "/tmp/.X11-unix"):
                        stack.append(item.path)
                elif stat.S_ISREG(info.st_mode):
                    changed_w = max(info.st_mtime, info.st_ctime)
                    if changed_w <= since_wall_s or item.path in claimed or ignored(item.name):
                        continue
                    if _pushed(item.path, info.st_ctime, pushed):
                        continue
                    count, total = count + 1, total + info.st_size
                    found.append((info.st_size, item.path, info.st_mtime))
                    if len(found) > 4 * TOP:
                        found = sorted(found, reverse=True)[:TOP]
    files = [{"path": p, "bytes": b, "mtime_w": m} for b, p, m in sorted(found, reverse=True)[:TOP]]
    return {"files": files, "count": count, "bytes": total, "complete": complete}
