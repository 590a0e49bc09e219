"""Speaking to a master of ssh, against a stand-in; against the real one: tests/servers/test_ssh.py."""

from __future__ import annotations

import array
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlive.transport import mux, pipes

HELLO = struct.pack(">II", 1, 4)


@pytest.fixture
def path() -> Iterator[Path]:
    # not pytest's own directory: a socket's path is limited to about a hundred bytes
    place = Path(tempfile.mkdtemp(prefix="o-mux-", dir="/tmp"))
    yield place / "s"
    shutil.rmtree(place)


class Peer:
    """The master's end of one connection."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.fds: list[int] = []

    def send(self, *words: int, text: str | None = None) -> None:
        body = struct.pack(f">{len(words)}I", *words)
        if text is not None:
            body += struct.pack(">I", len(text)) + text.encode()
        self.end.sendall(struct.pack(">I", len(body)) + body)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.end.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def packet(self) -> bytes:
        return self.exactly(struct.unpack(">I", self.exactly(4))[0])

    def greet(self) -> None:
        self.send(1, 4)
        assert self.packet() == HELLO

    def asked(self) -> str:
        """Take a session's request and its descriptors; its command."""
        body = self.packet()
        assert struct.unpack(">II", body[:8]) == (0x10000002, 1)
        assert body[8:32] == struct.pack(">IIIIII", 0, 0, 0, 0, 0, 0xFFFFFFFF)
        (size,) = struct.unpack(">I", body[36:40])
        for _ in range(3):
            data, extra, _, _ = self.end.recvmsg(1, socket.CMSG_LEN(4))
            assert data == b"\0"
            self.fds += array.array("i", extra[0][2])
        return body[40 : 40 + size].decode()

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()
        self.end.close()


def master(path: Path, behave: Callable[[Peer], None]) -> threading.Thread:
    """Answer one connection; what the stand-in asserts comes back from `join`."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    listener.listen(1)

    def serve() -> None:
        end, _ = listener.accept()
        listener.close()
        peer = Peer(end)
        try:
            behave(peer)
        finally:
            peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def soon() -> float:
    return time.monotonic() + 60


def test_a_session_carries_bytes_and_a_status(path: Path) -> None:
    seen: list[str] = []

    def behave(peer: Peer) -> None:
        peer.greet()
        seen.append(peer.asked())
        peer.send(0x80000006, 1, 7)
        stdin, stdout, stderr = peer.fds
        os.write(stdout, os.read(stdin, 100).upper())
        os.write(stderr, b"words")
        peer.send(0x80000004, 7, 3)

    thread = master(path, behave)
    process = mux.open_session(path, "say émile", soon())
    out, err = bytearray(), bytearray()
    ended = pipes.drive(process, b"here", soon, out.extend, err.extend)
    thread.join(60)
    assert (seen, bytes(out), bytes(err), ended.returncode) == (["say émile"], b"HERE", b"words", 3)
    pipes.end(process)


def test_a_refused_session_is_told_apart(path: Path) -> None:
    def behave(peer: Peer) -> None:
        peer.greet()
        peer.asked()
        peer.send(0x80000003, 1, text="Session open refused by peer")

    master(path, behave)
    with pytest.raises(mux.SessionRefused, match="refused by peer"):
        mux.open_session(path, "true", soon())


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(lambda peer: peer.send(1, 5), id="another version"),
        pytest.param(lambda peer: peer.end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), id="another protocol"),
        pytest.param(lambda peer: None, id="hangs up"),
        pytest.param(lambda peer: (peer.greet(), peer.asked()), id="dies with the request in hand"),
        pytest.param(lambda peer: (peer.greet(), peer.asked(), peer.send(0x80000002, 1, text="no")), id="denies"),
    ],
)
def test_what_is_no_such_master_is_left_to_ssh(path: Path, behave: Callable[[Peer], None]) -> None:
    before = len(os.listdir("/dev/fd"))
    thread = master(path, behave)
    with pytest.raises(mux.Unusable):
        mux.open_session(path, "true", soon())
    thread.join(60)
    assert len(os.listdir("/dev/fd")) <= before + 1, "descriptors are left open"


def test_no_socket_is_left_to_ssh_and_is_not_alive(path: Path) -> None:
    with pytest.raises(mux.Unusable):
        mux.open_session(path, "true", soon())
    assert not mux.alive(path, 1.0)


def test_a_master_that_says_nothing_is_late(path: Path) -> None:
    over = threading.Event()

    def behave(peer: Peer) -> None:
        peer.greet()
        over.wait(60)

    thread = master(path, behave)
    with pytest.raises(mux.Late):
        mux.open_session(path, "true", time.monotonic() + 0.2)
    over.set()
    thread.join(60)


def test_a_master_that_dies_under_a_command_is_lost(path: Path) -> None:
    def behave(peer: Peer) -> None:
        peer.greet()
        peer.asked()
        peer.send(0x80000006, 1, 7)

    thread = master(path, behave)
    process = mux.open_session(path, "true", soon())
    thread.join(60)
    assert process.wait(60) == mux.LOST and process.poll() == mux.LOST
    pipes.end(process)


def test_killing_wakes_who_waits(path: Path) -> None:
    over = threading.Event()

    def behave(peer: Peer) -> None:
        peer.greet()
        peer.asked()
        peer.send(0x80000006, 1, 7)
        over.wait(60)

    thread = master(path, behave)
    process = mux.open_session(path, "true", soon())
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    waiting = threading.Thread(target=process.wait, daemon=True)
    waiting.start()
    process.kill()
    waiting.join(60)
    assert not waiting.is_alive() and process.returncode == mux.LOST
    over.set()
    thread.join(60)
    pipes.end(process)


def test_alive_asks_the_master(path: Path) -> None:
    def behave(peer: Peer) -> None:
        peer.greet()
        assert struct.unpack(">II", peer.packet()) == (0x10000004, 1)
        peer.send(0x80000005, 1, 4711)

    master(path, behave)
    assert mux.alive(path, 60)
