"""What was read once is not read again, and nothing that changed is taken for what it was."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from outlive.onbox import seen as seen_module
from outlive.onbox.seen import MOST_RECORDS, Seen, settled
from outlive.sync import snapshot
from outlive.sync.cautions import SecretsFound
from outlive.sync.snapshot import Rules, collect


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    (top / "pkg").mkdir(parents=True)
    (top / "train.py").write_text("print('hi')\n")
    (top / "run.sh").write_bytes(b"#!/bin/sh\r\necho hi\r\n")
    (top / "pkg" / "a.py").write_text(f"KEY = 'hf_{'aB3' * 10}'\n")
    (top / os.fsdecode(b"\xff name")).write_text("x")
    rest(top)
    return top


def rest(top: Path) -> None:
    """Wait until the times of all files are old enough to be believed."""
    until = time.monotonic() + 60
    while not all(settled(os.lstat(path), time.time_ns()) for path in top.rglob("*")):
        assert time.monotonic() < until
        time.sleep(0.02)


class Reads:
    """Which files are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        look_at = snapshot._look_at

        def noted(full: str, path: str, *rest: Any) -> list[Any]:
            self.paths.append(path)
            return look_at(full, path, *rest)

        monkeypatch.setattr(snapshot, "_look_at", noted)

    def of(self, *args: Any) -> tuple[snapshot.Snapshot, list[str]]:
        self.paths.clear()
        return collect(*args), sorted(self.paths)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def test_an_unchanged_tree_is_not_read_and_says_the_same(project: Path, tmp_path: Path, reads: Reads) -> None:
    plain = collect(project)
    first, read = reads.of(project, None, tmp_path / "seen")
    assert len(read) == 4 and first == plain
    again, read = reads.of(project, None, tmp_path / "seen")
    assert read == [] and again == plain
    assert any(isinstance(w, SecretsFound) for w in again.warnings) and again.normalised == {"run.sh"}
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "seen").iterdir()} == {0o600}


def test_a_change_is_seen_also_with_its_old_size_and_time(project: Path, tmp_path: Path, reads: Reads) -> None:
    collect(project, None, tmp_path / "seen")
    before = os.stat(project / "train.py")
    (project / "train.py").write_text("print('ho')\n")
    os.utime(project / "train.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    changed, read = reads.of(project, None, tmp_path / "seen")
    assert read == ["train.py"] and changed.digest == collect(project).digest
    # another file with the same size and time under the same name
    (project / "other").write_text("print('ha')\n")
    os.utime(project / "other", ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(project / "other", project / "train.py")
    changed, read = reads.of(project, None, tmp_path / "seen")
    assert read == ["train.py"] and changed.digest == collect(project).digest


def test_mode_links_and_what_is_gone_come_from_the_disk(project: Path, tmp_path: Path, reads: Reads) -> None:
    collect(project, None, tmp_path / "seen")
    (project / "train.py").chmod(0o755)
    (project / "pkg/a.py").unlink()
    (project / "pkg/a.py").symlink_to("../train.py")
    now, _ = reads.of(project, None, tmp_path / "seen")
    assert now.files == collect(project).files


def test_a_file_of_this_very_moment_is_read_again(
    project: Path, tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = os.stat(project / "train.py").st_ctime_ns
    with monkeypatch.context() as patched:
        patched.setattr(snapshot.time, "time_ns", lambda: stamp + 1_000_000)
        collect(project, None, tmp_path / "seen")
    _, read = reads.of(project, None, tmp_path / "seen")
    assert "train.py" in read


def test_times_of_full_seconds_must_be_older(tmp_path: Path) -> None:
    class Info:
        st_mtime_ns = 1_000_000_000_000
        st_ctime_ns = 900_000_000_001

    assert not settled(Info(), Info.st_mtime_ns + 2_000_000_000)  # type: ignore[arg-type]
    assert settled(Info(), Info.st_mtime_ns + 2_200_000_000)  # type: ignore[arg-type]
    Info.st_mtime_ns += 1
    assert settled(Info(), Info.st_mtime_ns + 200_000_000)  # type: ignore[arg-type]
    assert not settled(Info(), Info.st_mtime_ns + 30_000_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("harm", ["empty", "cut", "bit", "garbage", "other tree", "shape"])
def test_a_record_that_is_not_right_counts_as_none(project: Path, tmp_path: Path, reads: Reads, harm: str) -> None:
    collect(project, None, tmp_path / "seen")
    (record,) = (tmp_path / "seen").iterdir()
    data = record.read_bytes()
    head, body = data.split(b"\n", 1)
    if harm == "other tree":
        data = json.dumps({**json.loads(head), "about": ["/elsewhere", "x"]}).encode() + b"\n" + body
    bad = {
        "empty": b"",
        "cut": data[:-9],
        "bit": data[:-20] + b"!" + data[-19:],
        "garbage": b"\xff\n{",
        "shape": b"[]\n",
    }
    record.write_bytes(bad.get(harm, data))
    now, read = reads.of(project, None, tmp_path / "seen")
    assert len(read) == 4 and now == collect(project)


def test_other_rules_read_everything_again(
    project: Path, tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(project, None, tmp_path / "seen")
    kept, read = reads.of(project, Rules(crlf="keep"), tmp_path / "seen")
    assert len(read) == 4 and not kept.normalised
    collect(project, None, tmp_path / "seen")
    monkeypatch.setattr(snapshot, "_rules", lambda: "another version")
    assert len(reads.of(project, None, tmp_path / "seen")[1]) == 4


def test_a_place_that_cannot_be_written_only_costs_time(project: Path, tmp_path: Path, reads: Reads) -> None:
    (tmp_path / "file").write_text("")
    assert collect(project, None, tmp_path / "file") == collect(project)


def test_records_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("x")
    old = path.stat().st_ctime_ns + 10**10
    for number in range(MOST_RECORDS + 5):
        seen = Seen(str(tmp_path / "seen"), f"/tree{number}", "r")
        seen.put("f", path.stat(), old, "digest")
        seen.save()
        os.utime(seen._path, (number + 1, number + 1))
    assert len(os.listdir(tmp_path / "seen")) == MOST_RECORDS
    assert Seen(str(tmp_path / "seen"), f"/tree{MOST_RECORDS + 4}", "r").get("f", path.stat()) == ["digest"]
    monkeypatch.setattr(seen_module, "MOST_FILES", 0)
    seen = Seen(str(tmp_path / "seen"), "/large", "r")
    seen.put("f", path.stat(), old, "digest")
    seen.save()
    assert Seen(str(tmp_path / "seen"), "/large", "r").get("f", path.stat()) is None


def test_forgotten_is_forgotten_and_kept_is_kept(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    info = {name: (tmp_path / name).stat() for name in "ab"}
    seen = Seen(str(tmp_path / "seen"), "/t", "r")
    for name in "ab":
        seen.put(name, info[name], info[name].st_ctime_ns + 10**10, name)
    seen.save()
    part = Seen(str(tmp_path / "seen"), "/t", "r")
    assert part.get("a", info["a"]) == ["a"]
    part.keep()
    part.save()
    assert Seen(str(tmp_path / "seen"), "/t", "r").get("b", info["b"]) == ["b"]
    part.forget()
    assert Seen(str(tmp_path / "seen"), "/t", "r").get("a", info["a"]) is None
