"""plan.py [--rounds N]: what one `outlive plan --json` costs over an empty Python, and a search over 10,000 layouts.

The two commands take turns, so that a slow moment falls on both. The search is timed in the process's own
CPU time: the layouts of several model and machine sizes, costed for memory and, where they fit, for speed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

WANTED = 8.0
SEARCH_S = 1.0
LAYOUTS = 10_000
REQUEST = """\
version: 1
model: {name: "Llama-3-8B"}
hardware: {gpu: "h100-80gb-sxm", gpus_per_node: 8, nodes: 1}
training: {seq_len: 8192, global_batch: 64}
"""
CODE = "import sys; from outlive.cli.main import main; sys.exit(main(['plan', '--json']))"


def once(argv: list[str], text: str, env: dict[str, str]) -> tuple[float, int]:
    """Return seconds and exit status of one run."""
    started = time.perf_counter()
    done = subprocess.run(argv, input=text, text=True, env=env, capture_output=True)
    return time.perf_counter() - started, done.returncode


def search() -> tuple[int, float]:
    """Return how many layouts were costed and the CPU seconds it took."""
    from outlive.plan.choose import plan
    from outlive.plan.request import from_mapping

    seen, started = 0, time.process_time()
    while seen < LAYOUTS:
        for name in ("Llama-3-8B", "Llama-2-70B", "Llama-3.1-405B"):
            for nodes in (1, 4, 16, 64):
                hardware = {"gpu": "h100-80gb-sxm", "gpus_per_node": 8, "nodes": nodes}
                training = {"seq_len": 32768, "global_batch": 512}
                seen += plan(
                    from_mapping({"model": {"name": name}, "hardware": hardware, "training": training})
                ).searched
    return seen, time.process_time() - started


def main() -> int:
    """Print the figures; return 1 if one is above what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent / "src")}
    commands = {"empty": [sys.executable, "-c", "pass"], "plan": [sys.executable, "-c", CODE]}
    times: dict[str, list[float]] = {name: [] for name in commands}
    broken = any(once(argv, REQUEST, env)[1] for argv in commands.values())
    for _ in range(rounds):
        for name, argv in commands.items():
            times[name].append(once(argv, REQUEST, env)[0])
    ratio = statistics.median(times["plan"]) / statistics.median(times["empty"])
    verdict = "does not run" if broken else "ok" if ratio <= WANTED else "too slow"
    print(f"  outlive plan --json  {ratio:5.2f} x an empty Python (wanted {WANTED:.0f})  {verdict}")
    seen, cpu_s = search()
    each = cpu_s / seen
    print(f"  a search over {LAYOUTS} layouts  {each * LAYOUTS:.2f} s of CPU (wanted {SEARCH_S:.0f})  {seen} costed")
    return int(broken or ratio > WANTED or each * LAYOUTS > SEARCH_S)


if __name__ == "__main__":
    sys.exit(main())
