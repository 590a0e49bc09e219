"""reconnect.py [--reconnects N] [--seed S]: log lines lost or doubled while followers are killed again and again.

The work writes 10,000 lines a second; each follower continues where the last one died. At the end the log here must be
the log there, byte for byte.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from outlive.runs import demo_work
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage
from outlive.runs.look import Mirror
from outlive.runs.run import run
from outlive.runs.up import up
from outlive.runs.watch import once
from outlive.wire.names import BoxFiles

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


def main() -> int:
    """Print what was counted; 1 when a line is lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reconnects", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outlive-reconnect-") as base:
        box = BoxFiles(base + "/box")
        try:
            lines, lost, doubled, killed = measure(Path(base), box, args.reconnects, random.Random(args.seed))
        finally:
            demo_work.end_processes(box)
    print(f"  {args.reconnects} reconnects, {killed} killed: {lines} lines, {lost} lost, {doubled} doubled")
    print(f"  wanted: none   {'ok' if not lost and not doubled else 'WRONG'}")
    return 1 if lost or doubled else 0


def measure(base: Path, box: BoxFiles, reconnects: int, dice: random.Random) -> tuple[int, int, int, int]:
    """Return (lines, lost, doubled, followers that were killed)."""
    project = base / "project"
    project.mkdir()
    (project / "work.py").write_text(WORK)
    home = Home(base / "client")
    place = up(home, ["local:"], root=str(base / "box"), python=sys.executable, budget_s=2.0).place
    job = Job("talk", (Stage("main", ("python", "work.py")),), project)
    name = run(home, job, place).run
    killed = sum(follow_and_die(home, name, dice.uniform(0.02, 0.6)) for _ in range(reconnects))
    place.call("run_ask", {"run": name, "ask": {"id": "stop", "kind": "stop", "grace_s": 1.0}, "wait_s": 30})
    files = box.run(name)
    while not os.path.exists(files.done):
        time.sleep(0.1)
    mirror = Mirror(home, name, place.box.box_id)
    while mirror.offsets()["log"] < os.path.getsize(files.log):
        once(home, home.run_of(name))
    there, here = Path(files.log).read_bytes().splitlines(), mirror.path("log").read_bytes().splitlines()
    return len(there), len(set(there) - set(here)), len(here) - len(set(here)), killed


def follow_and_die(home: Home, name: str, after_s: float) -> int:
    """Follow in a process of its own; 1 when it had to be killed."""
    pid = os.fork()
    if pid == 0:
        try:
            once(home, home.run_of(name))
        finally:
            os._exit(0)
    end = time.monotonic() + after_s
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return 0
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 1


if __name__ == "__main__":
    sys.exit(main())
