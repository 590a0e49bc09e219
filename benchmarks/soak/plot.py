"""plot.py ROUNDS.jsonl [ROUNDS.jsonl] --out FILE.png: when a kill -9 was noticed, and when the training went on.

One line for each of the two, over all rounds of the soak that timed them. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

CURVES = {
    "detect_s": ("its end is on record", "#7f8c9b"),
    "recover_s": ("the training's next step", "#c0392b"),
}


def main() -> None:
    """Draw what the files hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    draw([json.loads(line) for path in args.rounds for line in path.read_text().splitlines()], args.out)


def draw(rounds: list[dict[str, Any]], out: Path) -> None:
    """Save the picture. ``rounds`` are the lines of the soak's record."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    killed = [r for r in rounds if r["recover_s"] is not None and r["detect_s"] is not None]
    figure, axes = pyplot.subplots(figsize=(8, 3.4))
    for key, (name, colour) in CURVES.items():
        values = sorted(r[key] for r in killed)
        shares = [100 * (at + 1) / len(values) for at in range(len(values))]
        middle = values[len(values) // 2]
        axes.step(values, shares, where="post", color=colour, label=f"{name}: median {middle:.1f} s")
    axes.set_xscale("log")
    ticks = [t for t in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if t <= 2 * max(r["recover_s"] for r in killed)]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"seconds after kill -9 of the work ({len(killed)} of {len(rounds)} rounds)")
    axes.set_ylabel("% of kills")
    axes.set_ylim(0, 100)
    axes.grid(axis="both", color="#e5e5e5")
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    main()
