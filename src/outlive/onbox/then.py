"""``--then pause``: what is done from inside the box after the run has ended. Only a reversible verb gets here.

The supervisor holds no key that could do more: the platform's own command parks the machine, its disks stay.
"""

import os
import subprocess
from typing import List

from outlive.onbox.context import Context
from outlive.onbox.status import status
from outlive.probes import gpu_holders
from outlive.wire.names import BoxFiles

LIMIT_S = 60.0


def in_the_way(context: Context) -> List[str]:
    """Return why the machine must not be parked now: other live runs, or somebody else on the GPU."""
    found = []
    box: BoxFiles = context.box
    for run_id in box.run_ids():
        if run_id == context.run.id:
            continue
        other = status(box, box.run(run_id), context.machine)
        if other["work_alive"] or not other["ended"]:
            found.append("%s is %s" % (run_id, other["state"]))
    holders = gpu_holders.holders(timeout_s=5.0)
    found += ["process %d holds a GPU" % holder.pid for holder in holders.holders]
    return found


def carry_out(context: Context) -> None:
    """Park the box if the job asked for it and nothing stands in the way. Done once; the journal says what happened."""
    wanted = context.spec["then"]
    if wanted["do"] != "pause" or context.view.then is not None:
        return
    if context.view.fenced is not None:
        return
    blockers = in_the_way(context)
    if blockers:
        context.record("then", do="pause", ok=False, why="; ".join(blockers))
        return
    # written first: the command may take this process along before it could say anything
    context.record("then", do="pause", ok=True, argv=wanted["argv"])
    try:
        done = subprocess.run(
            wanted["argv"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            cwd="/",
            env=dict(os.environ, PATH=os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        context.record("then", do="pause", ok=False, why="%s: %s" % (wanted["argv"][0], error))
        return
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace").strip()[-300:]
        context.record(
            "then", do="pause", ok=False, why="%s ended with %d: %s" % (wanted["argv"][0], done.returncode, said)
        )
