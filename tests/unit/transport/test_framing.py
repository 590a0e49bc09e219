"""Marks around a command's own bytes."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from outlive.testing.transport import HARD_WORDS
from outlive.transport.framing import LINE_MAX_BYTES, Frame, Peel


def peeled(frame: Frame, data: bytes, size: int = 7) -> Peel:
    peel = Peel(frame)
    for start in range(0, len(data), size):
        peel.feed(data[start : start + size])
    return peel


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_noise_before_and_after_is_cut(size: int) -> None:
    frame = Frame("abcdef")
    body = b"body\x00 abcdef.end no number\nabcdef.begin\n"
    peel = peeled(frame, b"motd" + frame.begin + body + frame.end + b"255\nlogout noise", size)
    assert (peel.begun, peel.status, bytes(peel.body), bytes(peel.noise)) == (True, 255, body, b"motd")


def test_without_the_second_mark_there_is_no_status() -> None:
    frame = Frame()
    for cut in (b"", b"7", frame.end[:-3], frame.end + b"25"):
        peel = peeled(frame, frame.begin + b"half" + cut)
        assert peel.begun and peel.status is None


def test_the_line_is_plain_ascii_and_never_holds_the_mark() -> None:
    frame = Frame()
    line = frame.command(["printf", "%s", *HARD_WORDS])
    assert line.isascii() and line.isprintable() and "!" not in line and "\n" not in line
    assert frame.begin.strip().decode() not in line and frame.end.strip().decode() not in line


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "fish", "tcsh", "busybox"])
def test_every_login_shell_hands_words_on(shell: str) -> None:
    program = shutil.which(shell)
    if not program:
        pytest.fail(f"{shell} is missing: apt-get install fish tcsh busybox")
    frame = Frame()
    argv = [program, *(["sh"] if shell == "busybox" else []), "-c", frame.command(["printf", "%s\\0", *HARD_WORDS])]
    done = subprocess.run(argv, capture_output=True, timeout=20)
    out, err = peeled(frame, done.stdout, 4096), peeled(frame, done.stderr)
    assert (out.status, err.status) == (0, 0)
    assert bytes(out.body).decode("utf-8", "surrogateescape").split("\0")[:-1] == list(HARD_WORDS)


@pytest.mark.parametrize("argv", [[], ["a\0b"], ["cat", "x" * LINE_MAX_BYTES]])
def test_what_cannot_be_sent_is_said(argv: list[str]) -> None:
    with pytest.raises(ValueError):
        Frame().command(argv)


def test_a_flood_before_the_mark_is_bounded() -> None:
    frame = Frame()
    peel = Peel(frame)
    for _ in range(100):
        peel.feed(b"x" * 65536)
    peel.feed(frame.begin + b"here")
    assert peel.begun and bytes(peel.body) == b"here" and len(peel.noise) <= Peel.NOISE_MAX_BYTES
