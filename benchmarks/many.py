"""many.py [--boxes N] [--rounds N]: many boxes polled at once, as `ps` does it.

Each is an sshd box of the test bed with an open connection and nothing new to tell. Beside one box alone, and beside
as many bare `ssh host true` on the same connections. Needs root on Linux and testbed/install.sh; making the boxes takes
some seconds each.
"""

import argparse
import concurrent.futures
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from peers import boxes_here, end_connection

from outlive.runs.look import AT_ONCE, look, look_all

WANTED_S = 3.0
"""For two hundred boxes; fewer have no excuse."""


def main() -> int:
    """Print the table; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if not boxes_here():
        return 0
    from servers.boxes import Bed

    runtime = Path(tempfile.mkdtemp(prefix="o-", dir="/tmp"))
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    bed = Bed()
    try:
        with tempfile.TemporaryDirectory(prefix="outlive-many-") as base:
            return measure(bed, Path(base), runtime, args.boxes, args.rounds)
    finally:
        for socket in sockets(runtime):
            end_connection(socket)
        bed.close()
        shutil.rmtree(runtime, ignore_errors=True)


def sockets(runtime: Path) -> list[Path]:
    return [path for path in runtime.rglob("*") if path.is_socket()]


def measure(bed: object, base: Path, runtime: Path, boxes: int, rounds: int) -> int:
    """Make the boxes, poll them, and print one line; return whether the aim is missed."""
    from servers.clients import Client

    client = Client(base)
    for _ in range(boxes):
        client.up(bed.up(), budget_s=1.0)  # type: ignore[attr-defined]
    home, connections = client.home, sockets(runtime)
    known = list(home.state().boxes.values())
    assert len(known) == len(connections) == boxes

    def bare() -> None:
        with concurrent.futures.ThreadPoolExecutor(min(AT_ONCE, boxes)) as pool:
            list(pool.map(true, connections))

    verbs: dict[str, Callable[[], object]] = {
        "one": lambda: look(home, known[0]),
        "all": lambda: answered(look_all(home, [])),
        "ssh": bare,
    }
    seconds: dict[str, list[float]] = {verb: [] for verb in verbs}
    for do in verbs.values():
        do()  # what is there for the first time is no news in the rounds that count
    for _ in range(rounds):
        for verb, do in verbs.items():
            began = time.perf_counter()
            do()
            seconds[verb].append(time.perf_counter() - began)
    took = {verb: statistics.median(values) for verb, values in seconds.items()}
    print(
        f"  {boxes} boxes: {took['all']:.2f} s; a box {took['all'] / boxes / took['one']:.2f} x one alone "
        f"({1000 * took['one']:.0f} ms here); {took['all'] / took['ssh']:.2f} x as many `ssh true` "
        f"({took['ssh']:.2f} s)   wanted: at most {WANTED_S:g} s   " + ("ok" if took["all"] <= WANTED_S else "too slow")
    )
    return int(took["all"] > WANTED_S)


def answered(looks: list[object]) -> None:
    """A box that did not answer is not counted as polled."""
    silent = [found for found in looks if found.state == "unreachable"]  # type: ignore[attr-defined]
    if silent:
        raise SystemExit(f"  {len(silent)} boxes did not answer, the first: {silent[0]}")


def true(socket: Path) -> None:
    """Run nothing on the box behind a socket."""
    argv = ["ssh", "-F", "none", "-o", f"ControlPath={socket}", "any", "true"]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
