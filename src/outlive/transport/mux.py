"""A command over a running ssh master, asked of the master itself.

`ssh -o ControlPath=...` is a process that reads the configuration, hands its three descriptors to the master and waits.
The same is done here over the master's socket, which saves that process (about 10 ms, and most of what many boxes at
once cost this machine). The protocol is OpenSSH's, version 4 (``PROTOCOL.mux``); whatever does not answer to
it is ``Unusable`` and ssh is started as usual.
"""

from __future__ import annotations

import array
import os
import select
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import IO

VERSION = 4
PACKET_MAX_BYTES = 256 * 1024

_HELLO = 0x00000001
_NEW_SESSION = 0x10000002
_ALIVE_CHECK = 0x10000004
_PERMISSION_DENIED = 0x80000002
_FAILURE = 0x80000003
_EXIT_MESSAGE = 0x80000004
_ALIVE = 0x80000005
_SESSION_OPENED = 0x80000006

_REQUEST = 1
_NO_ESCAPE = 0xFFFFFFFF
LOST = 255
"""Status of a session whose master went away before it told one; ssh says the same."""


class Unusable(Exception):
    """Nobody there speaks this protocol: start ssh instead. Nothing was sent that could run."""


class SessionRefused(Exception):
    """The master is well and the far end, or the master, gives no session."""


class Late(Exception):
    """The master did not open the session in time: its far end may be gone."""


def alive(path: Path, timeout_s: float) -> bool:
    """Say whether a master answers at ``path``. Its far end is not asked. Raises Unusable for another protocol."""
    try:
        with _Talk(path, time.monotonic() + timeout_s) as talk:
            talk.send(struct.pack(">II", _ALIVE_CHECK, _REQUEST))
            return talk.packet()[:8] == struct.pack(">II", _ALIVE, _REQUEST)
    except (OSError, Late):
        return False


def open_session(path: Path, command: str, deadline: float) -> MuxProcess:
    """Start ``command`` over the master at ``path``; returns when the far end has opened the session.

    ``deadline`` is on ``time.monotonic``. Raises Unusable, SessionRefused, Late.
    """
    talk = None
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for keep in (1, 0, 0):
            ends = os.pipe()
            ours.append(ends[keep])
            theirs.append(ends[1 - keep])
        talk = _Talk(path, deadline)
        flags = struct.pack(">IIIII", 0, 0, 0, 0, _NO_ESCAPE)  # no terminal, X11, agent, subsystem
        talk.send(struct.pack(">II", _NEW_SESSION, _REQUEST) + _text("") + flags + _text("") + _text(command))
        for fd in theirs:
            talk.send_fd(fd)
        session = talk.opened()
    except (Unusable, SessionRefused, Late, OSError) as error:
        for fd in ours:
            os.close(fd)
        if talk is not None:
            talk.close()
        raise Unusable(str(error)) if isinstance(error, OSError) else error from None
    finally:
        for fd in theirs:
            os.close(fd)
    return MuxProcess(talk, session, ours)


class MuxProcess:
    """A session of a master, with the face of a child process (``pipes.Process``)."""

    def __init__(self, talk: _Talk, session: int, fds: list[int]) -> None:
        self._talk, self._session = talk, session
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = open(fds[0], "wb", buffering=0)
        self.stdout: IO[bytes] | None = open(fds[1], "rb", buffering=0)
        self.stderr: IO[bytes] | None = open(fds[2], "rb", buffering=0)

    def poll(self) -> int | None:
        """Return the status if the session has ended."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the status when the session has ended. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            try:
                packet = self._talk.packet(deadline)
            except Late:
                raise subprocess.TimeoutExpired("ssh", timeout or 0.0) from None
            except (OSError, Unusable):
                self.returncode = LOST
                break
            if len(packet) == 12:
                kind, session, status = struct.unpack(">III", packet)
                if kind == _EXIT_MESSAGE and session == self._session:
                    self.returncode = status & 0xFF
        self._talk.close()
        return self.returncode

    def kill(self) -> None:
        """Close the session, as the end of an ssh process would. What runs at the far end may go on."""
        self._talk.hang_up()


class _Talk:
    """One connection to a master: packets with a deadline. A context manager."""

    def __init__(self, path: Path, deadline: float) -> None:
        self._deadline: float | None = deadline
        self._buffer = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            try:
                self._socket.connect(os.fspath(path))
            except BlockingIOError:
                raise Late("its queue is full") from None
            self.send(struct.pack(">II", _HELLO, VERSION))
            hello = self.packet()
            if hello[:8] != struct.pack(">II", _HELLO, VERSION):
                raise Unusable(f"its greeting is {hello[:8].hex()}")
        except BaseException:
            self._socket.close()
            raise

    def send(self, body: bytes) -> None:
        view = memoryview(struct.pack(">I", len(body)) + body)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                self._wait(write=True)

    def send_fd(self, fd: int) -> None:
        while True:
            try:
                rights = array.array("i", [fd]).tobytes()
                self._socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                return
            except BlockingIOError:
                self._wait(write=True)

    def opened(self) -> int:
        """Return the session's number when it is open."""
        while True:
            packet = self.packet()
            kind, request = struct.unpack_from(">II", packet + b"\0" * 8)
            if request != _REQUEST:
                continue
            if kind == _SESSION_OPENED and len(packet) == 12:
                return int(struct.unpack_from(">I", packet, 8)[0])
            if kind == _FAILURE:
                raise SessionRefused(packet[12:].decode("utf-8", "replace"))
            if kind == _PERMISSION_DENIED:
                raise Unusable(packet[12:].decode("utf-8", "replace"))

    def packet(self, deadline: float | None = -1.0) -> bytes:
        """Return the next packet's body. Raises Late, Unusable when the other end has gone."""
        if deadline is None or deadline >= 0:
            self._deadline = deadline
        while True:
            if len(self._buffer) >= 4:
                (size,) = struct.unpack_from(">I", self._buffer)
                if size > PACKET_MAX_BYTES:
                    raise Unusable("a packet without measure")
                if len(self._buffer) >= 4 + size:
                    body = bytes(self._buffer[4 : 4 + size])
                    del self._buffer[: 4 + size]
                    return body
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                self._wait()
                continue
            if not data:
                raise Unusable("it hung up")
            self._buffer += data

    def _wait(self, write: bool = False) -> None:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        waiting = select.poll()
        waiting.register(self._socket, select.POLLOUT if write else select.POLLIN)
        if not waiting.poll(None if left is None else left * 1000 + (1 if left else 0)):
            raise Late("no answer")

    def hang_up(self) -> None:
        """End the connection; somebody who waits for a packet is woken."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed, or was never connected

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogateescape")
    return struct.pack(">I", len(data)) + data
