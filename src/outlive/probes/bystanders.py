"""Processes beside the work that go wrong quietly: watchers that nobody needs, a panel that shows nothing."""

import os
from typing import Any, Dict, List, Optional

from outlive.probes import process
from outlive.wire.clock import boot_s

OLD_S = 3600.0


def bystanders() -> Dict[str, Any]:
    """Return watchers older than an hour (command, how many of it) and the TensorBoard servers with their directory."""
    if not process.has_proc():
        return {"watchers": None, "panels": None, "why_unknown": "no /proc to look at processes in"}
    now_s = boot_s()
    ticks = float(os.sysconf("SC_CLK_TCK"))
    watchers: Dict[str, Dict[str, Any]] = {}
    panels: List[Dict[str, Any]] = []
    for pid, stat in process.snapshot().items():
        if stat.kernel or stat.state == "Z" or pid == os.getpid():
            continue
        words = process.command_line(pid)
        if not words:
            continue
        line = " ".join(words)
        age_s = now_s - stat.ticks / ticks
        if _waits(words, line) and age_s > OLD_S:
            entry = watchers.setdefault(line[:160], {"command": line[:160], "pids": [], "oldest_s": 0.0})
            entry["pids"].append(pid)
            entry["oldest_s"] = max(entry["oldest_s"], round(age_s))
        if any(os.path.basename(word) in ("tensorboard", "tensorboard.main") for word in words[:3]):
            panels.append(_panel(pid, words))
    return {"watchers": list(watchers.values()), "panels": panels, "why_unknown": ""}


def _waits(words: List[str], line: str) -> bool:
    name = os.path.basename(words[0])
    if name == "tail":
        return any(word in ("-f", "-F", "--follow") for word in words)
    if name in ("bash", "sh", "dash", "zsh") and len(words) > 2:
        return ("while " in line or "until " in line) and "sleep" in line
    return name == "watch"


def _panel(pid: int, words: List[str]) -> Dict[str, Any]:
    """Return a server's directory, whether event files lie there, and its port."""
    where: Optional[str] = None
    port = "6006"
    for at, word in enumerate(words):
        for flag in ("--logdir", "--port"):
            value = None
            if word.startswith(flag + "="):
                value = word[len(flag) + 1 :]
            elif word == flag and at + 1 < len(words):
                value = words[at + 1]
            if value is not None:
                where, port = (value, port) if flag == "--logdir" else (where, value)
    found: Dict[str, Any] = {"pid": pid, "logdir": where, "port": port, "events": None}
    if where:
        try:
            base = os.readlink("%s/%d/cwd" % (process.PROC, pid))
        except OSError:
            return found
        found["logdir"] = os.path.join(base, os.path.expanduser(where))
        found["events"] = _events(found["logdir"])
    return found


def _events(top: str) -> int:
    """Count event files, to a bound."""
    count = 0
    for number, (_, names, files) in enumerate(os.walk(top)):
        count += sum("tfevents" in name for name in files)
        if number > 500 or count > 100:
            break
        names.sort()
    return count
