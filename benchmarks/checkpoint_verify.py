"""checkpoint_verify.py [--mb N] [--json]: how fast a checkpoint is read back, over sha256sum and over reading alone.

Four equal files under /var/tmp. All three read from the page cache (the first read warms it) and, where the system
forgets pages on request, from the disk as well. Ratios are of times in one run: below 1 is faster than the other.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from outlive.checkpoints.store import Saved, Store
from outlive.checkpoints.verify import forget_cached, verify_files

FILES = 4
WANTED = 1.2
"""Times sha256sum: it is one process with a digest of its own, we are Python over the same instructions."""


def timed(action: Callable[[], object], before: Callable[[], object] = lambda: None, times: int = 3) -> float:
    """Return the least of some times in seconds."""
    least = float("inf")
    for _ in range(times):
        before()
        started = time.perf_counter()
        action()
        least = min(least, time.perf_counter() - started)
    return least


def read_all(paths: list[str]) -> None:
    """Read files and do nothing with them."""
    buffer = bytearray(1 << 20)
    for path in paths:
        with open(path, "rb", buffering=0) as handle:
            while handle.readinto(buffer):
                pass


def measure(saved: Saved) -> dict[str, float]:
    """Return seconds by name."""
    paths = [saved.file(entry.path) for entry in saved.record.files]

    def ours() -> None:
        assert verify_files(saved.path, saved.record).ok

    def theirs() -> None:
        subprocess.run(["sha256sum", *paths], check=True, stdout=subprocess.DEVNULL)

    def forget() -> None:
        for path in paths:
            forget_cached(path)

    read_all(paths)
    found = {"ours": timed(ours), "sha256sum": timed(theirs), "read": timed(lambda: read_all(paths))}
    found["ours, from disk"] = timed(ours, forget)
    found["read, from disk"] = timed(lambda: read_all(paths), forget)
    return found


def main() -> int:
    """Measure and print; exit 1 when what is wanted was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    home = tempfile.mkdtemp(prefix="outlive-verify-", dir="/var/tmp")
    try:
        with Store(os.path.join(home, "ckpt")) as store:
            writing = store.begin(1)
            block = os.urandom(1 << 20)
            for number in range(FILES):
                with writing.open(f"part-{number}.bin") as handle:
                    for _ in range(args.mb // FILES):
                        handle.write(block)
            found = measure(store.publish(writing))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    ratios = {
        "over sha256sum": found["ours"] / found["sha256sum"],
        "over reading": found["ours"] / found["read"],
        "over reading, from disk": found["ours, from disk"] / found["read, from disk"],
    }
    ok = ratios["over sha256sum"] <= WANTED
    if args.json:
        print(json.dumps({"seconds": found, "ratios": ratios, "wanted": {"over sha256sum": WANTED}, "ok": ok}))
        return 0 if ok else 1
    print(f"{args.mb} MB in {FILES} files, {os.cpu_count()} processors")
    for name, seconds in found.items():
        print(f"  {name:18} {seconds:7.2f} s  {args.mb / seconds:7.0f} MB/s")
    for name, ratio in ratios.items():
        print(f"  {name:26} {ratio:5.2f}" + (f"  wanted {WANTED} or less" if name == "over sha256sum" else ""))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
