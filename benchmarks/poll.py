"""poll.py [--rounds N]: a poll that finds nothing new, over `ssh host true` on the same connection: bytes and time.

Beside it, without an aim: the same poll answered in full, as it is when something is new. On an sshd box of the test
bed, on loopback and over a line of 50 ms. Needs root on Linux and testbed/install.sh.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

REST_S = 3.0
"""What has changed within two seconds is answered in full."""
WANTED = {"loopback": 2.5, "50 ms": 1.3}


def main() -> int:
    """Print the table; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        print("  not measured: boxes need root on Linux")
        return 0
    from servers.boxes import Bed
    from servers.links import Wan

    status = 0
    runtime = Path(tempfile.mkdtemp(prefix="o-", dir="/tmp"))
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    bed, line = Bed(), Wan()
    try:
        status |= measure("loopback", bed.up(), runtime, rounds)
        line.set(delay_ms=25)
        status |= measure("50 ms", bed.up(netns=line.netns, address=line.far_ip), runtime, rounds)
    finally:
        bed.close()
        line.close()
        shutil.rmtree(runtime, ignore_errors=True)
    return status


def measure(name: str, box: Any, runtime: Path, rounds: int) -> int:
    """Print one line; return whether its aim is missed."""
    from servers.clients import Client
    from servers.links import CutLink

    before = set(runtime.rglob("*"))
    with tempfile.TemporaryDirectory(prefix="outlive-poll-") as base:
        link = CutLink(box.address, box.port)
        client = Client(Path(base))
        client.use_key(box.key)
        client.up(box, f"ssh://{box.user}@{link.address}:{link.port}")
        run = client.run(client.job(env={"LAST": "3", "STEP_S": "0.01"})).run
        client.until(run, lambda s: s["ended"] and not s["supervised"], 120)
        (socket,) = [p for p in set(runtime.rglob("*")) - before if p.is_socket()]
        bare = ["ssh", "-F", "none", "-o", f"ControlPath={socket}", "any", "true"]
        time.sleep(REST_S)
        client.once(run, wake_it=False)
        kept = client.home.dir / "polls"

        def in_full() -> None:
            aside = kept.rename(kept.with_name("aside"))
            client.once(run, wake_it=False)
            shutil.rmtree(kept)
            aside.rename(kept)

        verbs: dict[str, Callable[[], object]] = {
            "ssh": lambda: subprocess.run(bare, check=True, stdin=subprocess.DEVNULL),
            "poll": lambda: client.once(run, wake_it=False),
            "full": in_full,
        }
        seconds: dict[str, list[float]] = {verb: [] for verb in verbs}
        size: dict[str, list[int]] = {verb: [] for verb in verbs}
        for _ in range(rounds):
            for verb, do in verbs.items():
                stats, began = link.stats(), time.perf_counter()
                do()
                seconds[verb].append(time.perf_counter() - began)
                now = link.stats()
                size[verb].append(now["up"] + now["down"] - stats["up"] - stats["down"])
        subprocess.run(["ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "any"], capture_output=True)
        link.close()
    took = {verb: statistics.median(values) for verb, values in seconds.items()}
    bytes_ = {verb: statistics.median(values) for verb, values in size.items()}
    ratio, full = took["poll"] / took["ssh"], took["full"] / took["ssh"]
    print(
        f"  {name:9} {ratio:5.2f} x the time ({1000 * took['poll']:.0f} over {1000 * took['ssh']:.0f} ms here), "
        f"{bytes_['poll']:.0f} over {bytes_['ssh']:.0f} bytes; in full {full:.2f} x, {bytes_['full']:.0f} bytes   "
        f"wanted: at most {WANTED[name]} x   " + ("ok" if ratio <= WANTED[name] else "too slow")
    )
    return int(ratio > WANTED[name])


if __name__ == "__main__":
    sys.exit(main())
