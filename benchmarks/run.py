"""run.py [ARG...]: every benchmark of this folder, one after the other; exit 1 if one missed what it guards.

Each gets the same arguments. The head says on what machine and commit, and how busy it was: what the tables of
docs/benchmarks.md have to say, too.
"""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run them with the arguments given; return the exit status."""
    print(f"{head()}\n", flush=True)
    ended = {}
    for path in sorted(HERE.glob("*.py")):
        if path.name == "run.py":
            continue
        print(f"== {path.stem}", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, str(path), *sys.argv[1:]], stdin=subprocess.DEVNULL, check=False)
        ended[path.stem] = "ok" if done.returncode == 0 else f"exit {done.returncode}"
        print(f"   {ended[path.stem]} after {time.monotonic() - began:.0f} s\n", flush=True)
    missed = [name for name, word in ended.items() if word != "ok"]
    print(f"{len(ended) - len(missed)} ok" + (f", missed or not run: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


def head() -> str:
    """Machine, commit and load, in a line."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=7"], cwd=HERE, capture_output=True, text=True, check=False
    ).stdout.strip()
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"commit {commit or 'unknown'}, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
