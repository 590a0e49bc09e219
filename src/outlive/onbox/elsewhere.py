"""Two machines on one directory: whether a run's work lives on the other one.

A network volume or a home directory can be mounted in two places. Process tables and, on some file systems, locks do
not reach across; files do. The keeper beside the work writes a beat every two seconds, so a machine that finds somebody
else's attempt looks for a few beats before it takes the run over. A machine that only restarted kept its name and does
not wait.
"""

import os
import time
from typing import Any, Dict, Tuple

from outlive.onbox.status import machine_of
from outlive.wire.journal import read_all
from outlive.wire.names import BoxFiles, RunFiles
from outlive.wire.runview import RunView

LOOK_S = 7.0
"""Three beats of a keeper and more."""


def lives_elsewhere(run: RunFiles, look_s: float = LOOK_S) -> bool:
    """Return whether another machine works on the run now. Takes ``look_s`` where that can be, else no time."""
    current = RunView().add_all(read_all(run.journal)).attempt
    box = BoxFiles(os.path.dirname(os.path.dirname(os.path.dirname(run.dir))))
    if current is None or current.ended or current.machine == machine_of(box) or current.host == os.uname().nodename:
        return False
    before = _signs(run, current.number)
    until = time.monotonic() + look_s
    while time.monotonic() < until:
        time.sleep(0.25)
        if _signs(run, current.number) != before:
            return True
    return False


def _signs(run: RunFiles, number: int) -> Tuple[bytes, Dict[str, Any]]:
    """Return what somebody who works on the run changes: the keeper's beat, the log, the supervisor's samples."""
    try:
        with open(run.attempt(number).beat, "rb") as handle:
            beat = handle.read()
    except OSError:
        beat = b""
    sizes = {}
    for path in (run.log, run.samples, run.journal):
        try:
            sizes[path] = os.path.getsize(path)
        except OSError:
            continue
    return beat, sizes
