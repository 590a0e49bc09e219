"""Snapshots reach a real program of ours on this machine: once, in parts, and never wrong."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlive import errors
from outlive.onbox import code
from outlive.onbox.archive import manifest_text
from outlive.sync.patience import Patience
from outlive.sync.push import CALL, push_code
from outlive.sync.snapshot import WHOLE_BYTES, Snapshot, collect
from outlive.sync.squeeze import MEASURE_BYTES, REST_BYTES, Squeeze
from outlive.transport.agent import Agent, Frame
from outlive.transport.dialog import Dialog, dialog
from outlive.wire.names import BoxFiles


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    (top / "pkg").mkdir(parents=True)
    (top / "train.py").write_text("print('hi')\n")
    (top / "run.sh").write_bytes(b"#!/bin/sh\r\necho hi\r\n")
    (top / "run.sh").chmod(0o755)
    (top / "pkg" / "中文 '\n.py").write_text("x")
    (top / "big.bin").write_bytes(os.urandom(3 * 1024 * 1024 + 17))
    (top / "same1").write_text("same")
    (top / "same2").write_text("same")
    (top / "empty").write_text("")
    (top / "link").symlink_to("pkg")
    return top


def extracted(agent: Agent, digest: str, where: Path) -> dict[str, Any]:
    where.mkdir()
    code.extract(BoxFiles(agent.root), digest, str(where))
    found: dict[str, Any] = {}
    for entry in sorted(where.rglob("*")):
        path = str(entry.relative_to(where))
        if entry.is_symlink():
            found[path] = os.readlink(entry)
        elif entry.is_file():
            found[path] = (entry.read_bytes(), entry.stat().st_mode & 0o777)
    return found


def quick() -> Patience:
    return Patience(retries=3, wait=lambda seconds: None)


def part_of(agent: Agent) -> Path:
    (part,) = Path(agent.root, ".outlive", "code").glob("*.part")
    return part


def held_by(agent: Agent, snapshot: Snapshot) -> int:
    """How many bytes of content an earlier push left there."""
    with dialog(agent, CALL, ({"t": "is", "digest": snapshot.digest}, b"")) as spoken:
        text = manifest_text(list(snapshot.files))
        spoken.send([({"t": "files"}, text), ({"t": "want"}, b"")])
        return int(spoken.next(60)["staged"])


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The connection breaks after so many bytes of content, as often as the list says."""
    found: list[int] = []
    send = Dialog.send

    def cutting(self: Dialog, frames: Any) -> None:
        def cut(after: int) -> Iterator[Frame]:
            for header, payload in frames:
                if header["t"] == "data" and len(payload) > after:
                    yield dict(header), payload[:after]
                    # The reply is awaited with a body that never got its end: what a dead connection is to the box.
                    raise errors.Unreachable("cut on purpose")
                after -= len(payload) if header["t"] == "data" else 0
                yield header, payload
            if after >= 0:
                found.insert(0, after)

        send(self, cut(found.pop(0)) if found else frames)

    monkeypatch.setattr(Dialog, "send", cutting)
    return found


def test_first_push_then_nothing_then_only_the_change(agent: Agent, project: Path, tmp_path: Path) -> None:
    snapshot = collect(project)
    seen: list[tuple[int, int, str]] = []
    first = push_code(agent, snapshot, project, lambda *at: seen.append(at))
    assert (first.digest, first.already, first.sent_files) == (snapshot.digest, False, 6)
    assert first.sent_bytes == snapshot.total_bytes - len("same")
    assert seen[-1][0] == seen[-1][1] == first.sent_bytes
    assert [at[0] for at in seen] == sorted(at[0] for at in seen)
    there = extracted(agent, snapshot.digest, tmp_path / "work")
    assert there["run.sh"] == (b"#!/bin/sh\necho hi\n", 0o755)
    assert there["big.bin"] == ((project / "big.bin").read_bytes(), 0o644)
    assert there["link"] == "pkg" and there["pkg/中文 '\n.py"][0] == b"x" and there["empty"][0] == b""
    again = push_code(agent, snapshot, project)
    assert again.already and again.sent_bytes == 0
    (project / "train.py").write_text("print('new')\n")
    changed = collect(project)
    second = push_code(agent, changed, project)
    assert (second.sent_files, second.sent_bytes) == (1, 13)
    there = extracted(agent, changed.digest, tmp_path / "work2")
    assert there["train.py"][0] == b"print('new')\n" and there["big.bin"][0] == (project / "big.bin").read_bytes()
    with tarfile.open(BoxFiles(agent.root).snapshot(snapshot.digest)) as old:
        assert old.extractfile("train.py").read() == b"print('hi')\n"  # type: ignore[union-attr]


def test_a_file_that_is_too_large_to_be_held_is_whole(agent: Agent, project: Path, tmp_path: Path) -> None:
    (project / "large.bin").write_bytes(b"\0" * (WHOLE_BYTES + 1))
    snapshot = collect(project)
    assert "large.bin" not in snapshot.held
    push_code(agent, snapshot, project)
    assert extracted(agent, snapshot.digest, tmp_path / "work")["large.bin"][0] == b"\0" * (WHOLE_BYTES + 1)


@pytest.mark.parametrize("compress", [True, False])
def test_content_is_equal_with_and_without_compression(
    agent: Agent, project: Path, tmp_path: Path, compress: bool
) -> None:
    (project / "text").write_text("compress me please\n" * 200_000)
    snapshot = collect(project)
    done = push_code(agent, snapshot, project, compress=compress)
    assert extracted(agent, done.digest, tmp_path / "work")["text"][0] == (project / "text").read_bytes()
    if not compress:
        assert done.wire_bytes == done.sent_bytes


def test_a_cut_push_goes_on_where_it_was(agent: Agent, project: Path, tmp_path: Path, cuts: list[int]) -> None:
    snapshot = collect(project)
    cuts += [1_000_000, 1_500_000]
    done = push_code(agent, snapshot, project, patience=quick())
    assert done.cuts == 2 and done.resumed_from == 0
    assert done.sent_bytes <= snapshot.total_bytes + 2 * 256 * 1024
    assert extracted(agent, done.digest, tmp_path / "work")["big.bin"][0] == (project / "big.bin").read_bytes()


def test_a_later_command_continues_too(agent: Agent, project: Path, cuts: list[int]) -> None:
    snapshot = collect(project)
    cuts += [1_000_000]
    with pytest.raises(errors.Unreachable):
        push_code(agent, snapshot, project, patience=Patience(retries=0))
    held = held_by(agent, snapshot)
    done = push_code(agent, snapshot, project)
    assert done.resumed_from == held > 700_000
    assert done.sent_bytes == snapshot.total_bytes - len("same") - held


def test_patience_ends_without_gain(agent: Agent, project: Path, cuts: list[int]) -> None:
    cuts += [0] * 99
    waits: list[float] = []
    patience = Patience(retries=4, first_wait_s=1, longest_wait_s=3, wait=waits.append)
    with pytest.raises(errors.Unreachable):
        push_code(agent, collect(project), project, patience=patience)
    assert waits[-4:] == [1, 2, 3, 3] or waits == [1, 2, 3, 3]


def test_interrupt_leaves_what_arrived(agent: Agent, project: Path) -> None:
    snapshot = collect(project)

    def stop(done: int, total: int, path: str) -> None:
        if done > 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push_code(agent, snapshot, project, stop)
    assert push_code(agent, snapshot, project).resumed_from > 500_000


def test_a_poisoned_part_is_dropped_and_sent_anew(agent: Agent, project: Path, tmp_path: Path, cuts: list[int]) -> None:
    snapshot = collect(project)
    cuts += [1_000_000]
    with pytest.raises(errors.Unreachable):
        push_code(agent, snapshot, project, patience=Patience(retries=0))
    part = part_of(agent)
    part.write_bytes(b"\0" * part.stat().st_size)
    done = push_code(agent, snapshot, project, patience=quick())
    assert extracted(agent, done.digest, tmp_path / "work")["big.bin"][0] == (project / "big.bin").read_bytes()


@pytest.mark.parametrize("name", ["train.py", "big.bin", "pkg/gone"])
def test_a_source_that_changes_is_an_error_and_makes_no_snapshot(agent: Agent, project: Path, name: str) -> None:
    (project / "pkg/gone").write_text("soon gone")
    snapshot = collect(project)
    if name == "pkg/gone":
        (project / name).unlink()
    else:
        (project / name).write_bytes(b"#" * (project / name).stat().st_size)
    with pytest.raises(errors.Corrupt, match="changed while") as error:
        push_code(agent, snapshot, project)
    assert error.value.path == name
    assert not Path(BoxFiles(agent.root).snapshot(snapshot.digest)).exists()


def test_too_little_room_is_said_with_numbers_before_anything_is_sent(
    agent: Agent, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, send = Dialog.begin, Dialog.send

    def small(self: Dialog, *words: Any) -> None:
        begin(self, *words)
        self.answer.update(free_bytes=5_000_000, free_inodes=10)

    def nothing(self: Dialog, frames: Any) -> None:
        send(self, (frame for frame in frames if frame[0]["t"] != "data" or pytest.fail("something was sent")))

    monkeypatch.setattr(Dialog, "begin", small)
    monkeypatch.setattr(Dialog, "send", nothing)
    snapshot = collect(project)
    with pytest.raises(errors.NoSpace) as error:
        push_code(agent, snapshot, project)
    assert error.value.bytes_free == 5_000_000 and (error.value.bytes_needed or 0) > 2 * snapshot.total_bytes
    assert error.value.inodes_needed and "inodes needed" in str(error.value)


def test_a_box_that_computes_another_digest_is_not_believed(agent: Agent, project: Path) -> None:
    snapshot = collect(project)
    wrong = Snapshot(snapshot.files, "0" * 64, snapshot.total_bytes, (), snapshot.normalised)
    with pytest.raises(errors.Corrupt, match="another digest"):
        push_code(agent, wrong, project)


def test_compression_is_kept_where_it_helps_and_given_up_where_not() -> None:
    text, noise = b"some words of code\n" * 14_000, os.urandom(256 * 1024)
    slow = Squeeze()
    for _ in range(40):
        assert "z" in slow.frame(text)[0]
        slow.wrote(0.05)  # 5 MB/s
    fast = Squeeze()
    for _ in range(1 + MEASURE_BYTES // len(text)):
        fast.frame(text)
        fast.wrote(0.0)
    assert "z" not in fast.frame(text)[0]
    hard = Squeeze()
    for _ in range(MEASURE_BYTES // len(noise)):
        assert "z" not in hard.frame(noise)[0]
        hard.wrote(0.05)
    rested = 0
    while "z" not in hard.frame(text)[0]:
        hard.wrote(0.05)
        rested += len(text)
    assert abs(rested - REST_BYTES) < 2 * len(text)


def test_digest_of_contents(project: Path) -> None:
    by_path = {f["path"]: f for f in collect(project).files}
    assert by_path["big.bin"]["sha256"] == hashlib.sha256((project / "big.bin").read_bytes()).hexdigest()
