"""checkpoint_kills.py [--kills N] [--every-call] [--json]: kill -9 a saving training, and see what is left each time.

A child trains (a chain of digests stands for the weights), saves every step through `outlive.checkpoints`, verifies,
copies to a durable directory, removes old ones, and is killed: at a random moment, or with --every-call before each
single system call of a save that changes something (a write is cut in its middle). After each kill: the index is whole,
the newest good checkpoint is there and holds exactly what was saved at its step, and is no older than the last save
that had returned. At the end the state equals that of a training that nobody disturbed. Standard library, Python 3.8.
"""
# ruff: noqa: UP006, UP031, UP035

import argparse
import hashlib
import json
import mmap
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from typing import Any, Dict, List, Tuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))

from outlive.checkpoints.index import read_index, survey
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import Saved, Store

PHASES = ("start", "resume", "train", "begin", "write", "publish", "verify", "copy", "prune", "close", "done")
SIZES = (100, 300000, 5000)
CHANGES = ("open", "mkdir", "write", "pwrite", "ftruncate", "fsync", "rename", "replace", "unlink", "rmdir", "makedirs")


class Seen:
    """What a child tells through shared memory: its phase, the last step whose save returned, system calls made."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 4096)
        self.clear()

    def clear(self) -> None:
        self.map[:24] = struct.pack("<qqq", 0, -1, 0)

    def phase(self, name: str) -> None:
        self.map[:8] = struct.pack("<q", PHASES.index(name))

    def saved(self, step: int) -> None:
        self.map[8:16] = struct.pack("<q", step)

    def called(self) -> int:
        calls = struct.unpack("<q", self.map[16:24])[0] + 1
        self.map[16:24] = struct.pack("<q", calls)
        return int(calls)

    def read(self) -> Tuple[str, int, int]:
        phase, saved, calls = struct.unpack("<qqq", self.map[:24])
        return PHASES[phase], saved, calls


def state_at(step: int, before: bytes) -> bytes:
    return hashlib.sha256(before + b"%d" % step).digest()


def files_of(state: bytes) -> Dict[str, bytes]:
    """Return the content of a checkpoint: a function of the state, so that any mixture is seen."""
    files = {}
    for number, size in enumerate(SIZES):
        block = hashlib.sha256(state + bytes([number])).digest()
        files["part/%d.bin" % number if number else "state.bin"] = (block * (size // 32 + 1))[:size] + state
    return files


def reference(total: int) -> List[bytes]:
    """Return the state after each step of an undisturbed training."""
    states = [b"seed"]
    for step in range(1, total + 1):
        states.append(state_at(step, states[-1]))
    return states


def store(home: str) -> Store:
    keep = Keep(latest=2, best=1, every_steps=50)
    return Store(os.path.join(home, "ckpt"), keep, os.path.join(home, "durable"), durable_keep=Keep(latest=2))


def load(saved: Saved) -> bytes:
    with open(saved.file("state.bin"), "rb") as handle:
        return handle.read()[-32:]


def train(home: str, total: int, seen: Seen) -> None:
    """Resume, and train to ``total``. Every start is this same function."""
    with store(home) as held:
        seen.phase("resume")
        saved = held.newest_good()
        step, state = (saved.record.step, load(saved)) if saved is not None else (0, b"seed")
        while step < total:
            seen.phase("train")
            step += 1
            state = state_at(step, state)
            seen.phase("begin")
            writing = held.begin(step)
            seen.phase("write")
            for name, data in files_of(state).items():
                writing.add_bytes(name, data)
            seen.phase("publish")
            done = held.publish(writing, metrics={"val_loss": 10.0 / (1 + step % 7)})
            seen.saved(step)
            seen.phase("verify")
            held.verify(done)
            seen.phase("copy")
            if step % 3 == 0:
                held.copy_out(done)
            seen.phase("prune")
            held.prune()
        seen.phase("close")
    seen.phase("done")


def look(home: str, states: List[bytes], at_least: int) -> str:
    """Return what is wrong after a kill, "" for nothing: as a stranger reads it, then as the next start does."""
    directory = os.path.join(home, "ckpt")
    if not os.path.isdir(directory):
        return "" if at_least < 1 else "the directory is gone"
    index, why = read_index(directory)
    if index is None and why != "missing":
        return "the index is %s" % why
    found, bad, _trace = survey(directory)
    if bad:
        return "%s: %s" % (bad[0].name, bad[0].why)
    newest = max((record.step for _name, record, _pinned in found), default=0)
    if newest < at_least:
        return "step %d had been saved, the newest there is %d" % (at_least, newest)
    for name, record, _pinned in found:
        for file, data in files_of(states[record.step]).items():
            with open(os.path.join(directory, name, file), "rb") as handle:
                if handle.read() != data:
                    return "%s of %s is not what was saved" % (file, name)
    with store(home) as held:
        saved = held.newest_good()
        if held.set_aside:
            return "%s was set aside: %s" % (held.set_aside[0].name, held.set_aside[0].why)
        if (saved.record.step if saved is not None else 0) != newest:
            return "the next start takes %s, the newest is step %d" % (saved and saved.name, newest)
        left = [name for name in os.listdir(directory) if name.startswith(".")]
        if left:
            return "left behind after the next start: %s" % left
    return ""


def armed_train(home: str, total: int, seen: Seen, at: int) -> None:
    arm(seen, at)
    train(home, total, seen)


def forked(work: Any, *args: Any) -> int:
    """Run ``work`` in a child that can only end by itself or by being killed. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work(*args)
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        os._exit(status)


def random_kills(home: str, kills: int, seed: int) -> Dict[str, Any]:
    """Kill at random moments until ``kills`` have struck; then let it end."""
    rng = random.Random(seed)
    total = 10 + kills * 4
    states = reference(total)
    seen = Seen()
    struck: Dict[str, int] = {}
    at_least, done = 0, 0
    wrong: List[str] = []
    longest_s = 0.05
    while done < kills:
        seen.clear()
        pid = forked(train, home, total, seen)
        time.sleep(rng.random() * longest_s)
        os.kill(pid, signal.SIGKILL)
        _pid, status = os.waitpid(pid, 0)
        phase, saved, _calls = seen.read()
        if not os.WIFSIGNALED(status):
            if os.WEXITSTATUS(status):
                wrong.append("the training failed by itself in %s" % phase)
                break
            if phase == "done":
                total += kills * 2 + 10  # it was finished before it was killed: give it more to do
                states = reference(total)
                continue
        if phase in ("start", "resume") and saved < 0 and longest_s < 2.0:
            longest_s *= 1.05  # a slow machine: nothing was reached yet
        at_least = max(at_least, saved)
        struck[phase] = struck.get(phase, 0) + 1
        said = look(home, states, at_least)
        if said:
            wrong.append("kill %d, in %s: %s" % (done, phase, said))
        done += 1
    seen.clear()
    if not wrong:
        _pid, status = os.waitpid(forked(train, home, total, seen), 0)
        with store(home) as held:
            last = held.newest_good()
        if status or last is None or last.record.step != total or load(last) != states[total]:
            wrong.append("the end is not that of an undisturbed training")
    return {"kills": done, "struck": struck, "wrong": wrong, "steps": total}


def every_call(home: str) -> Dict[str, Any]:
    """Kill before each system call that changes something, from the start of a save to the end of retention."""
    states = reference(20)
    seen = Seen()
    prepared = os.path.join(home, "prepared")
    os.makedirs(prepared)
    train(prepared, 7, Seen())
    struck: Dict[str, int] = {}
    wrong: List[str] = []
    at = 0
    while True:
        at += 1
        place = os.path.join(home, "at-%d" % at)
        shutil.copytree(prepared, place)
        seen.clear()
        _pid, status = os.waitpid(forked(armed_train, place, 9, seen, at), 0)
        phase, saved, _calls = seen.read()
        if not os.WIFSIGNALED(status):
            if status:
                wrong.append("call %d: the training failed by itself in %s" % (at, phase))
            break
        struck[phase] = struck.get(phase, 0) + 1
        said = look(place, states, max(saved, 7))
        if not said:
            train(place, 9, Seen())
            said = look(place, states, 9)
        if said:
            wrong.append("call %d, in %s: %s" % (at, phase, said))
        shutil.rmtree(place)
    return {"kills": at - 1, "struck": struck, "wrong": wrong, "steps": 9}


def arm(seen: Seen, at: int) -> None:
    """Make call number ``at`` that changes the file system the last one of this process; a write is half done."""

    def armed(name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not (len(args) > 1 and args[1] & os.O_CREAT):
                return real(*args, **kwargs)
            if seen.called() == at:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in CHANGES:
        setattr(os, name, armed(name, getattr(os, name)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--every-call", action="store_true")
    parser.add_argument("--home", help="where to work; a memory file system makes it faster and less like a disk")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    started = time.monotonic()
    home = tempfile.mkdtemp(prefix="outlive-kills-", dir=args.home)
    try:
        result = every_call(home) if args.every_call else random_kills(home, args.kills, args.seed)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    result["seconds"] = round(time.monotonic() - started, 1)
    if args.json:
        print(json.dumps(result))
        return 1 if result["wrong"] else 0
    print("kills %d, in %.1f s" % (result["kills"], result["seconds"]))
    for phase in PHASES:
        if phase in result["struck"]:
            print("  %-8s %5d" % (phase, result["struck"][phase]))
    print("wrong: %d" % len(result["wrong"]))
    for line in result["wrong"][:20]:
        print("  " + line)
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
