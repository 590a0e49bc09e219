"""Files over commands: what the conformance suite does not ask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlive.errors import OutliveError, Unreachable
from outlive.transport.base import Completed, FileStat
from outlive.transport.files import ExecFiles
from outlive.transport.local import LocalExec


class Short(LocalExec):
    """A connection that loses the second half of what is sent, as when it dies and the far cat sees an end."""

    def run(self, argv: object, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        return super().run(argv, stdin=stdin[: len(stdin) // 2], timeout_s=timeout_s)  # type: ignore[arg-type]


def test_a_short_write_publishes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(Unreachable, match="short"):
        ExecFiles(Short()).write(f"{tmp_path}/f", b"new content")
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"


def test_stat_is_the_systems(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    os.chmod(path, 0o751)
    os.utime(path, ns=(1, 1_700_000_000_123_456_789))
    expected = FileStat(3, 0o751, 1_700_000_000_123_456_789, False)
    assert ExecFiles(LocalExec()).stat(str(path)) == expected
    (tmp_path / "link").symlink_to("f")
    assert ExecFiles(LocalExec()).stat(f"{tmp_path}/link") == expected
    (tmp_path / "dangling").symlink_to("nowhere")
    assert ExecFiles(LocalExec()).stat(f"{tmp_path}/dangling") is None
    assert "dangling" in ExecFiles(LocalExec()).list(str(tmp_path))


def test_names_that_are_no_text_go_round(tmp_path: Path) -> None:
    raw = b"\xff\xfe\xe4"
    (tmp_path / os.fsdecode(raw)).write_bytes(b"x")
    files = ExecFiles(LocalExec())
    (name,) = files.list(str(tmp_path))
    assert os.fsencode(name) == raw and files.read(f"{tmp_path}/{name}") == b"x"


def test_relative_names_may_begin_with_a_dash(tmp_path: Path) -> None:
    files = ExecFiles(LocalExec(cwd=str(tmp_path)))
    files.write("-rf", b"x")
    assert files.read("-rf") == b"x" and files.list(".") == ["-rf"]
    files.remove("-rf")
    assert files.stat("-rf") is None


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_no_path(path: str) -> None:
    with pytest.raises(ValueError):
        ExecFiles(LocalExec()).read(path)


def test_what_the_far_end_said_is_kept() -> None:
    with pytest.raises(OutliveError) as caught:
        ExecFiles(LocalExec()).write("/proc/outlive-cannot-be/f", b"x")
    assert any("mkdir" in line for line in caught.value.why)


def test_listing_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with pytest.raises(NotADirectoryError):
        ExecFiles(LocalExec()).list(f"{tmp_path}/f")
