"""soak [--rounds N] [--seed S] [--bench local|boxes|both]: real runs, one random fault each; a table of what was lost.

    python benchmarks/soak --rounds 200

Two benches, N rounds each: a box of this machine (`local`), and real sshd boxes of the test bed (`boxes`: Linux, root).
Seeded: round K of seed S is the same fault at the same step, whatever ran before it. Resumable: rounds stand one a line
in DIR/rounds-S.jsonl and DIR/rounds-boxes-S.jsonl, and those that are there are not played again. Exit 1 when anything
was lost, said wrongly, doubled or destroyed unproved.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

COLUMNS = ("lost", "false_words", "lines", "unproved_destroys", "broken")
GIVE_UP = 4
"""After so many more rounds that broke as the one before, it is the machine or the tree that is broken."""
WORDS = ("results lost", "false words", "lines lost or doubled", "unproved destroys", "other")


def main() -> int:
    """Play the rounds that are missing, print the table, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--bench", choices=("local", "boxes", "both"), default="both" if can_box() else "local")
    parser.add_argument("--only", default="", help="one fault, by the name of its function")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "outlive-soak")
    parser.add_argument("--table", action="store_true", help="print the table of what is there, play nothing")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rounds = []
    for kind in ("local", "boxes") if args.bench == "both" else (args.bench,):
        words = [kind] * (kind != "local") + [str(args.seed)] + [args.only] * bool(args.only)
        record = args.out / f"rounds-{'-'.join(words)}.jsonl"
        if not args.table and (not args.only or args.only in faults_of(kind)):
            known = {r["number"] for r in read(record)}
            play_all(args, kind, record, [n for n in range(args.rounds) if n not in known])
        rounds += [r for r in read(record) if r["number"] < args.rounds]
    return table(rounds)


def can_box() -> bool:
    """Whether boxes of the test bed can run here."""
    return sys.platform.startswith("linux") and os.geteuid() == 0


def faults_of(kind: str) -> dict[str, Any]:
    """Return the faults of a bench by name."""
    if kind == "boxes":
        from boxfaults import FAULTS as of_boxes

        return dict(of_boxes)
    from faults import FAULTS

    return dict(FAULTS)


def read(record: Path) -> list[dict[str, Any]]:
    """Return the rounds that were played."""
    try:
        lines = record.read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted((json.loads(line) for line in lines if line.endswith("}")), key=lambda r: int(r["number"]))


def play_all(args: argparse.Namespace, kind: str, record: Path, todo: list[int]) -> None:
    """Share the rounds out to processes, each with boxes of its own."""
    children = []
    for job in range(min(args.jobs, len(todo))):
        pid = os.fork()
        if pid == 0:
            try:
                play_some(args, kind, record, todo[job :: args.jobs], job)
                os._exit(0)
            except BaseException:  # the child of a fork must never come back into the parent's code
                import traceback

                traceback.print_exc()
                os._exit(1)
        children.append(pid)
    try:
        for pid in children:
            os.waitpid(pid, 0)
    except KeyboardInterrupt:
        for pid in children:
            os.kill(pid, signal.SIGTERM)


def play_some(args: argparse.Namespace, kind: str, record: Path, todo: list[int], job: int) -> None:
    from rounds import PER_BOX, Bench, Round, play

    make = Bench
    if kind == "boxes":
        from sites import Boxes as make  # type: ignore[no-redef]
    faults = faults_of(kind)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench: Bench | None = None
    used = alike = 0
    last = ""
    try:
        for number in todo:
            if bench is None:
                bench, used = make(args.out / f"box-{kind}-{args.seed}-{job}"), 0
            found: Round = play(bench, args.seed, number, faults, args.only)
            used += 1
            if used >= PER_BOX or found.broken or bench.spoilt:
                if not found.broken and not bench.spoilt:
                    try:
                        bench.close(found)
                    except Exception as error:  # a round that breaks is a result, and the soak goes on
                        found.broken.append(f"purge: {type(error).__name__}: {error}")
                bench.end()
                bench = None
            with record.open("a") as out:
                out.write(json.dumps(found.to_json()) + "\n")
            alike = alike + 1 if found.broken and found.broken[0][-200:] == last else 0
            last = found.broken[0][-200:] if found.broken else ""
            if alike >= GIVE_UP:
                print(f"given up: {alike + 1} rounds in a row broke alike: {last}", file=sys.stderr)
                return
    finally:
        if bench is not None:
            bench.end()


def table(rounds: list[dict[str, Any]]) -> int:
    """Print the table; return 1 if a column that must be zero is not."""
    print(f"| fault | rounds | {' | '.join(WORDS)} | median detection | median recovery |")
    print("|---|---|" + "---|" * (len(WORDS) + 2))
    bad = 0
    for kind in sorted({r.get("bench", "local") for r in rounds}, reverse=True):
        for name, fault in faults_of(kind).items():
            rows = [r for r in rounds if r["fault"] == name and r.get("bench", "local") == kind]
            if rows:
                bad += line((fault.__doc__ or name).strip() + (" (over ssh)" if kind == "boxes" else ""), rows)
    line("**all**", rounds)
    unknowable = [r for r in rounds if r.get("unknowable")]
    if unknowable:
        print(f"\n{len(unknowable)} rounds damaged a checkpoint before anybody looked at it, in a way that only")
        print("the work's own digest tells: its structure was proved, and it came home as it lay there.")
    for row in rounds:
        for column in COLUMNS:
            for text in row[column]:
                print(
                    f"\n{row.get('bench', 'local')} round {row['number']} ({row['fault']}), {column}: {text}",
                    file=sys.stderr,
                )
    return 1 if bad else 0


def line(name: str, rows: list[dict[str, Any]]) -> int:
    """Print one line; return how many rounds went wrong."""
    counts = [sum(1 for r in rows if r[column]) for column in COLUMNS]
    times = []
    for key in ("detect_s", "recover_s"):
        known = [r[key] for r in rows if r[key] is not None]
        times.append(f"{statistics.median(known):.1f} s" if known else "")
    print(f"| {name} | {len(rows)} | {' | '.join(map(str, counts))} | {' | '.join(times)} |")
    return sum(counts)


if __name__ == "__main__":
    sys.exit(main())
