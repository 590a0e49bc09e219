"""``outlive init``: write an outlive.toml for the project in this directory."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from outlive import errors
from outlive.cli.printing import result

SCRIPTS = (
    "train.py",
    "main.py",
    "run.py",
    "finetune.py",
    "pretrain.py",
    "src/train.py",
    "scripts/train.py",
    "train.sh",
)
OUTPUTS = ("out/ckpt", "out/checkpoints", "checkpoints", "ckpt", "ckpts", "out", "output", "outputs", "runs", "results")
_IN_CODE = re.compile(r"""["'](\.?/?(?:out|outputs?|checkpoints?|ckpts?|results|runs)(?:/[\w.-]+)*)/?["']""")


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "init",
        help="write an outlive.toml for the project in this directory",
        description="Write a commented outlive.toml from what is found here. Never overwrites one.",
    )
    parser.add_argument("dir", nargs="?", default=".", metavar="DIR", help="the project (default: here)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Write the file and say what was guessed."""
    from outlive.runs.job import FILE, read

    directory = Path(args.dir)
    if not directory.is_dir():
        raise errors.UsageError(f"there is no directory {args.dir}", safe="Nothing was written.")
    path = directory / FILE
    guess = guesses(directory)
    try:
        with path.open("x", encoding="utf-8") as handle:
            handle.write(text_of(guess))
    except FileExistsError as error:
        raise errors.UsageError(
            f"{path} is there already", safe="It was not changed.", next=[["outlive", "run"]]
        ) from error
    except OSError as error:
        raise errors.UsageError(f"{path} cannot be written: {error.strerror}", safe="Nothing was written.") from error
    read(path)  # what we wrote must be what we read
    data = {"schema": "outlive/init/1", "file": str(path), "guessed": guess, "next": [["outlive", "run"]]}
    result(args, data, lambda: _lines(str(path), guess))
    return 0


def guesses(directory: Path) -> dict[str, str]:
    """Return what was found in the directory: name, run, why, setup, checkpoints ("" where nothing was found)."""
    from outlive.runs.job import job_name

    script = next((name for name in SCRIPTS if (directory / name).is_file()), "")
    only = sorted(directory.glob("*.py"))
    if not script and len(only) == 1:
        script = only[0].name
    command = f"bash {script}" if script.endswith(".sh") else f"python {script}" if script else ""
    inputs = next((name for name in ("requirements.txt", "pyproject.toml") if (directory / name).is_file()), "")
    setup = {"requirements.txt": "pip install -r requirements.txt", "pyproject.toml": "pip install -e ."}.get(
        inputs, ""
    )
    return {
        "name": job_name(directory.resolve().name),
        "script": script,
        "run": command,
        "setup": setup,
        "setup_input": inputs,
        "checkpoints": _checkpoints(directory, script),
    }


def _checkpoints(directory: Path, script: str) -> str:
    if script:
        try:
            code = (directory / script).read_text("utf-8", "replace")[:200_000]
        except OSError:
            code = ""
        named: list[str] = [found.lstrip("./") for found in _IN_CODE.findall(code)]
        likely: list[str] = sorted(
            set(named), key=lambda p: (not re.search("ck(pt|point)|checkpoint", p), p.count("/"), len(p))
        )
        if likely and "." not in likely[0].rsplit("/", 1)[-1]:
            return likely[0]
    return next((name for name in OUTPUTS if (directory / name).is_dir()), "")


def text_of(guess: dict[str, str]) -> str:
    """Return the file's text: what was guessed, and the rest as comments to take up."""
    run = guess["run"] or "python train.py"
    checkpoints = guess["checkpoints"]
    lines = [
        "# Every key but job.run may go. Placeholders: {data} {durable} {work} {run} {vcpu}",
        "",
        "[job]",
        f'name = "{guess["name"]}"',
        f'run = "{run}"' + ("" if guess["run"] else "    # no script was found here: write your command"),
        f'# smoke = "{run} --limit-batches 2"    # a short first stage that finds typing errors before the meter runs',
        "",
    ]
    if guess["setup"]:
        lines += ["[setup]", f'run = "{guess["setup"]}"    # once per box', f'inputs = ["{guess["setup_input"]}"]', ""]
    lines += [
        "[artifacts]",
        f'checkpoints = "{checkpoints}"'
        if checkpoints
        else '# checkpoints = "out/ckpt"    # where it saves: proved and kept',
        '# roster = ["out/best.pt", "out/metrics.json"]    # what must be there at the end; left out: what it made',
        '# keep = { latest = 2, best = 1, every = "1h" }    # older checkpoints are pruned on the box',
        "",
        "[durable]",
        'to = "auto"    # a mounted volume, rclone:remote:path, here, or none',
        "",
        "# [budget]",
        "# max_hours = 12",
        '# max_cost = "20 USD"    # needs `outlive up BOX --price 1.20USD`',
        "",
        "# [secrets]",
        '# WANDB_API_KEY = "env:WANDB_API_KEY"    # taken from your shell, never written down',
        "",
        "# [notify]",
        '# urls = ["env:OUTLIVE_NOTIFY"]',
    ]
    return "\n".join(lines) + "\n"


def _lines(path: str, guess: dict[str, str]) -> list[str]:
    text = [f"wrote {path}", f"  run          {guess['run'] or 'not found: write your command'}"]
    text += [f"  setup        {guess['setup']}"] if guess["setup"] else []
    text.append(f"  checkpoints  {guess['checkpoints'] or 'not found: say where it saves, or only the end is kept'}")
    return [*text, "next: outlive run"]
