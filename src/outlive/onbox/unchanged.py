"""Whether what an ended run left still is what it was at an earlier look: one tag over all that a look depends on.

Only what the file system says of each file goes into it: size, times to the nanosecond, inode, and the time of change
of the entry, which nobody sets at will. There is no tag while any of these times is so young that a later write could
carry the same one.
"""

import hashlib
import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from outlive.onbox.seen import settled
from outlive.wire.names import BoxFiles, RunFiles


def look(
    box: BoxFiles, run: RunFiles, own: List[str], ends: List[str]
) -> Tuple[str, Optional[Dict[str, Any]], List[str]]:
    """Return (tag, manifest, drift). The tag is "" while there is no frozen manifest or something was just written.

    ``own`` are names below the run's directory, ``ends`` names of each attempt's directory.
    """
    from outlive.onbox import code

    now_ns, digest, stands = time.time_ns(), hashlib.sha256(), True

    def note(path: str) -> None:
        nonlocal stands
        try:
            info = os.lstat(path)
        except OSError:
            digest.update(b"-\n")
            return
        stands = stands and settled(info, now_ns)
        digest.update(
            b"%d %d %d %d %d\n" % (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev)
        )

    for path in (run.roster, run.journal, run.spec, run.fence):
        note(path)
    for name in own:
        note(os.path.join(run.dir, name))
    try:
        for number in sorted(os.listdir(run.attempts)):
            digest.update(number.encode("utf-8", "surrogateescape") + b"\n")
            for name in ends:
                note(os.path.join(run.attempts, number, name))
        with open(run.roster, "rb") as handle:
            manifest: Dict[str, Any] = json.loads(handle.read().decode("utf-8"))
        with open(run.spec, "rb") as handle:
            spec = json.loads(handle.read().decode("utf-8"))
    except (OSError, ValueError):
        return "", None, []
    top = run.work + "/"
    for entry in manifest["entries"]:
        note(top + entry["path"])
    drift = code.drift(box, spec.get("snapshot"), run.work)
    for name in drift:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\n")
        note(top + name)
    return (digest.hexdigest() if stands else ""), manifest, drift
