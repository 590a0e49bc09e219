"""Commit behaviour: really tried on this machine's disk, and judged for disks that behave worse."""

import errno
import os

import pytest

from outlive.probes import commit
from outlive.probes.disk import commit_behaviour, commit_mode


def test_this_disk_commits_by_rename_and_is_left_clean(tmp_path):
    (tmp_path / "kept").write_text("kept")
    found = commit_behaviour(str(tmp_path))
    assert os.listdir(str(tmp_path)) == ["kept"]
    assert set(commit.QUESTIONS) <= set(found)
    assert found["rename_over"] and found["rename_directory"] and found["exclusive_create"]
    assert all(found["why"].get(name) for name in commit.QUESTIONS if found[name] is not True)
    if found["object_store"] is False and found["directory_fsync"]:
        assert commit_mode(found) == "rename"


def test_a_place_that_cannot_be_written_is_unknown(tmp_path):
    found = commit_behaviour(str(tmp_path / "nope"))
    assert all(found[name] is None and found["why"][name] for name in commit.QUESTIONS)
    assert commit_mode(found) == "marker"


def refuse(number):
    def trial(*args, **named):
        raise OSError(number, os.strerror(number))

    return trial


def test_a_refusal_is_the_file_system_s_nature(tmp_path, monkeypatch):
    monkeypatch.setattr(commit.os, "link", refuse(errno.EPERM))
    monkeypatch.setattr(commit.os, "rename", refuse(errno.EXDEV))
    found = commit_behaviour(str(tmp_path))
    assert found["hard_links"] is False and found["rename_over"] is False
    assert found["symlinks"] is True
    assert commit_mode(found) == "marker"
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_or_failing_disk_is_unknown_not_false(tmp_path, monkeypatch, number):
    monkeypatch.setattr(commit.os, "fsync", refuse(number))
    found = commit_behaviour(str(tmp_path))
    assert found["rename_over"] is None and os.strerror(number) in found["why"]["rename_over"]
    assert os.listdir(str(tmp_path)) == []


def test_no_way_to_drop_the_cache_is_unknown(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    found = commit_behaviour(str(tmp_path))
    assert found["read_after_drop"] is None and found["why"]["read_after_drop"]


def test_mode_needs_certainty():
    good = dict.fromkeys(commit.QUESTIONS, True)
    good["object_store"] = False
    assert commit_mode(good) == "rename"
    for name, value in (
        ("rename_over", None),
        ("directory_fsync", False),
        ("rename_directory", False),
        ("object_store", True),
        ("object_store", None),
    ):
        assert commit_mode(dict(good, **{name: value})) == "marker", name
    assert commit_mode(dict(good, hard_links=False, symlinks=False)) == "rename"
    assert commit_mode({}) == "marker"
