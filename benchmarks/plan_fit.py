"""plan_fit.py --data FILE [--fit] [--leave-one-out]: the planner's constants against published measurements.

Without a flag: how far the constants stand from the data, by source. ``--fit`` prints better ones: a coordinate search
over the constants marked `fitted` in constants.yaml that speed depends on, of the mean over sources of the mean
absolute log ratio, held near where they start. ``--leave-one-out`` fits without each source and scores on it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

FITTED = {
    "matmul_a100": 0.05,
    "matmul_h100": 0.05,
    "matmul_h100_500w": 0.05,
    "attention_flash": 0.1,
    "attention_eager": 0.15,
    "small_rows": 0.3,
    "small_columns": 0.3,
    "fp8_gain": 0.15,
    "tensor_exposed": 0.2,
    "overlap": 0.1,
    "not_hidden": 0.3,
    "step_exposed": 0.2,
    "hop_us": 0.3,
}
"""Constants of speed that are fitted, and the relative step that the search begins with."""
PULL = 0.06
"""How much moving a constant by its own size (in log) costs: an ill-determined one stays where physics put it."""

Rows = list[tuple[str, Any, float]]


def load(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the data file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def speed_rows(rows: list[dict[str, Any]]) -> Rows:
    """Return source, request and measured tokens per second of the rows scored for speed."""
    from outlive.plan.request import from_mapping

    return [
        (row["source"]["id"], from_mapping(row["request"]), row["truth"]["tokens_per_second_per_gpu"])
        for row in rows
        if "throughput" in row["use"]
    ]


def ratios(rows: Rows, constants: dict[str, float]) -> list[tuple[str, float, float]]:
    """Return source, log of predicted over measured, and log of the range's factor."""
    from outlive.plan.speed import speed

    found = []
    for source, request, truth in rows:
        fast = speed(request, request.layout, constants)
        middle = fast.tokens_per_second_per_gpu
        found.append((source, math.log(middle / truth), math.log(fast.high / middle)))
    return found


def loss(rows: Rows, constants: dict[str, float], start: dict[str, float]) -> float:
    """Return the mean over sources of the mean absolute log ratio, and the pull."""
    by: dict[str, list[float]] = {}
    for source, value, _ in ratios(rows, constants):
        by.setdefault(source, []).append(abs(value))
    # a source with many rows says more, but not in proportion
    weights = {source: math.sqrt(len(values)) for source, values in by.items()}
    mean = sum(weights[s] * statistics.fmean(v) for s, v in by.items()) / sum(weights.values())
    return mean + PULL * sum(math.log(constants[name] / start[name]) ** 2 for name in FITTED)


def fit(rows: Rows, start: dict[str, float], rounds: int) -> dict[str, float]:
    """Return the constants after a coordinate search with halving steps."""
    now, best = dict(start), loss(rows, start, start)
    steps = dict(FITTED)
    for _ in range(rounds):
        for name in FITTED:
            moved = False
            for sign in (1, -1):
                trial = {**now, name: now[name] * math.exp(sign * steps[name])}
                if name == "overlap" and trial[name] > 1 or name.startswith("matmul") and trial[name] > 0.95:
                    continue
                value = loss(rows, trial, start)
                if value < best - 1e-6:
                    now, best, moved = trial, value, True
                    break
            steps[name] *= 1.3 if moved else 0.6
    return now


def report(title: str, values: list[tuple[str, float, float]]) -> None:
    """Print median and 90th percentile of the errors, how many lie inside the range, and the range's median width."""
    errors = sorted(abs(math.exp(value) - 1) for _, value, _ in values)
    inside = sum(abs(value) <= factor for _, value, factor in values) / len(values)
    width = math.exp(2 * statistics.median(factor for _, _, factor in values))
    print(
        f"{title:24} n={len(errors):3}  median {100 * statistics.median(errors):5.1f} %  "
        f"p90 {100 * errors[int(0.9 * (len(errors) - 1))]:5.1f} %  "
        f"{100 * inside:3.0f} % inside a range of {width:.2f}"
    )


UNFITTED = {"quantised_kept": 1.0, "adapter_copies": 0.0, "selective_kept": 0.5, "fragmentation": 0.05}
"""The fitted constants of memory at what their sources state. Each was looked at on one source only, so the errors with
these are those of a source that was left out."""


def memory_report(rows: list[dict[str, Any]], constants: dict[str, float]) -> None:
    """Print memory errors by source."""
    from outlive.plan.memory import memory
    from outlive.plan.request import from_mapping

    by: dict[str, list[tuple[str, float, float]]] = {}
    for row in rows:
        if "memory" not in row["use"]:
            continue
        request = from_mapping(row["request"])
        held = memory(request, request.layout, constants)
        kind = row["truth"].get("memory_kind")
        value = held.allocated if kind in ("allocated", "active") else held.total
        log = math.log(value / 1e9 / row["truth"]["memory_gb_per_gpu"])
        by.setdefault(row["source"]["id"], []).append(("", log, math.log(held.high / held.total)))
    for source, values in by.items():
        report(f"  {source}", values)
    report("  all", [value for values in by.values() for value in values])


def main() -> int:
    """Report, fit or cross-validate; return 0."""
    from outlive.plan.memory import constants

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="rows of measurements, one JSON object a line")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    args, _ = parser.parse_known_args()
    if args.data is None:
        print("plan_fit: no --data given: nothing to compare with")
        return 0
    rows = load(args.data)
    fast, start = speed_rows(rows), constants()
    print("memory, constants as they are")
    memory_report(rows, start)
    print("memory, nothing fitted")
    memory_report(rows, {**start, **UNFITTED})
    print("speed, constants as they are")
    now = ratios(fast, start)
    for source in sorted({value[0] for value in now}):
        report(f"  {source}", [value for value in now if value[0] == source])
    report("  all", now)
    if args.fit:
        found = fit(fast, start, args.rounds)
        for name in FITTED:
            print(f"  {name}: {start[name]:g} -> {found[name]:.4g}")
        report("fitted", ratios(fast, found))
    if args.leave_one_out:
        print("speed, each source predicted from the others")
        held: list[tuple[str, float, float]] = []
        for source in sorted({row[0] for row in fast}):
            found = fit([row for row in fast if row[0] != source], start, args.rounds)
            values = ratios([row for row in fast if row[0] == source], found)
            report(f"  {source}", values)
            held += values
        report("  all, held out", held)
    return 0


if __name__ == "__main__":
    sys.exit(main())
