"""travel_tests.py [--require-all] [PYTEST ARG...]: the travelling packages' tests on each Python 3.8 to 3.13.

Interpreters are looked for on PATH and under $PYENV_ROOT/versions or ~/.pyenv/versions. Each gets a bare environment
.venvs/<version> with pytest and pytest-xdist and nothing else, so that a forgotten third-party import fails here and
not on a box. The version of the environment that this script runs in is left out: the full run covers it.
Prints a table; missing versions are named. Exit 1 if a test failed or, with --require-all (or
OUTLIVE_REQUIRE_ALL_PYTHONS=1), if a version is missing.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venvs"
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
PACKAGES = ("wire", "probes", "artifacts", "diagnose", "checkpoints", "onbox")
NEEDS_MORE = (  # run in .venv, where torch is
    "tests/unit/artifacts/test_torch_files.py",
    "tests/unit/checkpoints/torch",
)
AT_ONCE = 2
JOBS = (
    "--timeout",
    "600",
    "-n",
    "4",
    "--dist",
    "worksteal",
)  # most of these tests wait for a process, not for a processor
LIMIT_S = 1500
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::\S+?)(?: - .*)?$", re.M)
AGAIN = 8
"""Up to so many failed tests are run once more alone; more than that is no accident of a busy machine."""
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
PACKAGES_FOR_TESTS = ("pytest", "pytest-xdist", "pytest-timeout")


@dataclass(frozen=True)
class Result:
    """How one interpreter's run ended."""

    version: str
    ok: bool
    line: str
    wall_s: float
    output: str = ""


def answers(python: Path | str, version: str) -> str | None:
    """Return the full version if the interpreter is a working one of ``version`` that can make environments."""
    probe = "import sys, ensurepip, venv; print('%d.%d.%d' % sys.version_info[:3])"
    try:
        done = subprocess.run(
            [str(python), "-c", probe], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    full = done.stdout.strip()
    return full if done.returncode == 0 and full.rpartition(".")[0] == version else None


def find(version: str) -> Path | None:
    """Return an interpreter of the version, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(
        pyenv.glob(f"{version}.*/bin/python"), key=lambda p: [int(n) for n in re.findall(r"\d+", p.parts[-3])]
    )
    on_path = shutil.which(f"python{version}")
    if on_path:
        found.insert(0, Path(on_path))
    plain = shutil.which("python3")
    if plain:
        found.insert(0, Path(plain))
    for python in reversed(found):
        if answers(python, version):
            return python
    return None


def environment(version: str, python: Path) -> Path:
    """Return the interpreter of a bare environment with pytest, made on first use or after the pins changed."""
    home = VENVS / version
    stamp = home / "outlive-stamp"
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    want = hashlib.sha256(f"{pins}\n{python}\n{ROOT}\n{PACKAGES_FOR_TESTS}".encode()).hexdigest()
    inside = home / "bin" / "python"
    if not (stamp.exists() and stamp.read_text("utf-8") == want and inside.exists()):
        shutil.rmtree(home, ignore_errors=True)
        pip = [str(inside), "-m", "pip", "install", "-q", "--no-input", "-c", "constraints.txt"]
        for argv in ([str(python), "-m", "venv", str(home)], [*pip, *PACKAGES_FOR_TESTS]):
            subprocess.run(argv, cwd=ROOT, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        stamp.write_text(want, "utf-8")
    return inside


def run(version: str, python: Path, more: list[str]) -> Result:
    """Run the tests on one interpreter."""
    started = time.monotonic()
    folders = [f"tests/unit/{name}" for name in PACKAGES if (ROOT / "tests" / "unit" / name).is_dir()]
    ignored = [f"--ignore={folder}" for folder in NEEDS_MORE]
    try:
        inside = environment(version, python)
        done = subprocess.run(
            [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", *JOBS, *ignored, *folders, *more],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
    except subprocess.CalledProcessError as bad:
        return Result(
            version, False, "no environment", time.monotonic() - started, (bad.stdout or "") + (bad.stderr or "")
        )
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode("utf-8", "replace") if isinstance(late.stdout, bytes) else (late.stdout or "")
        return Result(version, False, f"not done after {LIMIT_S} s", time.monotonic() - started, text)
    again = FAILED.findall(done.stdout)
    if done.returncode == 1 and 0 < len(again) <= AGAIN:
        # real processes on a busy machine can be late for a test's own limit: once more, one after the other
        alone = subprocess.run(
            [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "600", *again],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
        if alone.returncode == 0:
            first = done.stdout.strip().splitlines()[-1].strip("= ")
            line = f"{first}; passed alone: {', '.join(again)}"
            return Result(version, True, line, time.monotonic() - started)
    last = done.stdout.strip().splitlines()[-1].strip("= ") if done.stdout.strip() else "no output"
    return Result(version, done.returncode == 0, last, time.monotonic() - started, done.stdout)


def main() -> int:
    """Print one line per interpreter; return the exit status."""
    words = sys.argv[1:]
    require = "--require-all" in words or os.environ.get("OUTLIVE_REQUIRE_ALL_PYTHONS") == "1"
    more = [word for word in words if word != "--require-all"]
    pythons = {version: find(version) for version in VERSIONS if version != OWN}
    present = {version: python for version, python in pythons.items() if python is not None}
    missing = [version for version in pythons if version not in present]
    print("travelling packages, bare interpreters:", flush=True)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda item: run(item[0], item[1], more), present.items()))
    for result in results:
        if not result.ok:
            print(f"\n---- Python {result.version} ----\n{result.output}")
    for version in VERSIONS:
        done = next((result for result in results if result.version == version), None)
        if version == OWN:
            print(f"  {version:5} in the full run")
        elif done is None:
            print(f"  {version:5} missing")
        else:
            print(f"  {version:5} {'ok    ' if done.ok else 'FAILED'} {done.wall_s:5.1f} s  {done.line}")
    if missing:
        how = "required here" if require else "not tested; pyenv install adds them"
        print(f"  missing: {', '.join(missing)} ({how})")
    return 1 if not all(result.ok for result in results) or (require and missing) else 0


if __name__ == "__main__":
    sys.exit(main())
