"""Writes a training project from its templates. Nothing that exists is touched."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from outlive import errors

TEMPLATES = Path(__file__).resolve().parent / "templates"
KINDS = {
    "nanogpt": "a GPT from nothing: torch only",
    "litgpt": "models of LitGPT, from nothing",
    "hf-trainer": "transformers' Trainer, fine-tuning or from nothing",
}
"""Kind of project: what it trains."""

RENAMED = {"gitignore": ".gitignore"}
SAMPLE_BYTES = 40_000


def write(kind: str, directory: Path, job: str) -> list[str]:
    """Write a project of ``kind`` into ``directory``, which must not exist or be empty; return its files, sorted.

    ``job`` is its name in outlive.toml and in the logs.

    Written aside and renamed: what is there is whole. Raises UnknownName for the kind, UsageError for the directory.
    """
    if kind not in KINDS:
        near = errors.nearest(kind, KINDS)
        raise errors.UnknownName(
            f"`{kind}` is no kind of project" + (f"; did you mean `{near}`?" if near else ""),
            name=kind,
            candidates=KINDS,
            safe="Nothing was written.",
            next=[["outlive", "new", near or "nanogpt", str(directory)]],
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise errors.UsageError(
            f"{directory} is there already and not empty",
            safe="Nothing was written.",
            next=[["outlive", "new", kind, f"{directory}-2"]],
        )
    aside = directory.parent / f".{directory.name}.new"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for name, text in files(kind, job).items():
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
            if name.endswith(".sh"):
                target.chmod(0o755)
        if directory.exists():
            directory.rmdir()
        aside.rename(directory)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise errors.UsageError(
            f"{directory} cannot be written: {error.strerror}", safe="Nothing was left behind."
        ) from error
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def files(kind: str, name: str) -> dict[str, str]:
    """Return path -> text of a project: what all kinds share, the kind's own files over it, sample data."""
    found: dict[str, str] = {}
    for folder in ("common", kind):
        for path in sorted((TEMPLATES / folder).rglob("*")):
            relative = str(path.relative_to(TEMPLATES / folder))
            if not path.is_file() or "__pycache__" in relative:
                continue
            found[RENAMED.get(relative, relative)] = path.read_text("utf-8").replace("{{name}}", name)
    for number, phase in enumerate(("broad", "curated", "domain")):
        found[f"data/{phase}.txt"] = sample_text(number, SAMPLE_BYTES)
    return found


def sample_text(seed: int, size_bytes: int) -> str:
    """Return made-up sentences, the same for the same seed: enough structure for a loss that falls."""
    draw = random.Random(seed)
    subjects = ["the pump", "a small boat", "our neighbour", "the old clock", "every student", "the night train"]
    verbs = ["follows", "repairs", "remembers", "counts", "carries", "waits for", "paints"]
    objects = ["the river", "seven stones", "a quiet song", "the next station", "two letters", "the blue door"]
    ends = ["in the morning", "without a word", "before it rains", "again and again", "as it always did"]
    lines: list[str] = []
    length = 0
    while length < size_bytes:
        line = f"{draw.choice(subjects)} {draw.choice(verbs)} {draw.choice(objects)} {draw.choice(ends)}"
        if seed == 1:
            line = (
                f"{line[0].upper()}{line[1:]}, and {draw.choice(subjects)} {draw.choice(verbs)} {draw.choice(objects)}"
            )
        if seed == 2:
            line = f"Q: what {draw.choice(verbs)} {draw.choice(objects)}? A: {line}"
        lines.append(line + ".\n")
        length += len(lines[-1])
    return "".join(lines)
