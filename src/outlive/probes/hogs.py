"""What takes the space of a file system that is nearly full, also where a link hides it."""

import os
from typing import Any, Dict, List, Sequence, Set, Tuple

from outlive.probes.disk import Usage, disk, real_usage
from outlive.probes.mounts import mount_of, mounts
from outlive.wire.clock import boot_s

CACHES = (
    ("trash", "~/.local/share/Trash", "free"),
    ("pip cache", "~/.cache/pip", "free"),
    ("uv cache", "~/.cache/uv", "free"),
    ("conda packages", "~/miniconda3/pkgs", "free"),
    ("conda packages", "~/anaconda3/pkgs", "free"),
    ("conda packages", "/opt/conda/pkgs", "free"),
    ("conda packages", "/root/miniconda3/pkgs", "free"),
    ("compiled kernels", "~/.triton", "free"),
    ("tracker cache", "~/.cache/wandb", "free"),
    ("torch hub", "~/.cache/torch", "download"),
    ("model hub", "~/.cache/huggingface", "download"),
    ("model hub", "~/.cache/modelscope", "download"),
    ("temporary files", "/tmp", "look"),
    ("temporary files", "/var/tmp", "look"),
)
"""Places that grow unseen, and what losing them costs: ``free`` (made again), ``download``, ``look`` (by a person)."""

VARIABLES = (
    ("model hub", "HF_HOME", "download"),
    ("torch hub", "TORCH_HOME", "download"),
    ("pip cache", "PIP_CACHE_DIR", "free"),
)
TIGHT = 0.9


def hogs(roots: Sequence[str], budget_s: float) -> Dict[str, Any]:
    """Return caches with their real place and size and, for each root that is nearly full, its largest directories.

    ``complete`` False: sizes are lower bounds, the time was over.
    """
    end_s = boot_s() + budget_s
    places: List[Tuple[str, str, str]] = [(name, os.path.expanduser(path), cost) for name, path, cost in CACHES]
    places += [(name, os.environ[key], cost) for name, key, cost in VARIABLES if os.environ.get(key)]
    found: List[Dict[str, Any]] = []
    seen: Set[str] = set()
    complete = True
    table = mounts()
    for at, (name, path, cost) in enumerate(places):
        real = os.path.realpath(path)
        if real in seen or not os.path.isdir(real):
            continue
        seen.add(real)
        usage = real_usage(path, max(0.0, (end_s - boot_s()) / 2.0 / max(1, len(places) - at) + 0.05))
        complete = complete and usage.complete
        mount = mount_of(real, table)
        entry = {"name": name, "path": path, "real": real, "cost": cost, "mount": mount.point if mount else None}
        found.append(dict(entry, linked=os.path.islink(path.rstrip("/")), **_sizes(usage)))
    largest: Dict[str, List[Dict[str, Any]]] = {}
    for root in roots:
        facts = disk(root)
        point = facts.mount or root
        if point in largest or not (_tight(facts.free_bytes, facts.total_bytes) or _inodes_tight(facts)):
            continue
        tops, all_seen = _largest(root if os.path.isdir(root) else point, end_s)
        largest[point] = tops
        complete = complete and all_seen
    return {"caches": found, "largest": largest, "complete": complete, "why_unknown": ""}


def _sizes(usage: Usage) -> Dict[str, Any]:
    return {"bytes": usage.bytes, "files": usage.files, "complete": usage.complete}


def _tight(free: Any, total: Any) -> bool:
    return bool(total) and free is not None and 1.0 - float(free) / float(total) >= TIGHT


def _inodes_tight(facts: Any) -> bool:
    return _tight(facts.free_inodes, facts.total_inodes)


def _largest(top: str, end_s: float) -> Tuple[List[Dict[str, Any]], bool]:
    """Return the largest directories directly below ``top``, by files and by bytes."""
    try:
        entries = [entry.path for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return [], False
    found: List[Dict[str, Any]] = []
    complete = True
    for at, path in enumerate(sorted(entries)):
        left_s = end_s - boot_s()
        if left_s <= 0:
            return found, False
        usage = real_usage(path, left_s / max(1, len(entries) - at) + 0.05)
        complete = complete and usage.complete
        found.append(dict({"path": path}, **_sizes(usage)))
    by_files = sorted(found, key=lambda one: -int(one["files"]))[:3]
    by_bytes = sorted(found, key=lambda one: -int(one["bytes"]))[:5]
    return by_bytes + [one for one in by_files if one not in by_bytes], complete
