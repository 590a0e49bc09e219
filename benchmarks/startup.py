"""startup.py [--rounds N]: what the commands that people type all day cost, over an empty Python.

The commands take turns, so that a slow moment of the machine falls on all of them; the ratio is taken of the medians.
`ps` runs with an empty state directory.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

CODE = "import sys; from outlive.cli.main import main; sys.exit(main({words!r}))"
HEAVY = ("yaml", "rich", "httpx", "textual", "asyncio", "pathspec", "numpy", "torch", "importlib.metadata")
WANTED = 3.0


def commands() -> dict[str, list[str]]:
    """Return what is measured; the first is what the others are measured against."""
    return {
        "empty python": [sys.executable, "-c", ""],
        "import outlive": [sys.executable, "-c", "import outlive"],
        "outlive --help": [sys.executable, "-c", CODE.format(words=["--help"])],
        "outlive ps": [sys.executable, "-c", CODE.format(words=["ps"])],
    }


def once(argv: list[str], env: dict[str, str]) -> tuple[float, int]:
    """Return seconds and exit status of one run."""
    started = time.perf_counter()
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started, done.returncode


def heavy_imports(words: list[str], env: dict[str, str]) -> list[str] | None:
    """Return which of the heavy modules a command has loaded when it ends; None if it did not run."""
    code = (
        "import sys, contextlib, io\nfrom outlive.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), "
        f"contextlib.suppress(SystemExit):\n    main({words!r})\n"
        f"print(*[m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return done.stdout.split() if done.returncode == 0 else None


def main() -> int:
    """Print the table; return 1 if something costs more than is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    status = 0
    with tempfile.TemporaryDirectory() as home:
        env = {
            **os.environ,
            "HOME": home,
            "XDG_STATE_HOME": home,
            "XDG_DATA_HOME": home,
            "XDG_CONFIG_HOME": home,
            "PYTHONDONTWRITEBYTECODE": "",
        }
        wanted = commands()
        times: dict[str, list[float]] = {name: [] for name in wanted}
        broken = {name for name, argv in wanted.items() if once(argv, env)[1] != 0}  # this round also warms the caches
        for _ in range(rounds):
            for name, argv in wanted.items():
                times[name].append(once(argv, env)[0])
        base = statistics.median(times["empty python"])
        for name, taken in times.items():
            ratio = statistics.median(taken) / base
            spread = (max(taken) - min(taken)) / base
            verdict = "does not run" if name in broken else "too slow" if ratio > WANTED else "ok"
            status |= verdict != "ok"
            print(f"  {name:15} {ratio:5.2f} x   spread {spread:4.2f}   ({1000 * base * ratio:.0f} ms here)  {verdict}")
        for words in (["--help"], ["ps"]):
            loaded = heavy_imports(words, env)
            status |= loaded != []
            shown = "unknown, it does not run" if loaded is None else ", ".join(loaded) or "none"
            print(f"  outlive {words[0]} loads heavy modules: {shown}")
    print(f"  wanted: at most {WANTED:.0f} x, no heavy module")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
