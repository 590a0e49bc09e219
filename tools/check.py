"""check.py: everything that can be said about the tree without running it, in seconds. Nothing is changed.

Prints one line per check; the output of those that failed follows. `make format` and `make docs` mend most of it.
"""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PY = sys.executable

CHECKS: dict[str, list[str]] = {
    "types": [PY, "-m", "mypy"],
    "imports": [PY, "tools/lint_imports.py"],
    "format": [PY, "-m", "ruff", "format", "--check", "."],
    "lint": [PY, "-m", "ruff", "check", "."],
    "py38": [PY, "tools/check_py38.py"],
    "platforms": [PY, "-m", "outlive.platforms.compile", "--check"],
    "rules": [PY, "-m", "outlive.advice.compile", "--check"],
    "plan": [PY, "-m", "outlive.plan.compile", "--check"],
    "generated": [PY, "tools/gen_docs.py", "--check"],
    "docs": [PY, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/docs"],
}


def run(name: str) -> tuple[str, int, float, str]:
    """Run one check; return its name, status, seconds and output."""
    started = time.monotonic()
    env = {**os.environ, "PYTHONPATH": "src", "COLUMNS": "120"}
    done = subprocess.run(
        CHECKS[name],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return name, done.returncode, time.monotonic() - started, done.stdout


def main() -> int:
    """Run all, two at a time; return 1 if any failed."""
    bad = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, status, wall_s, output in pool.map(run, CHECKS):
            print(f"  {name:10} {'ok' if status == 0 else 'FAILED':6} {wall_s:5.1f} s", flush=True)
            if status:
                bad.append((name, output))
    for name, output in bad:
        print(f"\n---- {name} ----\n{output.rstrip()}")
    print(f"{len(CHECKS) - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
