"""How many processors the work may really use: hosts show all of theirs, the limit is elsewhere."""

import os
from typing import Optional

from outlive.wire.values import Reading


def usable_cores(root: str = "/sys/fs/cgroup", proc: str = "/proc") -> Reading:
    """Return the smallest of processor count, affinity and quota, as cores (a float: quotas are fractions).

    ``source`` says which of them it was and what the others were.
    """
    from outlive.probes.cgroup import cgroup

    found = [("nproc", os.cpu_count()), ("affinity", _affinity()), ("quota", cgroup(root, proc).cpu_quota_cores)]
    known = [(float(value), name) for name, value in found if value]
    if not known:
        return Reading("usable_cores", None, "cores", why_unknown="neither count, affinity nor quota can be read")
    cores, name = min(known)
    others = ", ".join("%s %g" % (other, value) for value, other in known if other != name)
    return Reading("usable_cores", cores, "cores", source="%s%s" % (name, " (%s)" % others if others else ""))


def vcpu_cap(root: str = "/sys/fs/cgroup", proc: str = "/proc") -> int:
    """Threads that are worth starting: usable cores rounded down, at least 1 (also where unknown)."""
    cores = usable_cores(root, proc).value
    return max(1, int(cores)) if cores else 1


def _affinity() -> Optional[int]:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None
