"""One call in which both sides speak in turn: an answer decides what is sent next, without another command.

The box's half writes one ``answer`` frame for each thing that it was told, and the end frame after the last.
"""

from __future__ import annotations

import json
import threading
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from outlive import errors
from outlive.transport.agent import Agent, Frame
from outlive.transport.base import Stream
from outlive.transport.pace import STALL_S, Pace, PacedReader, PacedWriter
from outlive.wire.frames import Torn, read_frames, skip_to_mark, write_end, write_frame


class Dialog:
    """The client's half. ``answer`` is what the box said first."""

    def __init__(self, agent: Agent, stream: Stream, pace: Pace, stall_s: float) -> None:
        self._agent, self._stream, self._pace, self._stall_s = agent, stream, pace, stall_s
        self._sink = cast(IO[bytes], PacedWriter(stream.stdin, pace))
        self._source = cast(IO[bytes], PacedReader(stream.stdout, pace))
        self._frames: Iterator[Frame] = iter(())
        self.answer: dict[str, Any] = {}

    def begin(self, nonce: str, first: Frame) -> None:
        """Say the first thing and read the first answer. Raises Torn when there is none of ours."""
        limit_s = self._pace.limit_s
        self.send([first])
        if not self._pace.stalled:
            self._pace.allow(limit_s)
        skip_to_mark(self._source, nonce)
        self._frames = read_frames(self._source)
        self.answer = self._next()

    def send(self, frames: Iterable[Frame]) -> None:
        """Send frames. No byte taken for ``stall_s`` is a cut."""
        self._pace.allow(self._stall_s)
        try:
            for header, payload in frames:
                write_frame(self._sink, header, payload)
        except BrokenPipeError:
            pass  # the far end stopped reading; what it said is in the reply, or the connection is gone

    def end(self) -> None:
        """Say that nothing more comes."""
        try:
            write_end(self._sink)
        except BrokenPipeError:
            pass  # as above

    def next(self, timeout_s: float) -> dict[str, Any]:
        """Return the next answer. Raises like ``Agent.call``."""
        if not self._pace.stalled:
            self._pace.allow(timeout_s)
        try:
            return self._next()
        except Torn as torn:
            done = self._agent._ended(self._stream, self._pace)
            raise self._agent._not_ours(torn, done.returncode, done.stderr) from torn

    def _next(self) -> dict[str, Any]:
        for frame in self._frames:
            header, payload = self._agent._checked(frame)
            if header["t"] == "answer":
                answer: dict[str, Any] = json.loads(payload.decode("utf-8"))
                return answer
        raise errors.Unreachable(f"{self._agent.exec.describe()} ended its reply without an answer")


class Ahead:
    """A dialog's program, started in the background while what will be said to it is still being made.

    A context manager; what nobody took is ended. An error waits for whoever takes it.
    """

    def __init__(self, agent: Agent, name: str, request: dict[str, Any] | None = None) -> None:
        self._agent, self._name, self._request = agent, name, request
        self._nonce = ""
        self._stream: Stream | None = None
        self._error: Exception | None = None
        self._unwanted = False
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self._nonce, stream = _started(self._agent, self._name, self._request)
        except Exception as error:  # told where it can be handled
            self._error = error
            return
        self._stream = stream
        if self._unwanted:
            _kill(stream)

    def take(self) -> tuple[str, Stream] | None:
        """Return the program, once; None when it was taken. Raises what went wrong while it was started."""
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error
        stream, self._stream = self._stream, None
        return (self._nonce, stream) if stream is not None else None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._unwanted = True  # one that is still being started ends itself
        stream, self._stream = self._stream, None
        if stream is not None:
            _kill(stream)


def _started(agent: Agent, name: str, request: dict[str, Any] | None) -> tuple[str, Stream]:
    nonce, line = agent._request(name, request)
    stream = agent.exec.stream(agent.words())
    try:
        view = memoryview(line)
        while view:
            view = view[stream.stdin.write(view) or 0 :]
    except (BrokenPipeError, ValueError):
        pass  # whoever reads the reply finds out
    except BaseException:
        _kill(stream)
        raise
    return nonce, stream


@contextmanager
def dialog(
    agent: Agent,
    name: str,
    first: Frame,
    *,
    ahead: Ahead | None = None,
    timeout_s: float = 120.0,
    stall_s: float = STALL_S,
) -> Iterator[Dialog]:
    """Open a dialog with its ``first`` frame; the answer may take ``timeout_s``. Raises like ``Agent.call``."""
    for attempt in (1, 2):
        nonce, opened = (ahead.take() if ahead else None) or _started(agent, name, None)
        with opened as stream, Pace(timeout_s, lambda: _kill(stream)) as pace:
            spoken = Dialog(agent, stream, pace, stall_s)
            try:
                spoken.begin(nonce, first)
            except Torn as torn:
                done = agent._ended(stream, pace)
                if attempt == 2 or agent._installed or not agent._is_missing(done):
                    raise agent._not_ours(torn, done.returncode, done.stderr) from torn
            else:
                yield spoken
                return
        agent.install()


def _kill(stream: Stream) -> None:
    stream.__exit__(None, None, None)
