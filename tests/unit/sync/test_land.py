"""Results get their final name whole, and nothing anybody wants is overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outlive import errors
from outlive.sync.land import land, read_record


def stage(tmp_path: Path, files: dict[str, str]) -> Path:
    staging = tmp_path / "staging"
    for path, text in files.items():
        full = staging / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)
    return staging


def test_first_landing_is_whole(tmp_path: Path) -> None:
    staging = stage(tmp_path, {"log": "1", "ckpt/a.pt": "2"})
    (staging / "latest").symlink_to("ckpt/a.pt")
    done = land(staging, tmp_path / "runs/r", accepted=["ckpt/a.pt"])
    assert not staging.exists() and sorted(done.added) == ["ckpt/a.pt", "latest", "log"]
    assert (tmp_path / "runs/r/ckpt/a.pt").read_text() == "2"
    record = read_record(tmp_path / "runs/r")
    assert record["ckpt/a.pt"]["accepted"] and not record["log"]["accepted"]


def test_pulling_a_live_run_again_replaces_what_grew_or_moved_on(tmp_path: Path) -> None:
    final = tmp_path / "r"
    first = stage(tmp_path, {"log": "one\n", "latest.pt": "step1", "best.pt": "b"})
    (first / "link").symlink_to("latest.pt")
    land(first, final)
    second = stage(tmp_path, {"log": "one\ntwo\n", "latest.pt": "step2", "best.pt": "b", "new": "n"})
    (second / "link").symlink_to("best.pt")
    inode = (final / "best.pt").stat().st_ino
    done = land(second, final)
    assert sorted(done.replaced) == ["latest.pt", "link", "log"] and done.added == ["new"] and done.kept == {}
    assert (final / "latest.pt").read_text() == "step2" and os.readlink(final / "link") == "best.pt"
    assert (final / "best.pt").stat().st_ino == inode and done.same == ["best.pt"]
    assert not second.exists() and not (final / ".outlive/old").exists()


def test_accepted_content_is_kept_when_it_is_replaced(tmp_path: Path) -> None:
    final = tmp_path / "r"
    land(stage(tmp_path, {"best.pt": "proved", "log": "a"}), final, accepted=["best.pt"])
    done = land(stage(tmp_path, {"best.pt": "other", "log": "b"}), final)
    assert done.kept == {"best.pt": ".outlive/old/1/best.pt"}
    assert (final / done.kept["best.pt"]).read_text() == "proved" and (final / "best.pt").read_text() == "other"
    again = land(stage(tmp_path, {"best.pt": "third"}), final)
    assert again.kept == {}  # the second content was never accepted
    assert (final / "log").read_text() == "b"


def test_acceptance_is_remembered_over_equal_landings(tmp_path: Path) -> None:
    final = tmp_path / "r"
    land(stage(tmp_path, {"a": "1"}), final, accepted=["a"])
    land(stage(tmp_path, {"a": "1"}), final)
    assert land(stage(tmp_path, {"a": "2"}), final).kept


def test_what_the_user_changed_or_put_there_is_kept(tmp_path: Path) -> None:
    final = tmp_path / "r"
    land(stage(tmp_path, {"metrics.json": "{}"}), final)
    (final / "metrics.json").write_text("my notes")
    (final / "mine.txt").write_text("mine")
    (final / "plot").write_text("mine too")
    done = land(stage(tmp_path, {"metrics.json": "{1}", "plot/a.png": "p"}), final)
    assert (final / done.kept["metrics.json"]).read_text() == "my notes"
    assert (final / done.kept["plot"]).read_text() == "mine too" and (final / "plot/a.png").read_text() == "p"
    assert (final / "mine.txt").read_text() == "mine"


def test_a_directory_in_the_way_of_a_file_is_kept(tmp_path: Path) -> None:
    final = tmp_path / "r"
    land(stage(tmp_path, {"out/x": "1"}), final)
    done = land(stage(tmp_path, {"out": "file now"}), final)
    assert (final / "out").read_text() == "file now" and (final / done.kept["out"] / "x").read_text() == "1"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    final, other = tmp_path / "r", tmp_path / "other"
    other.mkdir()
    land(stage(tmp_path, {"a": "1"}), final)
    (final / "ckpt").symlink_to(other)
    done = land(stage(tmp_path, {"ckpt/x": "2"}), final)
    assert not list(other.iterdir()) and (final / "ckpt/x").read_text() == "2" and "ckpt" in done.kept


def test_a_crash_in_the_middle_is_finished_by_the_next(tmp_path: Path) -> None:
    final = tmp_path / "r"
    land(stage(tmp_path, {"a": "1", "b": "1"}), final)
    staging = stage(tmp_path, {"a": "2", "b": "2"})
    os.replace(staging / "a", final / "a")  # as if killed after the first file
    done = land(staging, final)
    assert (final / "a").read_text() == (final / "b").read_text() == "2" and done.replaced == ["b"]


def test_a_file_where_the_result_should_be(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("x")
    with pytest.raises(errors.UsageError):
        land(stage(tmp_path, {"a": "1"}), tmp_path / "r")
    assert (tmp_path / "staging/a").exists()
