"""venv.py LEVEL: bring .venv up to date, or do nothing if it is. LEVEL is run, dev or test; each holds the one before.
With --check it changes nothing and exits 1 if there is something to do: the quick answer, by .venv's own interpreter.

Standard library only, Python 3.11+. A stamp in .venv records what was installed from: the requirements, the pins, the
interpreter and the place of the checkout (an editable install and its scripts hold absolute paths).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "outlive-stamp.json"
EXTRAS: dict[str, list[str]] = {"run": [], "dev": ["dev"], "test": ["dev", "test-torch", "test-train", "test-launch"]}
WITHOUT_THEIRS = {"test": ["litgpt", "deepspeed"]}
"""Installed without their own requirements: those name other versions of what the rest needs, or a CUDA build."""


def requirements(level: str) -> list[str]:
    """Return what the level needs, with the build backend: it is pinned too, so it cannot be pip's isolated one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [*project["build-system"]["requires"], "editables", *project["project"]["dependencies"]]
    for extra in EXTRAS[level]:
        wanted += project["project"]["optional-dependencies"][extra]
    if os.environ.get("OUTLIVE_TEST_TORCH") == "0":
        train = project["project"]["optional-dependencies"]
        heavy = {*train["test-torch"], *train["test-train"], *train["test-launch"]}
        wanted = [line for line in wanted if line not in heavy]
    return wanted


def digest(level: str) -> str:
    """Return what identifies an up-to-date environment of the level."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    facts = {
        "requirements": requirements(level) + WITHOUT_THEIRS.get(level, []),
        "scripts": project["project"]["scripts"],
        "version": project["project"]["version"],
        "pins": (ROOT / "constraints.txt").read_text("utf-8"),
        "root": str(ROOT),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def stamped() -> dict[str, str]:
    """Return the digests per level of the present environment; empty where there is none that works."""
    try:
        return dict(json.loads(STAMP.read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def current(level: str) -> bool:
    """Return whether .venv already holds the level."""
    have = stamped()
    levels = list(EXTRAS)
    above = levels[levels.index(level) :]
    return any(have.get(one) == digest(one) for one in above) and (VENV / "bin" / "python").exists()


def pip(*words: str) -> None:
    """Run the environment's pip, quietly; its own words are shown if it fails."""
    argv = [str(VENV / "bin" / "python"), "-m", "pip", "install", "-q", "--no-input", *words]
    done = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        sys.exit(
            "could not install; nothing of yours was changed, `make` again repeats it. Proxy or mirror: `pip config`."
        )


def main() -> None:
    """Make or renew .venv for the level named on the command line."""
    level = sys.argv[1]
    if current(level):
        return
    if "--check" in sys.argv:
        sys.exit(1)
    started = time.monotonic()
    have = stamped()
    moved = have.get("root") not in (None, str(ROOT))
    if moved or not have or not (VENV / "bin" / "python").exists():
        shutil.rmtree(VENV, ignore_errors=True)
        print(f"making .venv with Python {sys.version.split()[0]}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True, stdin=subprocess.DEVNULL)
    STAMP.unlink(missing_ok=True)  # from here until the end it is neither the old environment nor the new one
    print(f"installing what `{level}` needs", file=sys.stderr, flush=True)
    pip("-c", "constraints.txt", *requirements(level))
    if WITHOUT_THEIRS.get(level) and os.environ.get("OUTLIVE_TEST_TORCH") != "0":
        pip("-c", "constraints.txt", "--no-deps", *WITHOUT_THEIRS[level])
    pip("--no-deps", "--no-build-isolation", "-e", ".")
    done = {one: digest(one) for one in list(EXTRAS)[: list(EXTRAS).index(level) + 1]}
    STAMP.write_text(json.dumps({**done, "root": str(ROOT)}, indent=1) + "\n", "utf-8")
    print(f".venv is ready after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
