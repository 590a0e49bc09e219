"""GPU faults and kills in the kernel's log. Often forbidden in containers: then the answer is unknown."""

import re
from typing import Any, Dict, List

from outlive.probes.bounded import last_line, run_bounded, text

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([^)]*)\):\s*(\d+)(.*)")
_STAMP = re.compile(r"^\[\s*(\d+\.\d+)\]")


def kernel_log(timeout_s: float = 3.0) -> Dict[str, Any]:
    """Return the Xid events that the kernel still remembers, newest last, or why it cannot be read."""
    answer = run_bounded(["dmesg"], timeout_s)
    if answer.rc != 0:
        why = answer.why or last_line(answer.err) or "dmesg ended with %s" % answer.rc
        return {"xids": None, "why_unknown": why}
    return {"xids": parse_xids(text(answer.out)), "why_unknown": ""}


def parse_xids(printed: str) -> List[Dict[str, Any]]:
    """Read ``NVRM: Xid (PCI:0000:3b:00): 79, pid=..., ...`` lines."""
    found = []
    for line in printed.splitlines():
        hit = _XID.search(line)
        if hit:
            stamp = _STAMP.match(line)
            found.append(
                {
                    "boot_s": float(stamp.group(1)) if stamp else None,
                    "device": hit.group(1),
                    "xid": int(hit.group(2)),
                    "text": hit.group(3).strip(" ,")[:200],
                }
            )
    return found[-50:]
