"""resume.py [--rounds N]: from kill -9 of the work until it goes on, and how long its death stays unseen.

The time until the next attempt's first instruction is the part of a restart that is ours; what the work itself needs
until its first step comes on top and is the same with and without us. The end of the dead attempt is judged, and its
last checkpoint proved, in between. A dead run is detected when its end is on record on the box; a client sees it with
its next look. A dead box is detected by a client when a look says that it does not answer.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from onebox import OneBox, boxes_here, load, one_box, ssh_box

from outlive.runs import demo_work
from outlive.runs.watch import Seen, follow
from outlive.wire.journal import read_all

WANTED_S = 1.0
POLLS_WANTED = 2
POLL_S = 2.0
"""How often `watch` looks."""
LIMIT_S = 120.0
WORK = """
import time
while True:
    print("step %d loss 1.0" % (time.time() * 20), flush=True)
    time.sleep(0.05)
"""
"""Its steps go on growing over restarts: work that dies twice at the same step is rightly not started again."""
RETRY = {"retry_wait_s": 0.0, "retry_max": 10**6}


def main() -> int:
    """Print the table; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with one_box(WORK, **RETRY) as box:
        detect, again = measure(box, rounds)
        told, polls = dead_run(box, rounds)
    line("a dead run: its end is on record", detect)
    line("the next attempt's first instruction", again, f"wanted: at most {WANTED_S:.0f} s")
    line("a dead run: `watch` says so", told, f"looks: {words(polls)}   wanted: at most {POLLS_WANTED}")
    ok = statistics.median(again) <= WANTED_S and statistics.median(polls) <= POLLS_WANTED
    if boxes_here():
        with ssh_box(WORK, **RETRY) as box:
            told, polls = dead_box(box, rounds)
        line("a dead box: `watch` says so", told, f"looks: {words(polls)}   wanted: at most {POLLS_WANTED}")
        ok = ok and statistics.median(polls) <= POLLS_WANTED
    print(f"  {rounds} rounds, {load()}   {'ok' if ok else 'too slow'}")
    return 0 if ok else 1


def line(name: str, values: list[float], more: str = "") -> None:
    """Print one line of the table."""
    print(f"  {name:38} median {statistics.median(values):5.2f} s   worst {max(values):5.2f} s   {more}")


def words(polls: list[int]) -> str:
    """Return how many looks it took, as text."""
    return f"median {statistics.median(polls):g}, worst {max(polls)}"


def measure(box: OneBox, rounds: int) -> tuple[list[float], list[float]]:
    """Kill so often; return seconds to the record of the end and to the next start."""
    files = box.files
    detect, again = [], []
    for _ in range(rounds):
        time.sleep(2.0)
        number, _pids = demo_work.kill_work(files)
        killed = time.time()
        first = files.attempt(number + 1).work
        while not os.path.exists(first):
            if time.time() > killed + LIMIT_S:
                raise SystemExit("the next attempt did not start; nothing was measured")
            time.sleep(0.002)
        again.append(Path(first).stat().st_mtime - killed)
        ended = next(r for r in read_all(files.journal) if r["k"] == "attempt_ended" and r["attempt"] == number)
        detect.append(ended["w"] - killed)
    return detect, again


def dead_run(box: OneBox, rounds: int) -> tuple[list[float], list[int]]:
    """Kill the work below a watcher. Returns seconds, and its looks after the kill until one knows of the end."""
    told, polls = [], []
    for _ in range(rounds):
        time.sleep(2.0)
        watcher = Watcher(box)
        watcher.look()
        number, _pids = demo_work.kill_work(box.files)
        killed = time.monotonic()
        watcher.looks = 0
        while not any(r["k"] == "attempt_ended" and r["attempt"] == number for r in watcher.look().journal):
            pass
        told.append(time.monotonic() - killed)
        polls.append(watcher.looks)
    return told, polls


def dead_box(box: OneBox, rounds: int) -> tuple[list[float], list[int]]:
    """End all of a box below a watcher. Returns seconds, and its looks after that until one gets no answer."""
    told, polls = [], []
    for _ in range(rounds):
        watcher = Watcher(box)
        while not watcher.look().reachable:
            pass
        box.shape.kill()
        killed = time.monotonic()
        watcher.looks = 0
        while watcher.look().reachable:
            pass
        told.append(time.monotonic() - killed)
        polls.append(watcher.looks)
        box.shape.start()
    return told, polls


class Watcher:
    """`watch`, one look at a time."""

    def __init__(self, box: OneBox) -> None:
        self.looks = 0
        self._seen = follow(box.home, box.home.run_of(box.name), every_s=POLL_S, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.looks += 1
        time.sleep(min(seconds, POLL_S))

    def look(self) -> Seen:
        """Return the next look that has something to say."""
        return next(self._seen)


if __name__ == "__main__":
    sys.exit(main())
