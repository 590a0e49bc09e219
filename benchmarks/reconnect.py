"""reconnect.py [--kills N] [--cuts N] [--seed S]: log lines lost or doubled while a log's followers are cut off.

The work writes 10,000 lines a second. Its followers are killed with `kill -9` at random moments, and on another box
the ssh connection of one is cut at random bytes, also within the log-in. At the end the log here must be the log there,
byte for byte.
"""

import argparse
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from onebox import OneBox, boxes_here, load, one_box, ssh_box

from outlive.errors import PlaceError, TimeOver
from outlive.runs.look import Mirror
from outlive.runs.watch import once

SHORTEST_S, LONGEST_S = 0.02, 0.5
"""How long a follower lives before it is killed."""
FEWEST_BYTES, MOST_BYTES = 200, 100_000
"""After how many bytes from the box a connection is cut; a log-in takes about 5,000."""
LOOKS_MAX = 8
END_S = 300.0
WORK = """
import sys, time
n, began = 0, time.monotonic()
while True:
    due = int((time.monotonic() - began) * 10000)
    sys.stdout.write("".join("line %09d of a log\\n" % i for i in range(n, due)))
    sys.stdout.flush()
    n = due
    time.sleep(0.02)
"""


@dataclass
class Count:
    """What was done, and what came of it."""

    reconnects: int = 0
    lines: int = 0
    lost: int = 0
    doubled: int = 0
    same: bool = True


def main() -> int:
    """Print what was counted; 1 when a line is lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dice = random.Random(args.seed)
    wrong = 0
    if args.kills:
        began = time.monotonic()
        with one_box(WORK) as box:
            wrong += told("followers killed", compared(box, kills(box, args.kills, dice)), began)
    if args.cuts and boxes_here():
        began = time.monotonic()
        # the log of all that time must fit: 240 kB a second
        with ssh_box(WORK, disk_mb=128 + 2 * args.cuts) as box:
            wrong += told("connections cut", compared(box, cuts(box, args.cuts, dice)), began)
    print(f"  wanted: none lost, none doubled, {load()}   {'WRONG' if wrong else 'ok'}")
    return 1 if wrong else 0


def told(name: str, count: Count, began: float) -> int:
    """Print one line; 1 when something is wrong."""
    print(
        f"  {count.reconnects:5} {name:17} {count.lines:9} lines, {count.lost} lost, {count.doubled} doubled, "
        f"{'the same bytes' if count.same else 'OTHER BYTES'}   {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 0 if count.same and not count.lost and not count.doubled else 1


def kills(box: OneBox, reconnects: int, dice: random.Random) -> int:
    """Follow in processes of their own that are killed. Returns how many were."""
    killed = 0
    while killed < reconnects:
        pid = os.fork()
        if pid == 0:
            try:
                while True:
                    once(box.home, box.home.run_of(box.name))
            finally:
                os._exit(1)
        time.sleep(dice.uniform(SHORTEST_S, LONGEST_S))
        os.kill(pid, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    return killed


def cuts(box: OneBox, reconnects: int, dice: random.Random) -> int:
    """Follow over connections that end after a random number of bytes. Returns how many ended so."""
    done = 0
    while done < reconnects:
        box.link.set(cut_down=int(FEWEST_BYTES * (MOST_BYTES / FEWEST_BYTES) ** dice.random()))
        box.link.cut()
        for _ in range(LOOKS_MAX):
            try:
                once(box.home, box.home.run_of(box.name), timeout_s=20.0)
            except (PlaceError, TimeOver):
                done += 1
                break
    box.link.set(cut_down=0)
    box.link.cut()
    return done


def compared(box: OneBox, reconnects: int) -> Count:
    """End the run, read what is left of its log, and compare."""
    ask = {"id": "stop", "kind": "stop", "grace_s": 1.0}
    box.place.call("run_ask", {"run": box.name, "ask": ask, "wait_s": 30})
    end = time.monotonic() + END_S
    while not os.path.exists(box.files.done) and time.monotonic() < end:
        time.sleep(0.1)
    mirror = Mirror(box.home, box.name, box.place.box.box_id)
    while mirror.offsets()["log"] < os.path.getsize(box.files.log) and time.monotonic() < end:
        once(box.home, box.home.run_of(box.name))
    there, here = Path(box.files.log).read_bytes(), mirror.path("log").read_bytes()
    lines, ours = there.splitlines(), here.splitlines()
    return Count(reconnects, len(lines), len(set(lines) - set(ours)), len(ours) - len(set(ours)), there == here)


if __name__ == "__main__":
    sys.exit(main())
