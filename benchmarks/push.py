"""push.py [--mb N] [--files N] [--full] [--rounds N] [--link]: push beside rsync, scp -r and tar over ssh.

A project of small files with `push`: the first time, unchanged, and with 1 % of its files changed; checkpoints with
`push --data`: the first time and unchanged. All over one open connection to an sshd box of the test bed, on loopback
and with --link over a line of 50 ms and 100 Mbit. scp and tar send all of it each time, so their first time stands for
the later ones. `push` leaves an archive that `run` unpacks; what that takes is printed below. Needs root on Linux and
testbed/install.sh.
"""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from peers import Bench, Times, arguments, boxes_here, checkpoints, lines, note, project, quarters, table

from outlive.runs.job import Job
from outlive.runs.push import Pushed, push, push_data
from outlive.wire.names import BoxFiles

if TYPE_CHECKING:
    from outlive.sync.data import DataResult


def main() -> int:
    """Print the tables; 1 when an aim is missed."""
    args = arguments(__doc__)
    if not boxes_here():
        return 0
    status = 0
    with lines(args) as benches:
        for bench in benches:
            status |= code(bench, args.files, args.rounds)
            status |= data(bench, args.mb, args.rounds)
    return status


def code(bench: Bench, files: int, rounds: int) -> int:
    """A project of small files."""
    place, source = bench.client.place(), bench.scratch / "code"
    times: dict[str, Times] = {state: {} for state in ("first", "unchanged", "1 % new")}
    for number in range(rounds):
        size = project(source, files, seed=number)
        pushes: dict[str, Pushed] = {}
        for state in times:
            if state == "1 % new":
                change(source, files, seed=number)
            seconds, pushes[state] = bench.ours(push, Job("bench", (), source), place)
            note(times[state], "push", seconds)
            beside(bench, times, state, source)
        assert pushes["unchanged"].already and 0 < pushes["1 % new"].sent_bytes < pushes["first"].sent_bytes, pushes
        archive = BoxFiles(place.box.root).snapshot(str(pushes["first"].digest))
        unpack_s, _ = bench.ours(bench.there, f"tar -C {bench.top}/unpacked -xf {archive}")
        clear(bench, source)
    place.close()
    title = f"{bench.name}: {files} files, {size / 1e6:.1f} MB"
    status = max(table(title, state, "push", found) for state, found in times.items())
    sent = pushes["1 % new"].sent_bytes / 1e6
    print(f"    of 1 % new {sent:.2f} MB were sent; unpacking all of it on the box: {unpack_s:.2f} s")
    return status


def data(bench: Bench, megabytes: int, rounds: int) -> int:
    """Checkpoints, to a place of the user's choice."""
    place, source = bench.client.place(), bench.scratch / "data"
    times: dict[str, Times] = {state: {} for state in ("first", "unchanged")}
    for _ in range(rounds):
        checkpoints(source, megabytes)
        pushes: dict[str, DataResult] = {}
        for state in times:
            seconds, pushes[state] = bench.ours(push_data, place, str(source), f"{bench.top}/ours")
            note(times[state], "push --data", seconds)
            beside(bench, times, state, source)
        assert [p.already_files for p in pushes.values()] == [0, 4], pushes
        clear(bench, source)
    place.close()
    title = f"{bench.name}: 4 checkpoints, {sum(quarters(megabytes))} MB"
    status = max(table(title, state, "push --data", found) for state, found in times.items())
    print(f"    carried by: {pushes['first'].by}")
    return status


def beside(bench: Bench, times: dict[str, Times], state: str, source: Path) -> None:
    """The same with the peers. scp and tar know no difference: their first time stands."""
    for who, command in bench.send(source, f"{bench.top}/copy").items():
        again = who in ("scp", "tar") and state != "first"
        note(times[state], who, times["first"][who][-1] if again else bench.peer(command))


def change(top: Path, files: int, seed: int) -> None:
    """Change one file in a hundred, at least one."""
    paths = sorted(top.rglob("*.py"))
    for path in random.Random(seed).sample(paths, max(1, files // 100)):
        path.write_text(f"changed = {seed}\n" + path.read_text())


def clear(bench: Bench, source: Path) -> None:
    """Remove the tree here and everybody's copy on the box, but for the archives that pushes left."""
    shutil.rmtree(source)
    bench.there(f"rm -rf {bench.top} && mkdir -p {bench.top}/unpacked")


if __name__ == "__main__":
    sys.exit(main())
