"""What the processors are asked to do against what they may do: a short look at threads and the quota."""

import os
import time
from typing import Any, Dict, List

from outlive.probes import process

_MOST_TASKS = 20000


def load(window_s: float = 1.0) -> Dict[str, Any]:
    """Return, from a look of ``window_s``: usable cores, runnable threads (mean of four counts), the share of quota
    periods that were cut short, and the processes with the most threads.

    ``running`` is None without /proc, ``throttled_share`` None where there is no quota or it did not run.
    """
    from outlive.probes.cgroup import cgroup
    from outlive.probes.cpu import usable_cores

    cores = usable_cores()
    before = cgroup()
    counts: List[int] = []
    for number in range(4):
        if number:
            time.sleep(window_s / 3.0)
        if process.has_proc():
            counts.append(_running())
    after = cgroup()
    share = None
    if before.periods is not None and after.periods is not None and before.periods_throttled is not None:
        passed = after.periods - before.periods
        if passed > 0:
            share = round(((after.periods_throttled or 0) - before.periods_throttled) / float(passed), 3)
    most = sorted(process.snapshot().values(), key=lambda one: -one.threads)[:3] if process.has_proc() else []
    top = [{"pid": one.pid, "name": one.comm, "threads": one.threads} for one in most if not one.kernel]
    for entry in top:
        found = process.environ(int(str(entry["pid"]))) or {}
        entry["omp_num_threads"] = found.get("OMP_NUM_THREADS")
    return {
        "cores": cores.value,
        "cores_source": cores.source,
        "host_cores": os.cpu_count(),
        "quota_cores": after.cpu_quota_cores,
        "running": round(sum(counts) / float(len(counts)), 1) if counts else None,
        "throttled_share": share,
        "top": top,
        "why_unknown": "" if counts else "no /proc to count threads in",
    }


def _running() -> int:
    """Count threads that run or want to, but our own."""
    total, looked, own = 0, 0, os.getpid()
    for pid, stat in process.snapshot().items():
        if stat.kernel or pid == own or stat.state == "Z":
            continue
        if stat.threads == 1:
            total += stat.state == "R"
            continue
        place = "%s/%d/task" % (process.PROC, pid)
        try:
            tasks = os.listdir(place)
        except OSError:
            continue
        for task in tasks:
            looked += 1
            if looked > _MOST_TASKS:
                return total
            try:
                with open("%s/%s/stat" % (place, task), "rb") as file:
                    after = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            total += bool(after) and after[0] == b"R"
    return total
