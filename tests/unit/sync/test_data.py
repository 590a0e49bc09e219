"""Data goes to a real program of ours on this machine, framed; rsync needs ssh and is tried on real servers."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlive import errors
from outlive.onbox import scan, trees
from outlive.onbox.seen import settled
from outlive.sync import data
from outlive.sync.data import push_data
from outlive.sync.patience import Patience
from outlive.transport.agent import Agent, Frame
from outlive.transport.dialog import Dialog
from outlive.wire.frames import write_end, write_frame
from outlive.wire.names import BoxFiles


@pytest.fixture
def agent(agent: Agent) -> Agent:
    """An agent on a box that was met: it takes note of what is pushed."""
    agent.call("hello")
    return agent


@pytest.fixture
def src(tmp_path: Path) -> Path:
    top = tmp_path / "src"
    (top / "sub/.hidden").mkdir(parents=True)
    (top / "big").write_bytes(os.urandom(1_500_001))
    (top / "sub/.hidden/中文 '\n").write_text("x")
    (top / "twin1").write_bytes(b"t" * 300_000)
    (top / "twin2").write_bytes(b"t" * 300_000)
    (top / "empty").touch()
    (top / "tmp.tmp").write_text("data, whatever it is called")
    (top / "link").symlink_to("big")
    (top / "big").chmod(0o640)
    return top


def same(one: Path, two: Path) -> bool:
    def all_of(top: Path) -> dict[str, object]:
        return {
            str(p.relative_to(top)): os.readlink(p) if p.is_symlink() else (p.read_bytes(), p.stat().st_mode)
            for p in top.rglob("*")
            if p.is_symlink() or p.is_file()
        }

    return all_of(one) == all_of(two)


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The connection breaks after so many bytes of content, as often as the list says."""
    found: list[int] = []
    send = Dialog.send

    def cutting(self: Dialog, frames: Any) -> None:
        def cut(after: int) -> Iterator[Frame]:
            for header, payload in frames:
                after -= len(payload)
                if after < 0:
                    raise errors.Unreachable("cut on purpose")
                yield header, payload

        asks = isinstance(frames, list)
        send(self, frames if asks or not found else cut(found.pop(0)))

    monkeypatch.setattr(Dialog, "send", cutting)
    return found


def test_a_directory_and_then_nothing(agent: Agent, src: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst"
    seen: list[tuple[int, int, str]] = []
    done = push_data(agent, src, str(dst), lambda *at: seen.append(at))
    assert same(src, dst) and done.by == "framed" and done.files == 7
    assert seen[-1][0] == seen[-1][1] == done.bytes == done.sent_bytes
    again = push_data(agent, src, str(dst))
    assert (again.sent_bytes, again.by, again.already_files) == (0, "nothing", 7)
    (src / "big").write_bytes(b"other")
    (dst / "theirs").write_text("stays")
    assert push_data(agent, src, str(dst)).sent_bytes == 5
    assert (dst / "big").read_bytes() == b"other" and (dst / "theirs").exists()


def test_a_file_to_a_name_or_into_a_directory(agent: Agent, src: Path, tmp_path: Path) -> None:
    push_data(agent, src / "big", str(tmp_path / "d/new-name"))
    assert (tmp_path / "d/new-name").read_bytes() == (src / "big").read_bytes()
    assert push_data(agent, src / "big", str(tmp_path / "e") + "/").base == str(tmp_path / "e")
    push_data(agent, src / "empty", str(tmp_path / "e"))
    assert sorted(os.listdir(tmp_path / "e")) == ["big", "empty"]


def test_cuts_cost_little(agent: Agent, src: Path, tmp_path: Path, cuts: list[int]) -> None:
    cuts += [400_000, 900_000, 600_000]
    done = push_data(agent, src, str(tmp_path / "dst"), patience=Patience(retries=3, wait=lambda s: None))
    assert same(src, tmp_path / "dst") and done.cuts == 3
    # the box keeps what it read; what was on the way when the line broke is sent again
    assert done.sent_bytes <= done.bytes + 3 * 512 * 1024
    assert not list((tmp_path / "dst").rglob(".outlive-part*"))


def test_a_half_file_is_continued_by_the_next_command(agent: Agent, src: Path, tmp_path: Path, cuts: list[int]) -> None:
    cuts += [1_000_000]
    with pytest.raises(errors.Unreachable):
        push_data(agent, src / "big", str(tmp_path / "big"), patience=Patience(retries=0))
    assert not (tmp_path / "big").exists()
    done = push_data(agent, src / "big", str(tmp_path / "big"))
    assert done.resumed_from > 500_000 and done.sent_bytes == done.bytes - done.resumed_from


def test_a_source_that_changes_is_named(agent: Agent, src: Path, tmp_path: Path) -> None:
    def change(done: int, total: int, path: str) -> None:
        (src / "twin2").write_bytes(b"changed")

    with pytest.raises(errors.Corrupt) as error:
        push_data(agent, src, str(tmp_path / "dst"), change)
    assert error.value.path == "twin2" and not (tmp_path / "dst/twin2").exists()


def test_bad_words(agent: Agent, src: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="absolute"):
        push_data(agent, src, "relative/path")
    with pytest.raises(errors.UsageError, match="there is no"):
        push_data(agent, src / "nothing", "/tmp/x")
    with pytest.raises(errors.BoxLacks, match="rsync"):
        push_data(agent, src, str(tmp_path / "d"), prefer="rsync")


def test_too_little_room(agent: Agent, src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Dialog.begin

    def small(self: Dialog, *words: Any) -> None:
        begin(self, *words)
        self.answer.update(free_bytes=2_000_000, free_inodes=8)

    monkeypatch.setattr(Dialog, "begin", small)
    with pytest.raises(errors.NoSpace) as error:
        push_data(agent, src, str(tmp_path / "dst"))
    assert (error.value.bytes_needed or 0) > 2_000_000 and error.value.inodes_free == 8
    assert not (tmp_path / "dst").exists()


class Digested:
    """Which files are read for their digests: here before sending, and on the box."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here: list[str] = []
        digest = data._digest

        def noted(job: Any, path: str) -> None:
            self.here.append(path)
            digest(job, path)

        monkeypatch.setattr(data, "_digest", noted)


def rest(top: Path) -> None:
    """Wait until the times of all files are old enough to be believed."""
    until = time.monotonic() + 60
    while not all(settled(os.lstat(path), time.time_ns()) for path in top.rglob("*")):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_unchanged_data_is_read_nowhere_and_changed_data_is_found(
    agent: Agent, src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dst, digested = tmp_path / "dst", Digested(monkeypatch)

    def push(**options: Any) -> tuple[int, list[str]]:
        digested.here.clear()
        done = push_data(agent, src, str(dst), seen_dir=tmp_path / "seen", **options)
        return done.sent_bytes, sorted(digested.here)

    rest(src)
    assert push() == (sum(p.stat().st_size for p in src.rglob("*") if p.is_file() and not p.is_symlink()), [])
    rest(dst)
    assert push() == (0, []) and push() == (0, [])
    # the box now believes its record; whoever reads everything does not
    assert push(verify=True) == (0, ["big", "empty", "sub/.hidden/中文 '\n", "tmp.tmp", "twin1", "twin2"])
    # the same size and the same time, and yet another content: here, and there
    for top in (src, dst):
        info = os.stat(top / "twin1")
        (top / "twin1").write_bytes((b"T" if top == src else b"D") * 300_000)
        os.utime(top / "twin1", ns=(info.st_atime_ns, info.st_mtime_ns))
        assert push()[0] == 300_000 and same(src, dst)
        rest(dst)
        assert push() == (0, [])


def test_a_lying_record_on_the_box_is_found_by_reading(agent: Agent, src: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst"
    push_data(agent, src, str(dst))
    rest(dst)
    push_data(agent, src, str(dst))
    (record,) = Path(agent.root, ".outlive/seen").iterdir()
    true = record.read_bytes()
    (dst / "big").write_bytes(b"#" * (dst / "big").stat().st_size)
    for harm in (b"", true[:-1], true.replace(b'"about"', b'"About"')):
        record.write_bytes(harm)
        push_data(agent, src, str(dst))
        assert same(src, dst)


def test_what_was_just_written_is_believed_when_it_was_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "REMEMBER_BYTES", 10)
    box, base = BoxFiles(str(tmp_path)), str(tmp_path / "dst")
    os.makedirs(box.dir)
    Path(box.box_id).write_text("0" * 32 + "\n")
    sha256 = hashlib.sha256(b"content of it").hexdigest()
    entry: dict[str, Any] = {"path": "f", "bytes": 13, "sha256": sha256, "mode": 0o600, "mtime_ns": 10**18 + 7}
    said: list[dict[str, Any]] = []
    frames = io.BytesIO()
    write_frame(frames, {"t": "have"}, json.dumps({"base": base, "entries": [entry]}).encode())
    write_frame(frames, {"t": "file", "offset": 0, **entry})
    write_frame(frames, {"t": "data"}, b"content of it")
    write_frame(frames, {"t": "claim", "paths": [base]})
    write_end(frames)
    frames.seek(0)
    trees.push(box, frames, said.append)
    assert said[1] == {"written": ["f"], "wrong": {}, "claimed": True} and scan.claims(box)
    monkeypatch.setattr(trees, "_digest", lambda *words: pytest.fail("it was read again"))
    again = {"base": base, "entries": [entry]}
    assert trees.have(again, f"{box.dir}/seen")["have"] == ["f"]
    # somebody else's write since, with the time that we gave it
    (tmp_path / "dst/f").write_bytes(b"CONTENT OF IT")
    os.utime(tmp_path / "dst/f", ns=(0, 10**18 + 7))
    monkeypatch.undo()
    assert trees.have(again, f"{box.dir}/seen")["have"] == []


def test_a_growing_source_never_gets_a_name_there(agent: Agent, src: Path, tmp_path: Path) -> None:
    def grow(done: int, total: int, path: str) -> None:
        if path == "big":
            with open(src / "big", "ab") as out:
                out.write(b"more")

    with pytest.raises(errors.Corrupt) as error:
        push_data(agent, src, str(tmp_path / "dst"), grow)
    assert error.value.path == "big" and not (tmp_path / "dst/big").exists()
