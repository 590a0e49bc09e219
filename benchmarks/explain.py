"""explain.py [--rounds N] [--json]: does `outlive explain` find the page, and what does asking cost?

The questions are those of tests/recorded/explain: written before the words that the search knows, half of them kept
away from tuning. A question counts as answered when an accepted page is among the first three.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = ROOT / "tests" / "recorded" / "explain" / "questions.jsonl"
ASK = "import sys; from outlive.cli.main import main; sys.exit(main({words!r}))"
WANTED_HITS = 0.85
WANTED_RATIO = 5.0


def hits() -> dict[str, tuple[float, int]]:
    """Return for each half and language the share of questions answered, and how many there are."""
    from outlive.advice.search import Index

    index = Index.load()
    answered: dict[str, list[bool]] = defaultdict(list)
    for line in QUESTIONS.read_text("utf-8").splitlines():
        question = json.loads(line)
        found, weak = index.search(question["q"], 3)
        right = any({hit.id, *hit.source_ids} & set(question["accept"]) for hit in found)
        answered[f"{question['half']} {question['lang']}"].append(right)
        answered[f"{question['half']} called weak"].append(weak)
    return {name: (statistics.fmean(all), len(all)) for name, all in sorted(answered.items())}


def cost(rounds: int) -> dict[str, float]:
    """Return the medians in seconds; the commands take turns, so that a slow moment falls on all of them."""
    commands = {
        "empty python": [sys.executable, "-c", "pass"],
        "explain WORDS": [sys.executable, "-c", ASK.format(words=["explain", "no space left but df shows free space"])],
        "explain in Chinese": [sys.executable, "-c", ASK.format(words=["explain", "多卡训练卡住不动"])],
        "explain ID": [sys.executable, "-c", ASK.format(words=["explain", "U7"])],
    }
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name, argv in commands.items():
            started = time.perf_counter()
            subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
            took[name].append(time.perf_counter() - started)
    return {name: statistics.median(all) for name, all in took.items()}


def main() -> int:
    """Print both tables; return 1 if something is below what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    found, seconds = hits(), cost(args.rounds)
    empty = seconds["empty python"]
    ratios = {name: value / empty for name, value in seconds.items() if name != "empty python"}
    bad = [name for name, (share, _) in found.items() if "weak" not in name and share < WANTED_HITS]
    bad += [name for name, ratio in ratios.items() if ratio > WANTED_RATIO]
    if args.json:
        print(json.dumps({"hits_at_3": found, "seconds": seconds, "over_empty_python": ratios, "missed": bad}))
        return 1 if bad else 0
    for name, (share, count) in found.items():
        print(f"{name:22} {share:6.1%} of {count}")
    print(f"{'empty python':22} {1000 * empty:6.1f} ms")
    for name, ratio in ratios.items():
        print(f"{name:22} {1000 * seconds[name]:6.1f} ms  {ratio:4.1f}x")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
