"""The packed program keeps its bytecode beside itself: a cache that nothing depends on."""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys

import pytest

from outlive.transport import pack
from outlive.wire.frames import read_frames, skip_to_mark

PYTHONS = [sys.executable] + [
    str(found / "bin/python")
    for version in ("3.8", "3.13")
    for found in sorted(pathlib.Path("~/.pyenv/versions").expanduser().glob(version + ".*"))[-1:]
]


@pytest.fixture
def program(tmp_path: pathlib.Path) -> pathlib.Path:
    digest, data = pack.supervisor_pyz()
    place = tmp_path / ".outlive"
    place.mkdir()
    path = place / f"supervisor-{digest}.pyz"
    path.write_bytes(data)
    return path


def call(program: pathlib.Path, python: str = sys.executable, verb: str = "hello") -> str:
    """Make one call and return the interpreter's version, by its word."""
    request = {"call": verb, "root": str(program.parent.parent), "nonce": "abcd"}
    done = subprocess.run(
        [python, "-I", "-S", "-X", "utf8", str(program), "call"],
        input=json.dumps(request).encode() + b"\n",
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b'{"t":"end"}\n')
    reply = io.BytesIO(done.stdout)
    skip_to_mark(reply, "abcd")
    (header, answer) = next(read_frames(reply))
    return str(json.loads(answer)["python"]) if header["t"] == "answer" else ""


def kept(program: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in program.parent.iterdir() if path.name.endswith(".code"))


def test_it_is_used_and_grows_by_what_was_missing(program: pathlib.Path) -> None:
    call(program)
    (cache,) = kept(program)
    assert cache.stat().st_mode & 0o777 == 0o600
    first = cache.read_bytes()
    call(program)
    assert cache.read_bytes() == first, "nothing was missing, and it was written again"
    inode = cache.stat().st_ino
    call(program, verb="poll")
    assert len(cache.read_bytes()) > len(first)
    call(program, verb="poll")
    assert cache.stat().st_ino != inode
    assert not [path for path in program.parent.iterdir() if path.name.endswith(".part")]


def test_without_its_sources_the_kept_bytecode_is_enough(program: pathlib.Path) -> None:
    """What proves that it is used: the block of sources is damaged, and the call works all the same."""
    call(program)
    data = program.read_bytes()
    start = data.index(pack.BLOCK.encode()) + len(pack.BLOCK) + 64
    program.write_bytes(data[:start] + bytes(64) + data[start + 64 :])
    call(program)


@pytest.mark.skipif(len(PYTHONS) < 2, reason="one Python on this machine")
def test_several_versions_share_one_directory(program: pathlib.Path) -> None:
    said = {call(program, python) for _ in range(2) for python in PYTHONS}
    assert len(kept(program)) == len(said) == len(PYTHONS)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:10], id="cut in its head"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut in the middle"),
        pytest.param(lambda data: data[:-1], id="one byte short"),
        pytest.param(lambda data: data + b"x", id="one byte long"),
        pytest.param(lambda data: data[:5000] + bytes([data[5000] ^ 4]) + data[5001:], id="a flipped bit"),
        pytest.param(lambda data: b"\0\0\0\0" + data[4:], id="another Python's"),
        pytest.param(lambda data: bytes(len(data)), id="zeros, as after a power cut"),
    ],
)
def test_a_damaged_one_is_not_used_and_made_anew(program: pathlib.Path, damage) -> None:  # type: ignore[no-untyped-def]
    call(program)
    (cache,) = kept(program)
    good = cache.read_bytes()
    cache.write_bytes(damage(good))
    call(program)
    assert cache.read_bytes() == good


def test_where_it_cannot_be_written_everything_works(program: pathlib.Path) -> None:
    call(program)
    (cache,) = kept(program)
    cache.unlink()
    cache.mkdir()  # root may write anywhere: a directory of that name stands in for a disk that takes nothing
    before = sorted(os.listdir(program.parent))
    call(program)
    call(program, verb="poll")
    assert sorted(os.listdir(program.parent)) == before


def test_a_program_without_a_digest_in_its_name_keeps_nothing(program: pathlib.Path) -> None:
    other = program.with_name("program.pyz")
    program.rename(other)
    call(other)
    assert not kept(other)
