"""supervisor.py [--seconds S]: what our processes on the box cost beside a busy job: CPU share and memory.

Counted from /proc: the supervisor with its ended children, and the keeper. Memory is the proportional share, in which
pages that both use are counted once.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from outlive.runs import demo_work
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage
from outlive.runs.run import run
from outlive.runs.up import up
from outlive.wire.names import BoxFiles, RunFiles

CPU_WANTED, MB_WANTED = 0.005, 18.0
WORK = """
import time
step = 0
while True:
    step += 1
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        sum(range(1000))
    print("step %d loss %.4f" % (step, 1 / step), flush=True)
"""


def main() -> int:
    """Print the table; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="outlive-supervisor-") as base:
        box = BoxFiles(base + "/box")
        try:
            share, megabytes = measure(Path(base), box, seconds)
        finally:
            demo_work.end_processes(box)
    ok = share <= CPU_WANTED and megabytes <= MB_WANTED
    print(f"  {100 * share:.2f} % of a core over {seconds:.0f} s, {megabytes:.1f} MB resident")
    print(f"  wanted: at most {100 * CPU_WANTED:.1f} % and {MB_WANTED:.0f} MB   {'ok' if ok else 'too much'}")
    return 0 if ok else 1


def measure(base: Path, box: BoxFiles, seconds: float) -> tuple[float, float]:
    """Return (share of a core, MB) of all that is ours there."""
    project = base / "project"
    project.mkdir()
    (project / "work.py").write_text(WORK)
    home = Home(base / "client")
    place = up(home, ["local:"], root=str(base / "box"), python=sys.executable, budget_s=2.0).place
    files = box.run(run(home, Job("busy", (Stage("main", ("python", "work.py")),), project), place).run)
    time.sleep(5.0)
    pids = ours(files)
    before = sum(map(cpu_s, pids))
    time.sleep(seconds)
    after = sum(map(cpu_s, pids))
    return (after - before) / seconds, sum(map(memory_mb, pids))


def ours(files: RunFiles) -> list[int]:
    """Return the pids of supervisor and keeper."""
    return [int(Path(p).read_text().split()[0]) for p in (files.supervisor, files.attempt(1).keeper)]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its ended children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the proportional share of a process's memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
