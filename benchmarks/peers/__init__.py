"""What push and pull are measured beside: rsync, scp and tar, over the very connection that we use ourselves."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

WANTED = 0.95
"""Our speed over that of the best of them."""

Times = dict[str, list[float | None]]
"""Who -> seconds of each round; None when the limit was over before it was done."""


def arguments(about: str | None) -> argparse.Namespace:
    """The arguments of push.py and pull.py."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=200, help="size of the checkpoints")
    parser.add_argument("--files", type=int, default=5000, help="number of the small files")
    parser.add_argument("--full", action="store_true", help="2 GB and 50,000 files")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--link", action="store_true", help="over a line of 50 ms and 100 Mbit, too")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a peer may take")
    args = parser.parse_args()
    if args.full:
        args.mb, args.files = 2000, 50000
    return args


def boxes_here() -> bool:
    """Whether this machine can have boxes; says so if not."""
    if sys.platform.startswith("linux") and os.geteuid() == 0:
        return True
    print("  not measured: boxes need root on Linux")
    return False


@dataclass
class Bench:
    """One box, one client, one connection. ``scratch`` is here; ``top`` is on the box."""

    name: str
    client: Any
    socket: Path
    scratch: Path
    top: str
    limit_s: float

    @property
    def ssh(self) -> list[str]:
        return ["ssh", "-F", "none", "-o", f"ControlPath={self.socket}"]

    def there(self, command: str) -> None:
        """Run a shell command on the box."""
        subprocess.run([*self.ssh, "any", command], check=True, stdin=subprocess.DEVNULL)

    def send(self, source: Path, target: str) -> dict[str, str]:
        """The peers' shell commands that bring the content of a directory to one on the box."""
        ssh, to = shlex.join(self.ssh), shlex.quote(target)
        here = shlex.quote(str(source))
        unpack = shlex.quote(f"mkdir -p {to}-tar && tar -C {to}-tar -xf -")
        return {
            "rsync": f"rsync -a -e {shlex.quote(ssh)} {here}/ any:{to}-rsync/",
            "scp": f"scp -q -r -F none -o ControlPath={self.socket} {here} any:{to}-scp",
            "tar": f"tar -C {here} -cf - . | {ssh} any {unpack}",
        }

    def bring(self, source: str, target: Path) -> dict[str, str]:
        """The peers' shell commands that bring the content of a directory of the box to one here."""
        ssh, here = shlex.join(self.ssh), shlex.quote(str(target))
        there = shlex.quote(source)
        pack = shlex.quote(f"tar -C {there} -cf - .")
        return {
            "rsync": f"rsync -a -e {shlex.quote(ssh)} any:{there}/ {here}-rsync/",
            "scp": f"scp -q -r -F none -o ControlPath={self.socket} any:{there} {here}-scp",
            "tar": f"mkdir -p {here}-tar && {ssh} any {pack} | tar -C {here}-tar -xf -",
        }

    def ours(self, do: Callable[..., Any], *args: Any, **options: Any) -> tuple[float, Any]:
        """How long a call of ours takes, and what it returns. All disks are written back before it begins."""
        os.sync()
        began = time.perf_counter()
        found = do(*args, **options)
        return time.perf_counter() - began, found

    def peer(self, command: str) -> float | None:
        """How long a peer's command takes; None when the limit was over first."""
        os.sync()
        began = time.perf_counter()
        peer = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", command], stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            if peer.wait(self.limit_s):
                raise SystemExit(f"  this ended with {peer.returncode}: {command}")
            return time.perf_counter() - began
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(peer.pid, signal.SIGKILL)
            peer.wait()


@contextlib.contextmanager
def lines(args: argparse.Namespace) -> Iterator[Iterator[Bench]]:
    """Loopback, and with ``--link`` the long line; each with a box of its own, ended when the next one is asked for."""
    runtime = Path(tempfile.mkdtemp(prefix="o-", dir="/tmp"))
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    benches = _lines(args, runtime)
    try:
        yield benches
    finally:
        benches.close()
        os.environ.pop("XDG_RUNTIME_DIR")
        if before is not None:
            os.environ["XDG_RUNTIME_DIR"] = before
        shutil.rmtree(runtime, ignore_errors=True)


def _lines(args: argparse.Namespace, runtime: Path) -> Any:
    from servers.boxes import Bed
    from servers.links import Wan

    # a peer's copy each, ours, and what ours has while it puts an archive together
    disk = f"ext4:{8 * args.mb + args.files // 4 + 300}:{16 * args.files + 20000}"
    with contextlib.ExitStack() as stack:
        bed = Bed()
        stack.callback(bed.close)
        for name in ["loopback", "50 ms, 100 Mbit"] if args.link else ["loopback"]:
            options: dict[str, Any] = {"disk": disk, "memory_mb": 2048}
            if name != "loopback":
                line = Wan()
                stack.callback(line.close)
                line.set(delay_ms=25, rate_mbit=100)
                options.update(netns=line.netns, address=line.far_ip)
            box = bed.up(**options)
            with tempfile.TemporaryDirectory(prefix="outlive-bench-") as scratch:
                yield from _bench(name, box, Path(scratch), runtime, args.limit)
            bed.down(box)


def _bench(name: str, box: Any, scratch: Path, runtime: Path, limit_s: float) -> Iterator[Bench]:
    from servers.clients import Client

    before = set(runtime.rglob("*"))
    client = Client(scratch / "client")
    client.use_key(box.key)
    client.up(box)
    (socket,) = [p for p in set(runtime.rglob("*")) - before if p.is_socket()]
    bench = Bench(name, client, socket, scratch, client.box().root.rstrip("/") + "/peers", limit_s)
    bench.there(f"mkdir -p {shlex.quote(bench.top)}/unpacked")
    try:
        yield bench
    finally:
        end_connection(socket)


def end_connection(socket: Path) -> None:
    """End the shared connection behind a socket."""
    subprocess.run(["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "any"], capture_output=True)


def note(times: Times, who: str, seconds: float | None) -> None:
    """Add one measurement."""
    times.setdefault(who, []).append(seconds)


def table(title: str, state: str, ours: str, times: Times) -> int:
    """Print one line: our speed over the best peer's. 1 when the aim is missed."""
    middle: dict[str, float | None] = {}
    for who, values in times.items():
        done = [v for v in values if v is not None]
        middle[who] = statistics.median(done) if len(done) == len(values) else None
    mine = middle.pop(ours)
    best = min((v for v in middle.values() if v is not None), default=None)
    assert mine is not None
    ratio = best / mine if best is not None else float("inf")
    said = "  ".join(f"{who} {'over the limit' if v is None else f'{v:.2f} s'}" for who, v in middle.items())
    print(
        f"  {title}, {state:10} {ratio:6.2f} x the best   {ours} {mine:.2f} s  {said}   wanted: at least {WANTED} x   "
        + ("ok" if ratio >= WANTED else "too slow"),
        flush=True,
    )
    return int(ratio < WANTED)


def project(top: Path, files: int, seed: int) -> int:
    """Make a tree of small text files, a hundred in a directory; return its bytes."""
    dice, size = random.Random(seed), 0
    for number in range(files):
        path = top / f"part{number // 100:03}" / f"file{number:05}.py"
        if number % 100 == 0:
            path.parent.mkdir(parents=True)
        text = "".join(
            f"value_{dice.randrange(100)} = 0x{dice.getrandbits(48):x}\n" for _ in range(dice.randrange(10, 200))
        )
        path.write_text(text)
        size += len(text)
    return size


WEIGHTS = """\
import json, os, sys
def weights(path, size):
    # finite numbers that do not compress: the top bit of each exponent is cleared
    block = 1 << 20
    mask = int.from_bytes(b"\\xff\\xff\\xff\\xbf" * (block // 4), "little")
    head = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        for at in range(0, size, block):
            data = int.from_bytes(os.urandom(block), "little") & mask
            out.write(data.to_bytes(block, "little"))
"""
"""Writes a safetensors file of a whole number of MB. Runs here and on boxes."""


def checkpoints(top: Path, megabytes: int) -> None:
    """Make four checkpoints that weigh ``megabytes`` together."""
    top.mkdir(parents=True)
    scope: dict[str, Any] = {}
    exec(WEIGHTS, scope)
    for number, size in enumerate(quarters(megabytes)):
        scope["weights"](top / f"step-{number}.safetensors", size << 20)


def quarters(megabytes: int) -> list[int]:
    """Sizes of four files of whole MB, at least one each."""
    return [max(1, (megabytes + n) // 4) for n in range(4)]
