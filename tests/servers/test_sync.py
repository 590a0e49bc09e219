"""Push and pull over real sshd boxes: without rsync, on small disks, old Pythons, and lines that break."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlive import errors
from outlive.sync.data import push_data
from outlive.sync.fetch import fetch
from outlive.sync.land import land
from outlive.sync.patience import Patience
from outlive.sync.push import push_code
from outlive.sync.snapshot import collect
from outlive.transport.address import parse
from outlive.transport.agent import Agent
from outlive.transport.ssh import SshExec

Reach = Callable[..., Agent]
LINE_KBYTE_S = 4000
"""ssh drops what it had received and not yet handed on (up to its 2 MiB window) when a connection dies. On a line that
is slower than a pipe that is little; on loopback it would be all."""


@pytest.fixture
def reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reach]:
    """`reach(box, address=..., port=...)`: an agent on a box, maybe over a bad link."""
    runtime = Path(f"/tmp/o-{os.getpid()}-{os.urandom(3).hex()}")  # short: a socket's path has a limit
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made: list[SshExec] = []

    def to(box: Any, link: Any = None, python: str = "python3", **settings: Any) -> Agent:
        at = link or box
        config = tmp_path / f"ssh-{len(made)}"
        config.write_text(f"Host *\n  IdentityFile {box.key}\n  IdentitiesOnly yes\n")
        address = parse(f"ssh://{box.user}@{at.address}:{at.port}")
        settings.setdefault("accept_new", True)
        ssh = SshExec(
            address, state_dir=tmp_path / f"state-{len(made)}", identity="box1", config_path=config, **settings
        )
        made.append(ssh)
        return Agent(ssh, "/root/o ' 中", python)

    yield to
    for ssh in made:
        ssh.close()
        ssh.disconnect()
    shutil.rmtree(runtime)


def project(top: Path, small: int = 200, big_bytes: int = 2_000_000) -> Path:
    for number in range(small):
        full = top / f"pkg{number % 20}" / f"m{number} 中'.py"
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(f"print({number})\n" * 20)
    (top / "big.bin").write_bytes(random.Random(7).randbytes(big_bytes))
    (top / "run.sh").write_bytes(b"#!/bin/sh\r\necho hi\r\n")
    return top


def quick(**settings: Any) -> Patience:
    return Patience(retries=8, first_wait_s=0.05, longest_wait_s=0.2, **settings)


def there(box: Any, path: str) -> Path:
    """A path of the box as this machine sees it."""
    return Path(box.root) / path.lstrip("/")


def equal(one: Path, two: Path) -> bool:
    def all_of(top: Path) -> dict[str, bytes]:
        return {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}

    return all_of(one) == all_of(two)


# ---- push ----


@pytest.mark.box_python("3.8")
def test_push_to_an_old_python_without_rsync(box_factory: Any, reach: Reach, tmp_path: Path) -> None:
    box = box_factory(python="3.8", no_rsync=True, no_sftp=True, noisy=True)
    agent = reach(box, python="python3.8")
    project(tmp_path / "p")
    (tmp_path / "p/a.txt").write_text("words of a kind\n" * 30_000)
    snapshot = collect(tmp_path / "p")
    done = push_code(agent, snapshot, tmp_path / "p")
    assert not done.already and done.wire_bytes < done.sent_bytes
    assert push_code(agent, snapshot, tmp_path / "p").already
    (tmp_path / "p/pkg1/new.py").write_text("x = 1\n")
    assert push_code(agent, collect(tmp_path / "p"), tmp_path / "p").sent_bytes == 6


def test_push_over_a_line_that_breaks(ssh_box: Any, reach: Reach, cut_link: Any, tmp_path: Path) -> None:
    snapshot = collect(project(tmp_path / "p", big_bytes=4_000_000))
    link = cut_link(ssh_box.address, ssh_box.port)
    agent = reach(ssh_box, link, multiplex="no")
    agent.call("hello")
    dice = random.Random(11)
    left = 4

    class Cutting(Patience):
        def cut(self, error: errors.OutliveError, gained_bytes: int) -> None:
            nonlocal left
            left -= 1
            super().cut(error, gained_bytes)
            link.set(cut_up=dice.randrange(400_000, 1_500_000) if left > 0 else 0)

    link.set(cut_up=900_000, rate_kbyte=LINE_KBYTE_S)
    patience = Cutting(retries=8, first_wait_s=0.05, longest_wait_s=0.2)
    done = push_code(agent, snapshot, tmp_path / "p", patience=patience)
    assert done.cuts >= 3 and done.digest == snapshot.digest
    # each cut may lose what was between our disk and theirs: pipes, the channel's window (2 MiB), a frame
    assert done.sent_bytes <= snapshot.total_bytes + done.cuts * 2_500_000
    assert link.stats()["up"] <= snapshot.total_bytes + done.cuts * 600_000 + 1_000_000


def test_push_over_a_line_that_goes_silent(ssh_box: Any, reach: Reach, cut_link: Any, tmp_path: Path) -> None:
    # more than buffers on the way swallow; a silence within them is found by ssh itself, after half a minute
    snapshot = collect(project(tmp_path / "p", small=3, big_bytes=12_000_000))
    link = cut_link(ssh_box.address, ssh_box.port)
    agent = reach(ssh_box, link, multiplex="no")
    agent.call("hello")
    link.set(stall_up=1_000_000)

    class Healing(Patience):
        def cut(self, error: errors.OutliveError, gained_bytes: int) -> None:
            assert "no byte passed" in error.what
            link.set(stall_up=0)
            super().cut(error, gained_bytes)

    done = push_code(agent, snapshot, tmp_path / "p", patience=Healing(retries=3, first_wait_s=0.05, stall_s=2.0))
    assert done.cuts == 1


def test_fetch_over_a_line_that_goes_silent(ssh_box: Any, reach: Reach, cut_link: Any, tmp_path: Path) -> None:
    top = made_there(ssh_box, small=3, big_bytes=3_000_000)
    link = cut_link(ssh_box.address, ssh_box.port)
    agent = reach(ssh_box, link, multiplex="no")
    entries = agent.call("tree_list", {"base": "/root/result"})["entries"]
    link.set(stall_down=1_500_000, rate_kbyte=LINE_KBYTE_S)

    class Healing(Patience):
        def cut(self, error: errors.OutliveError, gained_bytes: int) -> None:
            assert "no byte passed" in error.what and gained_bytes > 1_000_000
            link.set(stall_down=0)
            super().cut(error, gained_bytes)

    got = fetch(
        agent, "/root/result", entries, tmp_path / "s", patience=Healing(retries=3, first_wait_s=0.05, stall_s=2.0)
    )
    assert got.complete and got.cuts == 1 and equal(top, tmp_path / "s")


def test_no_room_for_the_code(box_factory: Any, reach: Reach, tmp_path: Path) -> None:
    box = box_factory(disk="tmpfs:16m:1000", memory_mb=256)
    agent = reach(box)
    agent.call("hello")
    snapshot = collect(project(tmp_path / "p", big_bytes=9_000_000))
    before = box.free_bytes()
    with pytest.raises(errors.NoSpace) as error:
        push_code(agent, snapshot, tmp_path / "p")
    assert (error.value.bytes_needed or 0) > 18_000_000
    assert abs((error.value.bytes_free or 0) - before) < 500_000
    bytecode = 300_000  # what a first call of its kind leaves of our program
    assert box.free_bytes() > before - bytecode
    with pytest.raises(errors.NoSpace):
        push_data(agent, project(tmp_path / "q", big_bytes=20_000_000), "/data")
    assert box.free_bytes() > before - bytecode and not there(box, "/data").exists()


def test_no_inodes_for_the_data(box_factory: Any, reach: Reach, tmp_path: Path) -> None:
    box = box_factory(disk="tmpfs:64m:400", memory_mb=256)
    agent = reach(box)
    agent.call("hello")
    before = box.free_inodes()
    with pytest.raises(errors.NoSpace) as error:
        push_data(agent, project(tmp_path / "p", small=before + 10, big_bytes=10), "/data", prefer="framed")
    assert error.value.inodes_free is not None and error.value.inodes_free <= before
    assert (error.value.inodes_needed or 0) > before and box.free_inodes() == before


# ---- data ----


@pytest.mark.parametrize("prefer", ["rsync", "framed"])
def test_data_both_ways(ssh_box: Any, reach: Reach, tmp_path: Path, prefer: Any) -> None:
    agent = reach(ssh_box)
    source = project(tmp_path / "p")
    (source / "-leading").write_text("dash")
    (source / "new\nline").write_text("newline")
    (source / os.fsdecode(b"\xff\xfe")).write_text("bytes")
    (source / "link").symlink_to("big.bin")
    seen: list[int] = []
    done = push_data(agent, source, "~/in put/中", lambda at, total, path: seen.append(at), prefer=prefer)
    assert done.by == prefer and done.base.endswith("/in put/中") and seen[-1] == done.bytes
    assert equal(source, there(ssh_box, done.base))
    assert os.readlink(there(ssh_box, done.base) / "link") == "big.bin"
    again = push_data(agent, source, "~/in put/中", prefer=prefer)
    assert again.by == "nothing" and again.sent_bytes == 0
    # same size, same time, another content: only a digest sees it
    old = (source / "big.bin").stat()
    (source / "big.bin").write_bytes(b"\1" * old.st_size)
    os.utime(source / "big.bin", ns=(old.st_atime_ns, old.st_mtime_ns))
    push_data(agent, source, "~/in put/中", prefer=prefer)
    assert equal(source, there(ssh_box, done.base))


def test_data_auto_without_rsync_there(box_factory: Any, reach: Reach, tmp_path: Path) -> None:
    box = box_factory(no_rsync=True)
    agent = reach(box)
    done = push_data(agent, project(tmp_path / "p", small=20), "/data")
    assert done.by == "framed" and equal(tmp_path / "p", there(box, "/data"))


def test_data_auto_where_logins_talk(box_factory: Any, reach: Reach, tmp_path: Path) -> None:
    """rsync breaks on a start-up file that prints; the data arrives all the same."""
    box = box_factory(noisy=True)
    agent = reach(box)
    done = push_data(agent, project(tmp_path / "p", small=20), "/data", patience=quick())
    assert equal(tmp_path / "p", there(box, "/data")) and done.files == 22


@pytest.mark.parametrize("prefer", ["rsync", "framed"])
def test_data_over_a_line_that_breaks(ssh_box: Any, reach: Reach, cut_link: Any, tmp_path: Path, prefer: Any) -> None:
    source = project(tmp_path / "p", small=10, big_bytes=6_000_000)
    link = cut_link(ssh_box.address, ssh_box.port)
    agent = reach(ssh_box, link, multiplex="no")
    agent.call("hello")
    cuts = 0

    class Cutting(Patience):
        def cut(self, error: errors.OutliveError, gained_bytes: int) -> None:
            nonlocal cuts
            cuts += 1
            if cuts == 3:
                link.set(cut_up=0)
            super().cut(error, gained_bytes)

    link.set(cut_up=2_200_000, rate_kbyte=LINE_KBYTE_S)
    done = push_data(
        agent, source, "/data", prefer=prefer, patience=Cutting(retries=8, first_wait_s=0.05, longest_wait_s=0.2)
    )
    assert done.cuts >= 2 and equal(source, there(ssh_box, "/data"))
    assert link.stats()["up"] <= done.bytes + done.cuts * 2_000_000
    assert not list(there(ssh_box, "/data").rglob(".outlive-part*"))


# ---- fetch ----


def made_there(box: Any, small: int, big_bytes: int) -> Path:
    top = there(box, "/root/result")
    project(top, small=small, big_bytes=big_bytes)
    return top


def test_many_small_files_both_ways(box_factory: Any, reach: Reach, tmp_path: Path) -> None:
    box = box_factory(disk="tmpfs:96m:12000", memory_mb=512)
    agent = reach(box)
    source = project(tmp_path / "p", small=5000, big_bytes=1000)
    push_code(agent, collect(source), source)
    done = push_data(agent, source, "/data", prefer="framed")
    assert done.files == 5002 and equal(source, there(box, "/data"))
    entries = agent.call("tree_list", {"base": "/data"})["entries"]
    got = fetch(agent, "/data", entries, tmp_path / "s")
    assert got.complete and got.files == 5002
    land(tmp_path / "s", tmp_path / "final")
    shutil.rmtree(tmp_path / "final/.outlive")
    assert equal(source, tmp_path / "final")


def test_fetch_over_a_line_that_breaks(ssh_box: Any, reach: Reach, cut_link: Any, tmp_path: Path) -> None:
    top = made_there(ssh_box, small=300, big_bytes=5_000_000)
    link = cut_link(ssh_box.address, ssh_box.port)
    agent = reach(ssh_box, link, multiplex="no")
    entries = agent.call("tree_list", {"base": "/root/result"})["entries"]
    dice = random.Random(5)

    class Cutting(Patience):
        def cut(self, error: errors.OutliveError, gained_bytes: int) -> None:
            super().cut(error, gained_bytes)
            link.set(cut_down=dice.randrange(300_000, 1_500_000) if self.cuts < 5 else 0)

    link.set(cut_down=700_000, rate_kbyte=LINE_KBYTE_S)
    down = link.stats()["down"]
    got = fetch(agent, "/root/result", entries, tmp_path / "s", patience=Cutting(retries=8, first_wait_s=0.05))
    assert got.complete and got.cuts >= 4 and equal(top, tmp_path / "s")
    # what arrived is kept byte for byte; a frame that was not whole is lost
    assert got.bytes_fetched <= got.bytes + got.cuts * 300_000
    assert link.stats()["down"] - down <= got.bytes + got.cuts * 400_000 + 500_000


def test_fetch_stops_when_the_line_is_gone_and_goes_on_later(
    ssh_box: Any, reach: Reach, cut_link: Any, tmp_path: Path
) -> None:
    top = made_there(ssh_box, small=3, big_bytes=3_000_000)
    link = cut_link(ssh_box.address, ssh_box.port)
    agent = reach(ssh_box, link, multiplex="no")
    entries = agent.call("tree_list", {"base": "/root/result"})["entries"]
    link.set(cut_down=1_500_000, rate_kbyte=LINE_KBYTE_S)
    with pytest.raises(errors.Unreachable):
        fetch(agent, "/root/result", entries, tmp_path / "s", patience=Patience(retries=0))
    link.set(cut_down=0)
    got = fetch(agent, "/root/result", entries, tmp_path / "s")
    assert got.complete and got.bytes_resumed > 1_000_000 and equal(top, tmp_path / "s")


@pytest.mark.box_python("3.8")
def test_fetch_from_an_old_python_with_names_of_every_kind(box_factory: Any, reach: Reach, tmp_path: Path) -> None:
    box = box_factory(python="3.8", no_rsync=True)
    top = made_there(box, small=3, big_bytes=100_000)
    for name in (b"new\nline", b"quote'\"", b"\xff\xfe", b"-rf", "中文".encode()):
        (top / os.fsdecode(name)).write_text("x")
    agent = reach(box, python="python3.8")
    entries = agent.call("tree_list", {"base": "/root/result"})["entries"]
    got = fetch(agent, "/root/result", entries, tmp_path / "s")
    assert got.complete and equal(top, tmp_path / "s")
