"""Results come home from a real program of ours on this machine; hostile boxes are played by changing its words."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlive import errors
from outlive.sync.fetch import fetch
from outlive.sync.patience import Patience
from outlive.transport.agent import Agent, Frame


@pytest.fixture
def far(tmp_path: Path) -> Path:
    top = tmp_path / "far"
    (top / "ckpt").mkdir(parents=True)
    (top / "log").write_text("line\n" * 1000)
    (top / "ckpt" / "best.pt").write_bytes(os.urandom(2_000_003))
    (top / "empty").write_text("")
    (top / "中文 '\n").write_text("x")
    (top / "ckpt" / "latest").symlink_to("best.pt")
    os.utime(top / "log", ns=(10**18, 10**18))
    return top


def entries(agent: Agent, far: Path) -> list[dict[str, Any]]:
    return list(agent.call("tree_list", {"base": str(far)})["entries"])


class Cutting(Agent):
    """Breaks off after so many bytes of content, as often as the list says; can also lie."""

    cuts: list[int]
    received = 0

    def receive(self, name: str, request: dict[str, Any], **limits: Any) -> Iterator[Frame]:
        left = self.cuts.pop(0) if self.cuts else 1 << 60
        for header, payload in super().receive(name, request, **limits):
            self.received += len(payload)
            left -= len(payload)
            if left < 0:
                raise errors.Unreachable("cut on purpose")
            yield header, payload


def cutting(agent: Agent, *cuts: int) -> Cutting:
    made = Cutting(agent.exec, agent.root, agent.python)
    made.cuts = list(cuts)
    return made


def quick() -> Patience:
    return Patience(retries=3, wait=lambda seconds: None)


def test_all_of_it_comes_home_once(agent: Agent, far: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    wanted = entries(agent, far)
    got = fetch(agent, str(far), wanted, tmp_path / "s", progress=lambda *at: seen.append(at))
    assert got.complete and got.files == 4 and got.bytes == got.bytes_fetched == seen[-1][0] == seen[-1][1]
    for path in ("log", "ckpt/best.pt", "empty", "中文 '\n"):
        assert (tmp_path / "s" / path).read_bytes() == (far / path).read_bytes()
    assert os.readlink(tmp_path / "s/ckpt/latest") == "best.pt"
    assert (tmp_path / "s/log").stat().st_mtime_ns == 10**18
    assert not (tmp_path / "s.parts").exists()
    again = fetch(agent, str(far), wanted, tmp_path / "s")
    assert again.bytes_fetched == 0 and again.bytes_resumed == got.bytes and again.complete


def test_cuts_cost_little(agent: Agent, far: Path, tmp_path: Path) -> None:
    bad = cutting(agent, 300_000, 700_000, 0, 900_000)
    got = fetch(bad, str(far), entries(agent, far), tmp_path / "s", patience=quick())
    assert got.complete and got.cuts == 4
    assert (tmp_path / "s/ckpt/best.pt").read_bytes() == (far / "ckpt/best.pt").read_bytes()
    assert bad.received <= got.bytes + 4 * 256 * 1024


def test_only_proved_bytes_have_their_final_name(agent: Agent, far: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.Unreachable):
        fetch(cutting(agent, 900_000), str(far), entries(agent, far), tmp_path / "s", patience=Patience(retries=0))
    assert not (tmp_path / "s/ckpt/best.pt").exists() and (tmp_path / "s/log").exists()
    got = fetch(agent, str(far), entries(agent, far), tmp_path / "s")
    assert got.complete and got.bytes_resumed > 500_000 and got.bytes_fetched < 1_500_000


def test_a_spoiled_part_is_fetched_anew(agent: Agent, far: Path, tmp_path: Path) -> None:
    wanted = entries(agent, far)
    with pytest.raises(errors.Unreachable):
        fetch(cutting(agent, 900_000), str(far), wanted, tmp_path / "s", patience=Patience(retries=0))
    (part,) = (p for p in (tmp_path / "s.parts").iterdir())
    part.write_bytes(b"\0" * part.stat().st_size)
    got = fetch(agent, str(far), wanted, tmp_path / "s")
    assert got.complete and (tmp_path / "s/ckpt/best.pt").read_bytes() == (far / "ckpt/best.pt").read_bytes()


def test_changed_short_and_gone_are_named_and_the_rest_comes(agent: Agent, far: Path, tmp_path: Path) -> None:
    for name in ("changed", "short", "gone", "grown"):
        (far / name).write_text("as recorded")
    wanted = entries(agent, far)
    (far / "changed").write_text("AS recorded")
    (far / "short").write_text("as")
    (far / "gone").unlink()
    (far / "grown").write_text("as recorded and more")
    got = fetch(agent, str(far), wanted, tmp_path / "s")
    assert set(got.wrong) == {"changed", "short", "gone"} and not got.complete
    assert "shorter" in got.wrong["short"] and "another content" in got.wrong["changed"]
    assert (tmp_path / "s/grown").read_text() == "as recorded"
    assert not any((tmp_path / "s" / name).exists() for name in ("changed", "short", "gone"))


def item(path: str, data: bytes = b"x", **more: Any) -> dict[str, Any]:
    return {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}


@pytest.mark.parametrize("path", ["../evil", "/tmp/evil", "a/../../evil", "", "a\0b", ".outlive/landed.json"])
def test_names_that_leave_the_directory_are_refused(agent: Agent, far: Path, tmp_path: Path, path: str) -> None:
    got = fetch(agent, str(far), [item(path)], tmp_path / "deep" / "s")
    assert list(got.wrong) == [path] and "refused" in got.wrong[path]
    assert not list(tmp_path.rglob("evil"))


def test_no_link_leads_out_however_it_is_built(agent: Agent, far: Path, tmp_path: Path) -> None:
    (far / "d").mkdir()
    (far / "d/x").write_text("x")
    links = {
        "abs": "/etc/passwd",
        "up": "../outside",
        "d/in": "../log",
        "a/b/c/short": "../../..",
        "chain": "a/b/c/short/../..",
        "home": str(far / "log"),
    }
    wanted = [*entries(agent, far), *({"path": p, "bytes": 0, "link": to} for p, to in links.items())]
    got = fetch(agent, str(far), wanted, tmp_path / "s")
    assert set(got.links_outside) == {"abs", "up", "chain"} and got.complete
    assert (tmp_path / "s/abs.outlive-link").read_text() == "/etc/passwd\n"
    assert os.readlink(tmp_path / "s/home") == "log" and (tmp_path / "s/d/in").read_text().startswith("line")
    for found in (tmp_path / "s").rglob("*"):
        assert str(found.resolve()).startswith(str(tmp_path / "s"))


def test_a_file_is_never_written_through_a_link(agent: Agent, far: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / "s").mkdir()
    (tmp_path / "s/ckpt").symlink_to(victim)
    got = fetch(agent, str(far), entries(agent, far), tmp_path / "s")
    assert got.complete and not list(victim.iterdir()) and not (tmp_path / "s/ckpt").is_symlink()


def test_a_box_that_sends_more_or_other_than_asked_is_stopped(agent: Agent, far: Path, tmp_path: Path) -> None:
    class Liar(Agent):
        frames_to_send: list[Frame] = []

        def receive(self, name: str, request: dict[str, Any], **limits: Any) -> Iterator[Frame]:
            yield from self.frames_to_send

    liar = Liar(agent.exec, agent.root, agent.python)
    for frames in (
        [({"t": "file", "path": "b"}, b"")],
        [({"t": "file", "path": "a"}, b""), ({"t": "data"}, b"x" * 100)],
        [],
    ):
        liar.frames_to_send = frames
        with pytest.raises(errors.PlaceError):
            fetch(liar, str(far), [item("a")], tmp_path / "s")
    assert not (tmp_path / "s/a").exists() and not (tmp_path / "s/b").exists()


def test_an_earlier_result_spares_the_line(agent: Agent, far: Path, tmp_path: Path) -> None:
    fetch(agent, str(far), entries(agent, far), tmp_path / "first")
    with open(far / "log", "a") as log:
        log.write("more\n")
    (far / "empty").write_text("now full")
    got = fetch(agent, str(far), entries(agent, far), tmp_path / "second", known=tmp_path / "first")
    assert got.complete and got.bytes_fetched == len("more\n") + len("now full")
    assert (tmp_path / "second/log").read_bytes() == (far / "log").read_bytes()


def test_too_little_room_here_is_said_before_anything_is_written(agent: Agent, far: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.NoSpace) as error:
        fetch(agent, str(far), [dict(item("a"), bytes=1 << 60)], tmp_path / "s")
    assert (error.value.bytes_needed or 0) > (error.value.bytes_free or 0) > 0
    assert not (tmp_path / "s").exists()
