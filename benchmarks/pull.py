"""pull.py [--mb N] [--files N] [--full] [--rounds N] [--link]: pull beside rsync, scp -r and tar over ssh.

A real run on an sshd box of the test bed writes checkpoints, another one small files; both are pulled for the first
time, and again unchanged. All over one open connection, on loopback and with --link over a line of 50 ms and 100 Mbit.
scp and tar send all of it each time, so their first time stands for the second. Below each table: the share of the
first pull that this machine spends reading back, digesting and checking what came. Needs root on Linux and
testbed/install.sh.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from peers import WEIGHTS, Bench, Times, arguments, boxes_here, lines, note, quarters, table

from outlive.artifacts import structure
from outlive.runs import receipts, result
from outlive.runs.pull import pull
from outlive.sync import arrive, fetch
from outlive.wire.names import BoxFiles

PROOFS_WANTED = 0.05
"""Their share of a pull over the long line."""

SMALL = """\
import os
for number in range(%d):
    folder = "out/part%%03d" %% (number // 100)
    os.makedirs(folder, exist_ok=True)
    with open("%%s/sample%%05d.json" %% (folder, number), "w") as out:
        out.write('{"sample": %%d, "text": "%%s"}\\n' %% (number, os.urandom(200 + number %% 2000).hex()))
"""

LARGE = """\
os.makedirs("out", exist_ok=True)
for number, size in enumerate(%r):
    weights("out/step-%%d.safetensors" %% number, size << 20)
"""


def main() -> int:
    """Print the tables; 1 when an aim is missed."""
    args = arguments(__doc__)
    if not boxes_here():
        return 0
    sizes = quarters(args.mb)
    status = 0
    with lines(args) as benches:
        for bench in benches:
            name = f"{bench.name}: 4 checkpoints, {sum(sizes)} MB"
            status |= measure(bench, name, WEIGHTS + LARGE % (sizes,), 4, args.rounds)
            status |= measure(bench, f"{bench.name}: {args.files} files", SMALL % args.files, args.files, args.rounds)
    return status


def measure(bench: Bench, title: str, program: str, files: int, rounds: int) -> int:
    """Let a run write its result, then bring it home in every way."""
    client = bench.client
    (client.project / "make.py").write_text(program)
    run = client.run(client.job("make", "python", "make.py")).run
    status = client.until(run, lambda s: s["ended"] and not s["supervised"], 1800)
    assert status["state"] == "succeeded", status
    out = BoxFiles(client.box().root).run(run).work + "/out"
    times: dict[str, Times] = {state: {} for state in ("first", "unchanged")}
    share = levels = None
    for _ in range(rounds):
        goal = bench.scratch / "pulled"
        for state in times:
            with proofs() as spent:
                seconds, pulled = bench.ours(pull, client.home, run, to=goal / "ours")
            assert pulled.exit_code == 0 and len(pulled.entries) == files, pulled
            note(times[state], "pull", seconds)
            if state == "first":
                share, levels = sum(spent) / seconds, pulled.levels
            for who, command in bench.bring(out, goal / "copy").items():
                again = who != "rsync" and state != "first"
                note(times[state], who, times["first"][who][-1] if again else bench.peer(command))
        shutil.rmtree(goal)
    missed = max(table(title, state, "pull", found) for state, found in times.items())
    assert share, "nothing was timed: the proofs moved"
    said = f"    proofs: {100 * share:.1f} % of the first pull; levels {levels}"
    if bench.name != "loopback":
        said += f"   wanted: at most {100 * PROOFS_WANTED:.0f} %   {'ok' if share <= PROOFS_WANTED else 'too much'}"
        missed |= int(share > PROOFS_WANTED)
    print(said, flush=True)
    return missed


@contextlib.contextmanager
def proofs() -> Iterator[list[float]]:
    """Collect the seconds that this process spends on digests of what came and on looking into it.

    Large files are read back in a thread beside the transfer: its processor time counts in full, as if nothing else
    had gone on meanwhile.
    """
    spent: list[float] = []

    def timed(do: Callable[..., Any], clock: Callable[[], float] = time.perf_counter) -> Callable[..., Any]:
        def timing(*args: Any, **options: Any) -> Any:
            began = clock()
            try:
                return do(*args, **options)
            finally:
                spent.append(clock() - began)

        return timing

    def sha256(*data: Any) -> Any:
        return small(*data) if data else hashlib.sha256()

    small = timed(hashlib.sha256)
    with contextlib.ExitStack() as stack:
        for module, name in (
            (fetch, "digest_file"),
            (structure, "prove"),
            (result, "digest_file"),
            (receipts, "digest_from_storage"),
        ):
            stack.enter_context(mock.patch.object(module, name, timed(getattr(module, name))))
        stack.enter_context(mock.patch.object(arrive, "hashlib", types.SimpleNamespace(sha256=sha256)))
        behind = timed(arrive.Trail._run, time.thread_time)
        stack.enter_context(mock.patch.object(arrive.Trail, "_run", lambda trail: behind(trail)))
        yield spent


if __name__ == "__main__":
    sys.exit(main())
