"""Which foreign programs are here, where, and how old."""

import os
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from outlive.probes.bounded import run_bounded, text
from outlive.wire.clock import boot_s
from outlive.wire.values import Value

_VERSION_FLAG: Dict[str, Tuple[str, ...]] = {
    "bash": ("--version",),
    "sh": (),
    "tmux": ("-V",),
    "rsync": ("--version",),
    "zstd": ("--version",),
    "tar": ("--version",),
    "rclone": ("version",),
    "nvidia-smi": (),
    "curl": ("--version",),
    "git": ("--version",),
    "setsid": ("--version",),
    "flock": ("--version",),
    "docker": ("--version",),
}

NAMES = tuple(_VERSION_FLAG)


@dataclass(frozen=True)
class Tool(Value):
    """One program. ``path`` None means that it is not on PATH; ``version`` None has its reason."""

    name: str
    path: Optional[str] = None
    version: Optional[str] = None
    why_unknown: str = ""


def tools(environ: Optional[Mapping[str, str]] = None, budget_s: float = 5.0) -> Dict[str, Tool]:
    """Look for each of ``NAMES`` on the PATH of ``environ`` (default: our own), within ``budget_s`` plus a second."""
    import shutil

    env = dict(os.environ if environ is None else environ)
    env["LC_ALL"] = "C"
    end_s = boot_s() + budget_s
    result = {}
    for name, flag in _VERSION_FLAG.items():
        path = shutil.which(name, path=env.get("PATH", os.defpath))
        if path is None:
            result[name] = Tool(name, why_unknown="not on PATH")
        elif name == "nvidia-smi":
            result[name] = Tool(name, path, why_unknown="not asked: it can hang on a sick GPU; see the GPU reading")
        elif not flag:
            result[name] = Tool(name, path, os.path.basename(os.path.realpath(path)))
        else:
            result[name] = _asked(name, path, flag, env, end_s)
    return result


def _asked(name: str, path: str, flag: Tuple[str, ...], env: Dict[str, str], end_s: float) -> Tool:
    import re

    left_s = min(2.0, end_s - boot_s())
    if left_s <= 0:
        return Tool(name, path, why_unknown="no time left to ask")
    answer = run_bounded((path,) + flag, left_s, environ=env, cwd="/")
    said = text(answer.out or answer.err)
    # Debian's zstd and rclone print words before their number; BusyBox tools print a usage text with its own.
    found = re.search(r"(?<![\w.])v?(\d+\.[\w.+~-]*\w)", said)
    if found:
        return Tool(name, path, found.group(1))
    return Tool(name, path, why_unknown=answer.why or "no version in what it printed")
