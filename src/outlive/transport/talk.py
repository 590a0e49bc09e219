"""Several calls to one program on a box, one after the other, over one command.

Starting the interpreter and opening a session cost more than most answers; a verb that asks several things in a row
pays for them once. Each answer is believed as every other is: its own nonce at its head, an end frame at its tail.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO, Any, cast

from outlive import errors
from outlive.transport.agent import Agent, Frame
from outlive.transport.base import Stream
from outlive.transport.pace import STALL_S, Pace, PacedReader, PacedWriter
from outlive.wire.frames import Torn, read_frames, skip_to_mark

LAST_WORDS_S = 20.0


@dataclass
class Talk(Agent):
    """An agent whose calls share one program; ``send`` still has one of its own.

    What fails or is given up half way ends that program, and the next call starts another one. A context manager.
    """

    _stream: Stream | None = None
    _owed: list[str] = field(default_factory=list)
    """Nonces of posted requests whose answers were not read yet."""

    @classmethod
    def of(cls, agent: Agent) -> Talk:
        return cls(agent.exec, agent.root, agent.python, agent._installed)

    def frames(self, name: str, request: dict[str, Any], *, timeout_s: float = 60.0) -> list[Frame]:
        """See ``Agent.frames``."""
        return list(self._exchange(name, request, timeout_s, late=True))

    def receive(self, name: str, request: dict[str, Any], *, stall_s: float = STALL_S) -> Iterator[Frame]:
        """See ``Agent.receive``."""
        return self._exchange(name, request, stall_s, late=False)

    def post(self, name: str, request: dict[str, Any]) -> None:
        """Ask without waiting for the answer; ``close`` sees to it that it was carried out, or could not be."""
        if self._stream is None:
            self.call(name, request, timeout_s=LAST_WORDS_S)
            return
        nonce, line = self._request(name, dict(request, more=True))
        self._owed.append(nonce)
        with Pace(LAST_WORDS_S, self._drop) as pace:
            _write(self._stream, line, pace)

    def close(self) -> None:
        """Read what is owed and end the program. Raises nothing: what was posted may be lost with a connection."""
        stream = self._stream
        if stream is not None and self._owed:
            with Pace(LAST_WORDS_S, self._drop) as pace, suppress(Torn):
                self._settle(stream, pace)
        self._drop()

    def __enter__(self) -> Talk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, name: str, request: dict[str, Any], limit_s: float, late: bool) -> Iterator[Frame]:
        fresh = self._stream is None
        stream = self._stream = self._stream or self.exec.stream(self.words())
        nonce, line = self._request(name, dict(request, more=True))
        begun = whole = False
        with ExitStack() as stack:
            stack.callback(lambda: None if whole else self._drop())
            pace = stack.enter_context(Pace(limit_s, self._drop))
            try:
                _write(stream, line, pace)
                source = self._settle(stream, pace)
                skip_to_mark(source, nonce)
                begun = True
                for frame in read_frames(source):
                    if frame[0]["t"] == "refused":
                        for _ in read_frames(source):
                            pass  # to its end: the program waits for the next request
                        whole = True
                        self._checked(frame)
                    pace.allow(math.inf)  # the caller's own slowness is no stall
                    yield frame
                    pace.allow(limit_s)
                whole = True
                return
            except Torn as torn:
                if pace.stalled and late:
                    raise errors.TimeOver(
                        f"{self.exec.describe()} did not answer {name} within {limit_s:g} s",
                        after_s=limit_s,
                        safe="it may go on there; asking again is safe",
                    ) from torn
                if pace.stalled or begun or fresh:
                    done = self._ended(stream, pace)
                    if self._installed or not self._is_missing(done):
                        raise self._not_ours(torn, done.returncode, done.stderr) from torn
        if fresh:
            self.install()
        # else the connection went while nothing was asked; every call may be made again
        yield from self._exchange(name, request, limit_s, late)

    def _settle(self, stream: Stream, pace: Pace) -> IO[bytes]:
        """Read the answers of posted requests; return where the next one comes from."""
        source = cast(IO[bytes], PacedReader(stream.stdout, pace))
        while self._owed:
            skip_to_mark(source, self._owed.pop(0))
            for _ in read_frames(source):
                pass
        return source

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        self._owed.clear()
        if stream is not None:
            stream.__exit__(None, None, None)


def _write(stream: Stream, line: bytes, pace: Pace) -> None:
    try:
        sink = cast(IO[bytes], PacedWriter(stream.stdin, pace))
        sink.write(line)
        sink.flush()
    except BrokenPipeError:
        pass  # what the far end said before is in its reply, or the connection is gone
