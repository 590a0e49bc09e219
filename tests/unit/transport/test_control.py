"""Where sockets of shared connections may lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlive.transport import control


def test_the_runtime_directory_is_preferred_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Path(f"/tmp/o-unit-{os.getpid()}")
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    try:
        place = control.directory()
        assert place == runtime / "outlive" and place.stat().st_mode & 0o777 == 0o700
        os.chmod(place, 0o777)
        assert control.directory() == Path(f"/tmp/outlive-{os.getuid()}"), (
            "a directory that others may enter is not used"
        )
    finally:
        (runtime / "outlive").rmdir()
        runtime.rmdir()


def test_a_long_runtime_directory_is_left_for_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    assert control.directory() == Path(f"/tmp/outlive-{os.getuid()}")


def test_settings_make_the_name_and_strictness_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)

    def socket(*options: str) -> Path:
        return control.Control(["ssh", *options], "root@h").socket

    assert socket("-o", "StrictHostKeyChecking=yes") == socket("-o", "StrictHostKeyChecking=accept-new")
    assert socket("-p", "1") != socket("-p", "2")
    assert len(os.fsencode(socket())) <= control.PATH_MAX_BYTES


def test_refusals_count_when_they_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    made = control.Control(["ssh", f"unit-{os.getpid()}"], "root@h")
    try:
        made.remember_unwanted()
        assert not made.unwanted()
        made.bears()
        made.remember_unwanted()
        assert not made.unwanted()
        made.remember_unwanted()
        assert made.unwanted()
    finally:
        made.bears()
    made.remember_unwanted(sure=True)
    assert made.unwanted()
    made.bears()
