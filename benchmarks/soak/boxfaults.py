"""The faults of boxes that are reached over ssh, by name; like ``faults.py``, and some of those as well."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import faults as local
from rounds import CARGO, STEPS, Case, points
from sites import Reach

from outlive import errors
from outlive.runs.ask import ask, stop
from outlive.runs.home import Home
from outlive.runs.move import move
from outlive.runs.pull import pull
from outlive.runs.watch import once
from outlive.wire.journal import read_all


def _some(case: Case, most: int) -> int:
    """A number of bytes, small ones as likely as large ones."""
    return int(600 * (most / 600) ** case.rng.random())


# ---- the line -------------------------------------------------------------------------------------


def cut_in_push(case: Case) -> None:
    """connection cut at random bytes in a push, which is typed again"""


def _cut_in_push(case: Case) -> None:
    reach = Reach(case)
    _cargo(case)
    for _ in range(2):
        reach.site.link.set(**{case.rng.choice(("cut_up", "cut_up", "cut_down")): _some(case, 400_000)})
        healer = os.fork()  # a push tries again for half a minute: now and then it gets through
        if healer == 0:
            try:
                time.sleep(1 + 6 * case.rng.random())
                reach.site.heal()
            finally:
                os._exit(0)
        reach.attempt(case.start)
        os.waitpid(healer, 0)
    case.start()


cut_in_push.before_start = _cut_in_push  # type: ignore[attr-defined]


def _cargo(case: Case) -> None:
    """Something in the project that takes its time on the way."""
    (case.job.project / CARGO).write_bytes(case.rng.randbytes(300_000))


def cut_in_log(case: Case) -> None:
    """connection cut at random bytes while the log is followed"""
    reach = Reach(case)
    for _ in range(3):
        reach.site.heal()
        reach.site.link.set(**{case.rng.choice(("cut_up", "cut_down")): _some(case, 30_000)})
        reach.look(20.0)
    reach.site.heal()
    reach.settle()


cut_in_log.mode = "talks"  # type: ignore[attr-defined]


def cut_in_pull(case: Case) -> None:
    """connection cut at random bytes in pulls, of the live run and of the ended one"""

    def pulls(target: Path) -> None:
        reach = Reach(case)
        for _ in range(2):
            reach.site.heal()
            reach.site.link.set(**{case.rng.choice(("cut_up", "cut_down", "cut_down")): _some(case, 60_000)})
            reach.pull(target)
        reach.site.heal()
        reach.settle()

    pulls(case.bench.base / "results" / case.run)
    case.before_pull = pulls


def _silence(case: Case, begin: Callable[[Reach], None], end: Callable[[Reach], None]) -> None:
    reach = Reach(case)
    begin(reach)
    try:
        reach.look(case.rng.choice((1.0, 2.0, 3.0)))
        time.sleep(case.rng.random())
    finally:
        end(reach)
    reach.settle()


def silent_line(case: Case) -> None:
    """the line passes nothing for a while, then everything that was kept"""
    _silence(case, lambda reach: reach.site.link.set(stall=1), lambda reach: reach.site.link.set(stall=0))


def dropped_up(case: Case) -> None:
    """what goes to the box is dropped silently for a while"""
    _silence(case, lambda reach: reach.site.link.set(drop_up=1), lambda reach: reach.site.heal())


def dropped_down(case: Case) -> None:
    """what comes from the box is dropped silently for a while"""
    _silence(case, lambda reach: reach.site.link.set(drop_down=1), lambda reach: reach.site.heal())


def silent_in_pull(case: Case) -> None:
    """the line goes silent in the middle of a pull, then breaks"""

    def pulls(target: Path) -> None:
        reach = Reach(case)
        reach.site.heal()
        breaker = os.fork()
        if breaker == 0:
            try:
                time.sleep(0.3 + case.rng.random())
                reach.site.link.set(stall=1)
                time.sleep(1.5)
                reach.site.heal()
            finally:
                os._exit(0)
        reach.pull(target)
        os.waitpid(breaker, 0)
        reach.site.heal()
        reach.settle()

    case.before_pull = pulls


def frozen_sshd(case: Case) -> None:
    """sshd stands still after the login (SIGSTOP), and goes on"""
    _silence(case, lambda reach: reach.site.box.freeze(), lambda reach: reach.site.box.thaw())


# ---- the client -----------------------------------------------------------------------------------


def master_killed(case: Case) -> None:
    """kill -9 of the shared ssh connection while a client follows the log"""
    reach = Reach(case)
    for _ in range(2):
        follower = os.fork()
        if follower == 0:
            try:
                for _ in range(3):
                    reach.look(20.0)
            finally:
                os._exit(0)
        time.sleep(case.rng.random())
        local._kill(*reach.bench.masters())
        os.waitpid(follower, 0)
    reach.settle()


def master_stale(case: Case) -> None:
    """the shared ssh connection looks alive and is not (SIGSTOP)"""
    reach = Reach(case)
    reach.look(20.0)
    pids = reach.bench.masters()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        if not reach.look(60.0):
            case.found.broken.append("a stale connection kept the box from being looked at")
        case.found.detect_s = round(time.monotonic() - began, 3)
    finally:
        local._kill(*pids)
    reach.settle()


def client_dies_pushing(case: Case) -> None:
    """the client is killed at random bytes of a push, which is typed again"""


def _die_pushing(case: Case) -> None:
    reach = Reach(case)
    _cargo(case)
    for _ in range(2):
        before, most = reach.site.link.stats()["up"], _some(case, 400_000)
        case.client(case.start, 30.0, lambda b=before, m=most: reach.site.link.stats()["up"] - b > m)  # type: ignore[misc]
    case.start()


client_dies_pushing.before_start = _die_pushing  # type: ignore[attr-defined]


def client_dies_pulling(case: Case) -> None:
    """the client is killed at random bytes of a pull, which is typed again"""
    reach = Reach(case)
    target = case.bench.base / "results" / case.run
    for _ in range(2):
        before, most = reach.site.link.stats()["down"], _some(case, 60_000)
        case.client(
            lambda: pull(case.home, case.run, to=target),
            30.0,
            lambda b=before, m=most: reach.site.link.stats()["down"] - b > m,  # type: ignore[misc]
        )


def two_clients(case: Case) -> None:
    """two clients with a state of their own follow, pull and are asked about one box"""
    reach = Reach(case)
    other = Home(case.bench.base / "client-2", reach.bench.config)
    reach.bench.adopt(other).close()
    follower = os.fork()
    if follower == 0:
        try:
            for _ in range(3):
                once(other, other.run_of(case.run))
            pull(other, case.run, to=case.bench.base / "live-2" / case.run)
        finally:
            os._exit(0)
    for _ in range(3):
        case.look()
    os.waitpid(follower, 0)

    def both(target: Path) -> None:
        got = pull(other, case.run, to=case.bench.base / "results-2" / case.run)
        if got.delivery != "proved":
            case.found.broken.append(f"the second client's pull: {got.delivery} {got.wrong} {got.refuted}")
        case.same_lines(other)

    case.after_pull = both


# ---- the box --------------------------------------------------------------------------------------


def box_dies(case: Case) -> None:
    """the box dies at once and comes back with its disk"""
    reach = Reach(case)
    case.hurt("attempt")
    reach.site.box.kill()
    reach.look(5.0)
    reach.site.box.start()
    reach.settle()


def box_dies_in_pull(case: Case) -> None:
    """the box dies at once in the middle of a pull and comes back with its disk"""

    def pulls(target: Path) -> None:
        reach = Reach(case)
        killer = os.fork()
        if killer == 0:
            try:
                time.sleep(case.rng.random() * 1.5)
                reach.site.box.kill()
            finally:
                os._exit(0)
        reach.pull(target)
        os.waitpid(killer, 0)
        reach.site.box.start()
        reach.settle()

    pulls(case.bench.base / "results" / case.run)
    if case.rng.random() < 0.5:
        case.before_pull = pulls


def _crowded(case: Case, crowd: Callable[[Reach], None]) -> None:
    reach = Reach(case)
    crowd(reach)
    try:
        end = time.monotonic() + 4 + 4 * case.rng.random()
        while time.monotonic() < end and case.look()["state"] != "waiting":
            time.sleep(0.5)
    finally:
        reach.site.box.relieve_disk()
    case.may_stop = True


def disk_full(case: Case) -> None:
    """a stranger fills the disk while checkpoints are written, and frees it"""
    _crowded(case, lambda reach: reach.site.box.fill_disk())


def inodes_gone(case: Case) -> None:
    """a stranger takes all inodes while checkpoints are written, and frees them"""
    _crowded(case, lambda reach: reach.site.box.exhaust_inodes())


disk_full.mode = inodes_gone.mode = "slow"  # type: ignore[attr-defined]


def moved(case: Case) -> None:
    """the box dies, the run goes on on another one, and the old box comes back"""
    reach = Reach(case)
    first, old = reach.site, case.run
    case.reach(12)
    pull(case.home, old, to=case.bench.base / "mirror" / old, mirror=True)
    second = reach.bench.another("two")
    first.box.kill()
    done = move(case.home, case.job, old, second.place)
    if not done.lineage or (done.lineage["step"] or 0) < 5:
        case.found.lost.append(f"moved without the checkpoints that are here: {done.lineage}")
    reach.bench.use(second)
    case.run = done.run
    case.reach(STEPS)
    first.box.start()
    end = time.monotonic() + 120
    while True:
        seen = once(case.home, case.home.run_of(old))
        if seen.status is not None and seen.status["ended"]:
            break
        if time.monotonic() > end:
            raise errors.CheckFailed(f"the old attempt does not end: {seen.status}")
        time.sleep(0.5)
    begun = [r for r in read_all(first.files.run(old).journal) if r["k"] == "attempt"]
    over = seen.status["state"] == "stopped" or len(points(first.files.run(old))) == STEPS  # it was through before
    if not over or not seen.status["fenced"] or len(begun) != 1:
        case.found.false_words.append(f"the old attempt went on after its run had moved: {seen.status}")
    reach.bench.spoilt = True  # what is left on the old box is not proved here, so it is not purged


moved.mode = "slow"  # type: ignore[attr-defined]


# ---- the work -------------------------------------------------------------------------------------


def deaf_to_signals(case: Case) -> None:
    """work that ignores SIGTERM is stopped, and asked to go on"""
    case.may_stop = True
    stop(case.home, case.record, grace_s=0.5, wait_s=120.0)
    status = case.look()
    if status["work_alive"] or not status["ended"] or status["state"] not in ("stopped", "succeeded"):
        case.found.false_words.append(f"after a stop: {status['state']}, work alive: {status['work_alive']}")
    _again(case)


deaf_to_signals.mode = "deaf"  # type: ignore[attr-defined]


def _again(case: Case) -> None:
    with contextlib.suppress(errors.OutliveError):
        ask(case.home, case.record, "retry", wait_s=20.0)


def out_of_memory(case: Case) -> None:
    """the kernel kills the work for memory (its counter); asked to go on, it does"""
    case.may_stop = True
    end = time.monotonic() + 120
    while not case.look()["ended"]:
        if time.monotonic() > end:
            raise errors.CheckFailed("the end of the killed work was not noticed")
        time.sleep(0.5)
    classes = [r["outcome"]["cls"] for r in read_all(case.files.journal) if r["k"] == "attempt_ended"]
    if classes[:1] != ["oom_host"]:
        case.found.false_words.append(f"killed for memory, told as {classes}")
    _again(case)


out_of_memory.mode = "hog"  # type: ignore[attr-defined]


def liar(case: Case) -> None:
    """work that prints "done" and wrote nothing"""
    case.no_result = True


liar.mode = "liar"  # type: ignore[attr-defined]


def mute(case: Case) -> None:
    """work that exits 0 without its result"""
    case.no_result = True


mute.mode = "mute"  # type: ignore[attr-defined]


def flood(case: Case) -> None:
    """six megabytes of log at once, followed over a line that is cut"""
    reach = Reach(case)
    case.reach(13)
    reach.site.link.set(cut_down=case.rng.randrange(100_000, 3_000_000))
    reach.look(20.0)
    reach.site.heal()
    reach.settle()


flood.mode = "flood"  # type: ignore[attr-defined]


SHARED = (
    "adopted",
    "kill_all",
    "kill_in_save",
    "kill_keeper",
    "kill_keeper_and_supervisor",
    "kill_supervisor",
    "kill_supervisor_at_the_end",
    "kill_work",
    "kill_work_and_keeper",
    "kill_work_and_supervisor",
    "stopped_by_two",
    "two_clients_look",
)
"""Faults of ``faults.py`` that are played here as well."""

FAULTS: dict[str, Callable[[Case], None]] = {
    name: value
    for name, value in sorted({**globals(), **{n: local.FAULTS[n] for n in SHARED}}.items())
    if callable(value)
    and getattr(value, "__module__", "") in (__name__, local.__name__)
    and value.__doc__
    and name[0] != "_"
}
