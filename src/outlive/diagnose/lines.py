"""Bytes of a log in, logical lines out, whatever the chunks and whatever the bytes.

A *logical line* ends with ``\\n`` (or ``\\r\\n``, or the end of the stream). Inside it, carriage returns
redraw: a progress bar of ten thousand updates is one logical line whose text is the last state that was
not blank. Each earlier state is offered too, marked ``bar``, so that metrics can be read while a bar runs.
"""

import re
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

MAX_LINE_BYTES = 64 * 1024
"""Bytes kept of one line or bar state; the rest is counted and dropped."""

_PIECE_BYTES = 256 * 1024  # bounds what one call holds beside the caller's own chunk
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves, erase
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles, hyperlinks
    r"|[PX^_][^\x1b]*(?:\x1b\\)?"  # device strings
    r"|[ -/]*[0-~])?"  # two-byte escapes; a lone ESC
)
_CONTROL = {c: None for c in list(range(0, 9)) + list(range(10, 32)) + [127]}
_HAS_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_RETURNS = re.compile(rb"\r*")


class Line(NamedTuple):
    """One line of a log, clean text, with its place in the stream."""

    text: str
    """Without line end, escape codes and control characters; invalid UTF-8 is replaced."""
    start: int
    """Offset of the first byte, counted from the start of the stream."""
    end: int
    """Offset after the last byte, line end included (a bar state: its carriage return left out)."""
    bar: bool = False
    """A state that was redrawn later; the logical line itself still follows."""
    repeat: bool = False
    """A logical line whose text was already offered as a bar state."""
    truncated: bool = False
    """Only the first ``MAX_LINE_BYTES`` (or ``max_bytes``) of it are in ``text``."""


def clean(raw: bytes) -> str:
    """Decode bytes of a log: invalid UTF-8 replaced, escape codes and control characters (not tab) removed."""
    text = raw.decode("utf-8", "replace")
    if _HAS_CONTROL.search(text):
        if "\x1b" in text:
            text = _ESCAPE.sub("", text)
        text = text.translate(_CONTROL)
    return text


def last_state(raw: bytes) -> bytes:
    """Return what stands on a line at its end: of the states between carriage returns the last that is not blank.

    The same rule as ``LineSplitter``'s, for a line that is there whole; at most ``MAX_LINE_BYTES`` of it.
    """
    raw = raw.rstrip(b"\r")
    end = len(raw)
    while end > 0:
        start = raw.rfind(b"\r", 0, end) + 1
        state = raw[start : min(end, start + MAX_LINE_BYTES)]
        if state and not state.isspace() and clean(state).strip():
            return state
        end = start - 1
    return b""


class LineSplitter:
    """Splits a stream that arrives in any chunks; the same bytes give the same lines.

    ``start`` is the offset of the first byte that will be fed. ``needles``, when given, are lower-case
    byte strings: only lines that contain one of them (in any letter case) come out, and text without
    any is passed over at the speed of a byte search. Memory is bounded by ``max_bytes`` and the chunk.
    """

    def __init__(self, start: int = 0, max_bytes: int = MAX_LINE_BYTES, needles: Sequence[bytes] = ()) -> None:
        self.offset = start
        """Offset after the last byte that was fed."""
        self._max = max_bytes
        self._needles = tuple(needles)
        self._reset(start)

    def _reset(self, start: int) -> None:
        self._line_start = start
        self._part = bytearray()
        self._part_start = start
        self._part_cut = False
        self._return_held = False  # a carriage return whose next byte is not known yet
        self._state: Optional[Line] = None  # last bar state that was not blank
        self._state_wanted = False
        self._fresh = True  # nothing of the current line has arrived

    def feed(self, data: bytes) -> List[Line]:
        """Take the next bytes; return the lines and bar states that are complete now."""
        out: List[Line] = []
        if len(data) <= _PIECE_BYTES:
            self._feed(bytes(data), out)
        else:
            for i in range(0, len(data), _PIECE_BYTES):
                self._feed(bytes(data[i : i + _PIECE_BYTES]), out)
        return out

    def flush(self) -> List[Line]:
        """End of the stream: return the unfinished line, if there is one. Feeding may go on afterwards."""
        out: List[Line] = []
        if not self._fresh:
            self._end_line(out, self.offset)
        return out

    def pending(self) -> str:
        """Text of the line in progress as a reader of a terminal would see it; empty when there is none."""
        text = clean(bytes(self._part))
        return text if text.strip() else (self._state.text if self._state else "")

    def _feed(self, data: bytes, out: List[Line]) -> None:
        base = self.offset
        pos = 0
        last = data.rfind(b"\n") + 1
        if last and not self._fresh:
            pos = data.index(b"\n") + 1
            self._grow(data[: pos - 1], base, out)
            self._end_line(out, base + pos)
        if pos < last:
            self._whole_lines(data[pos:last], base + pos, out)
            self._reset(base + last)
        if last < len(data):
            self._grow(data[last:], base + last, out)
        self.offset = base + len(data)

    def _whole_lines(self, block: bytes, base: int, out: List[Line]) -> None:
        """Lines that begin and end inside one block, the common case."""
        if self._needles:
            for start, end in _holding(block, self._needles):
                self._whole_line(block[start:end], base + start, out)
            return
        start = 0
        for raw in block[:-1].split(b"\n"):
            self._whole_line(raw, base + start, out)
            start += len(raw) + 1

    def _whole_line(self, raw: bytes, start: int, out: List[Line]) -> None:
        end = start + len(raw) + 1
        if raw[-1:] == b"\r":
            raw_end = -1
        else:
            raw_end = len(raw)
        if len(raw) > self._max or b"\r" in raw[:raw_end]:
            self._reset(start)
            self._grow(raw, start, out)
            self._end_line(out, end)
        else:
            text = clean(raw[:raw_end])
            out.append(Line(text if text.strip() else "", start, end))

    def _grow(self, data: bytes, base: int, out: List[Line]) -> None:
        """Add bytes without ``\\n`` to the line in progress."""
        if not data:
            return
        self._fresh = False
        pos = 0
        if self._return_held:
            self._return_held = False
            self._end_state(out, base - 1, base)
        while True:
            i = data.find(b"\r", pos)
            if i < 0:
                self._keep(data, pos, len(data))
                return
            self._keep(data, pos, i)
            stop = _RETURNS.match(data, i).end()  # type: ignore[union-attr]
            if stop == len(data):
                if stop - i > 1:
                    self._end_state(out, base + i, base + stop - 1)
                self._return_held = True
                return
            self._end_state(out, base + i, base + stop)
            pos = stop

    def _keep(self, data: bytes, start: int, end: int) -> None:
        room = self._max - len(self._part)
        if end - start > room:
            end = start + max(room, 0)
            self._part_cut = True
        self._part += data[start:end]

    def _end_state(self, out: List[Line], end: int, next_start: int) -> None:
        if self._part:
            raw = bytes(self._part)
            text = clean(raw)
            if text.strip():
                self._state = Line(text, self._part_start, end, True, False, self._part_cut)
                self._state_wanted = self._wanted(raw)
                if self._state_wanted:
                    out.append(self._state)
        self._part = bytearray()
        self._part_cut = False
        self._part_start = next_start

    def _end_line(self, out: List[Line], end: int) -> None:
        raw = bytes(self._part)
        text = clean(raw)
        if text.strip():
            if self._wanted(raw):
                out.append(Line(text, self._line_start, end, False, False, self._part_cut))
        elif self._state is not None:
            state = self._state
            if self._state_wanted:
                out.append(Line(state.text, self._line_start, end, False, True, state.truncated))
        elif not self._needles:
            out.append(Line("", self._line_start, end))
        self._reset(end)

    def _wanted(self, raw: bytes) -> bool:
        if not self._needles:
            return True
        low = raw.lower()
        return any(n in low for n in self._needles)


def _holding(block: bytes, needles: Sequence[bytes]) -> List[Tuple[int, int]]:
    """Return (start, end) of the lines of a block, without their ``\\n``, that hold a needle."""
    low = block.lower()
    size = len(block)
    nexts: List[List[Any]] = []  # next place of each needle
    for needle in needles:
        at = low.find(needle)
        if at >= 0:
            nexts.append([at, needle])
    found = []
    while nexts:
        at = min(entry[0] for entry in nexts)
        start = low.rfind(b"\n", 0, at) + 1
        end = low.find(b"\n", at)
        if end < 0:
            end = size
        found.append((start, end))
        for entry in nexts:
            if entry[0] < end:
                entry[0] = low.find(entry[1], end)
        nexts = [e for e in nexts if e[0] >= 0]
    return found
