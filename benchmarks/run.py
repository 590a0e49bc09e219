"""Run every benchmark of this folder, one after the other; exit 1 if one missed what it guards."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run them with the arguments given; return the exit status."""
    status = 0
    for path in sorted(HERE.glob("*.py")):
        if path.name != "run.py":
            print(f"== {path.stem}", flush=True)
            status |= subprocess.run(
                [sys.executable, str(path), *sys.argv[1:]], stdin=subprocess.DEVNULL, check=False
            ).returncode
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
