"""What no tracked file may hold: places of one machine, and the addresses where packages are fetched from."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Written in pieces, so that this file does not hold them.
FORBIDDEN = {
    "a folder of one machine": ["/" + "work/", "/" + "opt/wheels", "/" + "opt/pypi"],
    "a package registry": [
        "pypi" + ".org",
        "files.python" + "hosted",
        "test.py" + "pi",
        "--extra-" + "index-url",
        "--index-" + "url",
        "download.py" + "torch.org",
        "registry.npm" + "js",
    ],
}
# Recorded output and the texts that quote it show other people's machines as they were, and say so.
RECORDED = ("tests/recorded/",)


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=30, check=False
    )
    if listed.returncode:
        pytest.skip("an unpacked archive, not a checkout: nothing is tracked")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_no_tracked_file_names(kind):
    found = []
    for path in tracked():
        if not path.is_file() or path.relative_to(ROOT).as_posix().startswith(RECORDED):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), 1):
            for word in FORBIDDEN[kind]:
                at = line.find(word)
                # A run has a folder of that name too, below its run; only the absolute path is meant.
                if at >= 0 and not (
                    word.startswith("/") and at > 0 and (line[at - 1].isalnum() or line[at - 1] in "}>)]._-*…")
                ):
                    found.append(f"{path.relative_to(ROOT)}:{number}: {word}")
    assert not found


def test_no_large_or_generated_file_is_tracked():
    large = [p.relative_to(ROOT).as_posix() for p in tracked() if p.is_file() and p.stat().st_size > 1_000_000]
    made = [p.relative_to(ROOT).as_posix() for p in tracked() if p.suffix in {".pyc", ".pyz", ".so"}]
    assert (large, made) == ([], [])


def test_shell_scripts_have_unix_line_ends():
    # A carriage return after `#!/bin/sh` makes the kernel look for an interpreter called "sh\\r".
    for path in tracked():
        if path.suffix == ".sh" and path.is_file() and "recorded" not in path.parts:
            assert b"\r\n" not in path.read_bytes(), path
