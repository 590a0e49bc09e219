"""supervisor.py [--seconds S]: what our processes on the box cost beside a busy job with a GPU: CPU share and memory.

Counted from /proc: the supervisor with its ended children, and the keeper with its guard. Memory is the proportional
share, in which pages that several use are counted once. The GPU is read once a second through a stand-in for
`nvidia-smi` that replays a recorded answer (tests/recorded/nvidia-smi): starting it and reading what it prints is ours
and counted; what the tool itself costs is the vendor's, is not measured here, and the stand-in's own figures say
nothing about it.
"""

import argparse
import json
import os
import stat
import sys
import time
from pathlib import Path

from onebox import OneBox, load, one_box

from outlive.probes.process import snapshot
from outlive.wire.names import RunFiles

CPU_WANTED, MB_WANTED = 0.005, 18.0
LIMIT_S = 120.0
RECORDED = Path(__file__).resolve().parents[1] / "tests" / "recorded" / "nvidia-smi"
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
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gpus", default="a100x8", help="case to replay; '' for a box without a GPU")
    args = parser.parse_args()
    tool = stand_in(args.gpus) if args.gpus else None
    try:
        with one_box(WORK) as box:
            wait(lambda: bool(newest_sample(box.files)))
            if tool is not None:
                wait(lambda: len((newest_sample(box.files).get("gpu") or {}).get("devices") or []) > 0)
                wait(lambda: any(map(is_stand_in, children(pid_of(box.files.supervisor)))))
            cpu, memory, readings = measure(box, args.seconds)
    finally:
        if tool is not None:
            (tool / "nvidia-smi").unlink()
            tool.rmdir()
    share, megabytes = sum(cpu.values()), sum(memory.values())
    for name in cpu:
        print(f"  {name:12} {100 * cpu[name]:5.2f} % of a core   {memory[name]:5.1f} MB")
    print(f"  {'all':12} {100 * share:5.2f} % of a core   {megabytes:5.1f} MB   over {args.seconds:.0f} s, {load()}")
    if tool is not None:
        print(f"  GPU readings from a stand-in for nvidia-smi ({args.gpus}): {readings} samples with them")
    ok = share <= CPU_WANTED and megabytes <= MB_WANTED
    print(f"  wanted: at most {100 * CPU_WANTED:.1f} % and {MB_WANTED:.0f} MB   {'ok' if ok else 'too much'}")
    return 0 if ok else 1


def stand_in(case: str) -> Path:
    """Put a replaying `nvidia-smi` first on PATH. Returns its directory."""
    from tempfile import mkdtemp

    folder = Path(mkdtemp(prefix="outlive-stand-in-"))
    script = folder / "nvidia-smi"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{RECORDED}/replay" "{RECORDED}/{case}.txt" "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return folder


def measure(box: OneBox, seconds: float) -> tuple[dict[str, float], dict[str, float], int]:
    """Return share of a core and MB by process, and how many samples had a GPU reading."""
    ours = processes(box.files)
    before = {name: sum(map(cpu_s, pids)) for name, pids in ours.items()}
    first = len(samples(box.files))
    time.sleep(seconds)
    if processes(box.files) != ours:
        raise SystemExit("another supervisor or keeper took over; nothing was measured")
    cpu = {name: (sum(map(cpu_s, pids)) - before[name]) / seconds for name, pids in ours.items()}
    memory = {name: sum(map(memory_mb, pids)) for name, pids in ours.items()}
    return cpu, memory, sum(bool((s.get("gpu") or {}).get("devices")) for s in samples(box.files)[first:])


def processes(files: RunFiles) -> dict[str, list[int]]:
    """Return the pids of supervisor and keeper; the work and the GPU tool are not ours."""
    keeper = pid_of(files.attempt(1).keeper)
    guards = [pid for pid in children(keeper) if snapshot()[pid].comm in ("sh", "dash", "bash")]
    return {"supervisor": [pid_of(files.supervisor)], "keeper": [keeper, *guards]}


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [found.pid for found in snapshot().values() if found.ppid == pid]


def is_stand_in(pid: int) -> bool:
    """Whether a process is the replayed tool, looping."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith(b"/replay") for word in words) and b"-lms" in words


def pid_of(path: str) -> int:
    """Return the pid that a file of ours names."""
    return int(Path(path).read_text().split()[0])


def samples(files: RunFiles) -> list[dict[str, object]]:
    """Return what the supervisor sampled so far."""
    try:
        return [json.loads(line) for line in Path(files.samples).read_text().splitlines()]
    except FileNotFoundError:
        return []


def newest_sample(files: RunFiles) -> dict[str, dict[str, list[object]]]:
    """Return the last sample, or an empty one."""
    found = samples(files)
    return found[-1] if found else {}  # type: ignore[return-value]


def wait(condition: object) -> None:
    """Poll for a condition; end with a sentence when it does not come."""
    end = time.monotonic() + LIMIT_S
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            raise SystemExit("the box did not come to the point where something can be measured")
        time.sleep(0.2)


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
