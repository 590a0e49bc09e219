"""Calls to our program on a box, over any transport.

One call is one command: ``python supervisor.pyz call`` with the request on standard input. The reply is
believed only with our nonce at its head and an end frame at its tail.
"""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

from outlive import errors
from outlive.transport import packed
from outlive.transport.again import Memory
from outlive.transport.base import Completed, Exec, Stream
from outlive.transport.pace import STALL_S, Pace, PacedReader, PacedWriter
from outlive.wire.frames import CHUNK_BYTES, Torn, read_frames, skip_to_mark, write_end, write_frame
from outlive.wire.names import DIR

Frame = tuple[dict[str, Any], bytes]


class Refused(Exception):
    """The box understood the call and did not carry it out."""

    def __init__(self, code: str, text: str, facts: dict[str, Any]) -> None:
        super().__init__(text)
        self.code = code
        self.facts = facts


class Caller(Protocol):
    """What the layers above need of a box; the in-memory twin has the same face."""

    def call(self, name: str, request: dict[str, Any] | None = None, *, timeout_s: float = 60.0) -> dict[str, Any]: ...

    def frames(self, name: str, request: dict[str, Any], *, timeout_s: float = 60.0) -> list[Frame]: ...


@dataclass
class Agent:
    """Our program on one box.

    ``root`` is the directory that holds ``.outlive``; ``python`` an interpreter ≥ 3.8 on the box.
    """

    exec: Exec
    root: str
    python: str
    _installed: bool = False
    memory: Memory | None = None
    """Where answers to polls are kept; without it every poll is answered in full."""

    @property
    def path(self) -> str:
        """Path of the program on the box; its name holds its digest, so a newer one never replaces it."""
        return f"{self.root}/{DIR}/supervisor-{packed.program_digest()}.pyz"

    def install(self) -> None:
        """Put the program, and before it what the work may import, on the box where they are not there.

        Works with nothing but a POSIX shell.
        """
        digest, data = packed.train()
        self._put(f"{self.root}/{DIR}/train-{digest}.zip", data)
        self._put(self.path, packed.program()[1])
        self._installed = True

    def _put(self, path: str, data: bytes) -> None:
        script = (
            'umask 077; mkdir -p "$1" && [ "$(wc -c <"$2" 2>/dev/null)" -eq "$3" ] 2>/dev/null && exit 0; '
            'cat >"$2.$$.part" && [ "$(wc -c <"$2.$$.part")" -eq "$3" ] && { sync "$2.$$.part" 2>/dev/null || :; } && '
            'mv -f "$2.$$.part" "$2" && exit 0; '
            'rm -f "$2.$$.part"; exit 9'
        )
        done = self.exec.run(
            ["sh", "-c", script, "install", f"{self.root}/{DIR}", path, str(len(data))], stdin=data, timeout_s=120
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise errors.NoSpace(
                f"our program ({len(data)} bytes) could not be written to {self.root}/{DIR} "
                f"on {self.exec.describe()}: {said}",
                safe="Nothing was changed on the box.",
                next=[["outlive", "up", self.exec.describe(), "--root", "DIR"]],
            )

    def words(self) -> list[str]:
        return [self.python, "-I", "-S", "-X", "utf8", self.path, "call"]

    def _request(self, name: str, request: dict[str, Any] | None) -> tuple[str, bytes]:
        # a caller that brings its own nonce compares it with the answer's
        nonce = str((request or {}).get("nonce") or os.urandom(8).hex())
        body = dict(request or {}, call=name, root=self.root, nonce=nonce)
        return nonce, json.dumps(body, ensure_ascii=True).encode("ascii") + b"\n"

    def call(self, name: str, request: dict[str, Any] | None = None, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """Call and return the one answer.

        Raises Refused, Unreachable, TimeOver; BoxLacks when the interpreter cannot run our program.
        """
        for header, payload in self.frames(name, request or {}, timeout_s=timeout_s):
            if header["t"] == "answer":
                answer: dict[str, Any] = json.loads(payload.decode("utf-8"))
                return answer
        raise errors.Unreachable(f"{self.exec.describe()} ended its reply to {name} without an answer", next=[])

    def frames(self, name: str, request: dict[str, Any], *, timeout_s: float = 60.0) -> list[Frame]:
        """Call and return every frame of the reply. Raises like ``call``."""
        if name == "poll" and self.memory is not None:
            same = self._poll_again(self.memory, request, timeout_s)
            if same is not None:
                return same
            return self.memory.keep(request, self._full("poll", dict(request, mark=True), timeout_s))
        return self._full(name, request, timeout_s)

    def _poll_again(self, memory: Memory, request: dict[str, Any], timeout_s: float) -> list[Frame] | None:
        """Poll through the mark of the last answer. None where there is none, or it did not lead to an answer."""
        kept = memory.recall(request)
        if kept is None:
            return None
        nonce, line = self._request("poll", dict(request, mark=True))
        done = self.exec.run(kept.words(self.root, nonce, self.words()), stdin=line, timeout_s=timeout_s)
        source = io.BytesIO(done.stdout)
        try:
            skip_to_mark(source, nonce)
            frames = [self._checked(f) for f in read_frames(source)]
        except Torn:
            kept.forget()  # no such file any more, no sh, a program that is not there: the usual way will say
            return None
        if frames and frames[0][0]["t"] == "same":
            return kept.again(frames[0][0], nonce)
        return memory.keep(request, frames)

    def _full(self, name: str, request: dict[str, Any], timeout_s: float) -> list[Frame]:
        for attempt in (1, 2):
            nonce, line = self._request(name, request)
            done = self.exec.run(self.words(), stdin=line, timeout_s=timeout_s)
            source = io.BytesIO(done.stdout)
            try:
                skip_to_mark(source, nonce)
                return [self._checked(f) for f in read_frames(source)]
            except Torn as torn:
                if attempt == 1 and not self._installed and self._is_missing(done):
                    self.install()
                    continue
                raise self._not_ours(torn, done.returncode, done.stderr) from torn
        raise AssertionError("unreachable")

    @staticmethod
    def _is_missing(done: Completed) -> bool:
        """Return whether the program is not there, or lost its bytes when the box lost its power: empty, or zeros."""
        if done.returncode == 2 and b"can't open file" in done.stderr:
            return True
        return not done.stdout and (not done.returncode or b"__main__" in done.stderr or b"null bytes" in done.stderr)

    def _not_ours(self, torn: Torn, returncode: int, stderr: bytes) -> errors.OutliveError:
        said = stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [str(torn)]
        if returncode in (126, 127):
            return errors.BoxLacks(
                f"{self.python} cannot be started on {self.exec.describe()}: {said[0]}",
                safe="Nothing was changed; runs on the box go on.",
                next=[["outlive", "up", self.exec.describe(), "--python", "PATH"]],
            )
        return errors.Unreachable(
            f"the reply of {self.exec.describe()} was cut: {said[0]}",
            safe="Runs on the box go on; this says nothing about them.",
        )

    @staticmethod
    def _checked(frame: Frame) -> Frame:
        header = frame[0]
        if header["t"] == "refused":
            raise Refused(header["code"], header["text"], header.get("facts", {}))
        return frame

    def send(
        self,
        name: str,
        request: dict[str, Any],
        frames: Iterable[Frame],
        *,
        timeout_s: float = 600.0,
        stall_s: float = STALL_S,
    ) -> dict[str, Any]:
        """Call with a body of frames and return the answer. Raises like ``call``.

        No byte taken for ``stall_s`` is a cut; after the last one the answer may take ``timeout_s``.
        """
        nonce, line = self._request(name, request)
        with self.exec.stream(self.words()) as stream, Pace(stall_s, lambda: _kill(stream)) as pace:
            sink = cast(IO[bytes], PacedWriter(stream.stdin, pace))
            try:
                sink.write(line)
                for header, payload in frames:
                    write_frame(sink, header, payload)
                write_end(sink)
            except BrokenPipeError:
                pass  # the far end stopped reading; what it said is in the reply, or the connection is gone
            if not pace.stalled:
                pace.allow(timeout_s)
            source = cast(IO[bytes], PacedReader(stream.stdout, pace))
            return self._read_answer(source, nonce, lambda: self._ended(stream, pace))

    def receive(self, name: str, request: dict[str, Any], *, stall_s: float = STALL_S) -> Iterator[Frame]:
        """Call and yield the frames of the reply as they arrive. Raises like ``call``.

        No byte for ``stall_s`` is a cut.
        """
        nonce, line = self._request(name, request)
        with self.exec.stream(self.words()) as stream, Pace(stall_s, lambda: _kill(stream)) as pace:
            try:
                sink = cast(IO[bytes], PacedWriter(stream.stdin, pace))
                sink.write(line)
                sink.flush()
            except BrokenPipeError:
                pass  # as above
            source = cast(IO[bytes], PacedReader(stream.stdout, pace))
            try:
                skip_to_mark(source, nonce)
                for frame in read_frames(source):
                    pace.moved()
                    yield self._checked(frame)
                    pace.moved()  # the caller's own slowness is no stall
            except Torn as torn:
                done = self._ended(stream, pace)
                raise self._not_ours(torn, done.returncode, done.stderr) from torn

    def _ended(self, stream: Stream, pace: Pace) -> Completed:
        """How a cut stream ended. Raises Unreachable where it stood still."""
        if pace.stalled:
            raise errors.Unreachable(
                f"no byte passed between here and {self.exec.describe()} for {pace.limit_s:g} s",
                place=self.exec.describe(),
                safe="Runs on the box go on; this says nothing about them.",
            )
        return stream.finish(20.0)

    def _read_answer(self, source: IO[bytes], nonce: str, finish: Callable[[], Any]) -> dict[str, Any]:
        try:
            skip_to_mark(source, nonce)
            for header, payload in read_frames(source):
                self._checked((header, payload))
                if header["t"] == "answer":
                    answer: dict[str, Any] = json.loads(payload.decode("utf-8"))
                    return answer
        except Torn as torn:
            done = finish()
            raise self._not_ours(torn, done.returncode, done.stderr) from torn
        raise errors.Unreachable(f"{self.exec.describe()} ended its reply without an answer")


def _kill(stream: Stream) -> None:
    stream.__exit__(None, None, None)


def data_frames(source: IO[bytes], limit: int | None = None) -> Iterator[Frame]:
    """Yield ``data`` frames of a file's bytes, at most ``limit`` of them."""
    left = limit
    while left is None or left > 0:
        chunk = source.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield {"t": "data"}, chunk


def shell_line(words: list[str]) -> str:
    """Return words as one line that a person can paste."""
    return shlex.join(words)
