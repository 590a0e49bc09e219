"""startup.py [--rounds N]: what the commands that people type all day cost, over an empty Python: wall and CPU.

The commands take turns, so that a slow moment of the machine falls on all of them; the ratio is taken of the medians.
CPU is the command's own and that of its children; on a busy machine it is the figure to trust. Looks go to a local
box with a finished run and a quiet live one; the ledger knows twenty more.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

CODE = "import sys; from outlive.cli.main import main; sys.exit(main({words!r}))"
HEAVY = ("yaml", "rich", "httpx", "textual", "asyncio", "pathspec", "numpy", "torch", "importlib.metadata")
WANTED = 5.0
EMPTY = "empty python"
LIVE_S = 3600
REST_S = 3.0
"""What has changed within two seconds is answered in full."""


def typed(*words: str) -> list[str]:
    return [sys.executable, "-c", CODE.format(words=list(words))]


def once(argv: list[str], env: dict[str, str]) -> tuple[float, float, int]:
    """Return seconds of wall and CPU, and the exit status, of one run."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.returncode


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


def measure(env: dict[str, str], wanted: dict[str, tuple[list[str], int]], rounds: int) -> int:
    """Print a line for each command; return whether one costs too much. ``wanted``: words and expected status."""
    verbs = {EMPTY: ([sys.executable, "-c", "pass"], 0), **wanted}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in verbs}
    # this round also warms the caches
    broken = {name for name, (argv, code) in verbs.items() if once(argv, env)[2] != code}
    for _ in range(rounds):
        for name, (argv, _code) in verbs.items():
            times[name].append(once(argv, env)[:2])
    base = [statistics.median(column) for column in zip(*times[EMPTY], strict=True)]
    status = 0
    for name, taken in times.items():
        took = [statistics.median(column) for column in zip(*taken, strict=True)]
        wall, cpu = took[0] / base[0], took[1] / base[1]
        verdict = "does not run" if name in broken else "too slow" if max(wall, cpu) > WANTED else "ok"
        status |= verdict != "ok"
        print(
            f"  {name:28} wall {wall:5.2f} x ({1000 * took[0]:.0f} ms here)   cpu {cpu:5.2f} x "
            f"({1000 * took[1]:.0f} ms here)   {verdict}"
        )
    return status


def main() -> int:
    """Print the table; return 1 if something costs more than is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    from servers.clients import Client

    from outlive.runs.up import up

    base = Path(tempfile.mkdtemp(prefix="outlive-startup-"))
    places = ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    # without bytecode a start would compile us anew each time, which nobody's installation does
    env = {**os.environ, **dict.fromkeys(places, str(base)), "PYTHONDONTWRITEBYTECODE": ""}
    env.pop("OUTLIVE_HOME", None)
    status = measure(
        env, {"outlive --help": (typed("--help"), 0), "outlive ps, nothing known": (typed("ps"), 0)}, rounds
    )

    client = Client(base / "client")
    up(client.home, ["local:"], root=str(base / "box"), budget_s=2.0)
    live = ""
    try:
        ended = client.run(client.job(env={"LAST": "3", "STEP_S": "0.01"})).run
        client.until(ended, lambda s: s["ended"] and not s["supervised"])
        quiet = client.job("quiet", "sleep", str(LIVE_S), limits={"sample_s": float(LIVE_S)})
        live = client.run(quiet).run
        client.until(live, lambda s: s["work_alive"])
        for number in range(20):
            name = f"known-2601{number + 1:02}-abcd"
            client.home.ledger.append("run", run=name, box=client.box().name, job="known", state="succeeded")
        time.sleep(REST_S)
        env["OUTLIVE_HOME"] = str(client.home.dir)
        looks = {
            "outlive ps, 22 runs": (typed("ps"), 0),
            "outlive watch ENDED --once": (typed("watch", ended, "--once"), 0),
            "outlive watch LIVE --once": (typed("watch", live, "--once"), 7),
        }
        status |= measure(env, looks, rounds)
        for words in (["--help"], ["ps"], ["watch", ended, "--once"]):
            loaded = heavy_imports(words, env)
            status |= loaded != []
            shown = "unknown, it does not run" if loaded is None else ", ".join(loaded) or "none"
            print(f"  outlive {words[0]} loads heavy modules: {shown}")
    finally:
        if live:
            client.stop(live)
            client.until(live, lambda s: s["ended"] and not s["supervised"])
        shutil.rmtree(base, ignore_errors=True)
    print(f"  wanted: at most {WANTED:.0f} x, no heavy module")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
