"""Reads logs of any size, once, with bounded memory, and keeps what may explain an end.

``Engine.feed`` takes bytes of one source after another (a rank's or a node's log each); ``verdict.judge`` then
says what the kept events mean. Nothing here knows a class: the rules are data.

Most lines of a log differ from an earlier one in digits only. A block is looked up line by line as it is, each digit
made 0; a line that was not met before takes the slow path, once. The numbers are read when they are asked for.
"""

import re
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from .lines import MAX_LINE_BYTES, clean, last_state
from .prefixes import strip_prefixes
from .rulebook import CONCLUSIVE, INDICATOR, Hit, Rulebook, counts, rulebook
from .series import Trouble, quiet, trouble

TEXT_CHARS = 2000
"""What is read of one line; messages stand at its front."""
KEPT_CHARS = 500
FIRST, LAST = 6, 6
"""Events kept of one rule: the first and the last ones. The others are counted."""
METRIC_BYTES = 4 << 20
"""Metrics are read from the first and the last bytes of a source; a log of this size is read whole."""
HELD_BYTES = 24 << 20
"""Bytes of all sources that are held for their metrics; more are read at once."""
RECENT_BYTES = 1 << 20
"""What is tried first: where the numbers of so many last bytes are quiet, those before them cannot change that."""

PLAIN_MAX = 20000
PLAIN_CHARS = 4 << 20
_SEEN_MAX, _SEEN_LINE = 40000, 600
_BLOCK = 1 << 18
_OPEN_MAX = 4 * MAX_LINE_BYTES

_SAME = bytes(48 if 48 <= c <= 57 else c for c in range(256))
_DIGITS = re.compile(r"\d+")
_PROGRESS = re.compile(
    r"loss\W{0,6}(?:\[?\d|tensor)|\d%\||\b(?:epoch|step|iter(?:ation)?|batch|global_step)\b\W{0,5}\d|\bit/s|s/it\b"
    r"|\[\s*\d+/\s*\d+\]|\bacc(?:uracy)?\b\W{0,4}\d|ETA[: ]|tokens/s(?:ec)?|samples/s(?:ec)?",
    re.IGNORECASE,
)
_PROGRESS_WORDS = (
    "loss",
    "%|",
    "step",
    "epoch",
    "iter",
    "batch",
    "it/s",
    "s/it",
    "[",
    "acc",
    "eta",
    "tokens/s",
    "samples/s",
)
_DONE = re.compile(
    r"train_runtime|training (?:is )?(?:complete|finished|done)|finished (?:training|successfully)"
    r"|saved (?:result|model|to\b|final|check)|\ball done\b|\bdone\b[.!]?\s*$"
    r"|exit(?:ed)?(?: with)?(?: code| status)?[ :=]*0\b|\d+ passed|completed successfully|\bSUCCESS\b",
    re.IGNORECASE,
)
_DONE_WORDS = ("train_runtime", "training", "finished", "saved", "done", "exit", "passed", "completed", "success")
_SOFT = re.compile(
    r"\b(?:WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE)\b|\w*Warning:|^\[?[WI]\d{3,4} |\[W[\d :.\]]|\[W ", re.IGNORECASE
)
_INFO = re.compile(r"NCCL INFO|\bINFO\b|\bDEBUG\b|\bPASSED\b|\bXFAIL\b")
_RETRY = re.compile(
    r"\bretry(?:ing)?\b|\bretries? (?:left|\d)|will (?:be )?retr|trying again|attempt \d+|reconnect|halving"
    r"|fall(?:ing)? ?back|skipp(?:ing|ed)|ignor(?:ing|ed)|continuing|\brecovered\b|thrown while requesting",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\w(?:Error|Exception|Failure|NotFound|Timeout|Exit)\b|\b(?i:error|fatal|failed|failure|critical|usage|aborting|exiting"
    r"|stopping|exited|panic|terminated|refused|denied|not found|no such|timed out)\b|^[EF]\b|\[[EF]\d|\[[EF] "
    r"|NCCL WARN|Traceback|\bSTDERR\b|ran for \d+ milliseconds"
)
_RANK = re.compile(r"(?:\brank|local_rank|\[rank|\btask)[ =:]*(\d{1,5})\b|^\s*(\d{1,4}): ", re.IGNORECASE)


_FACTS = (
    ("p2p", "via P2P/"),
    ("first_collective", "WorkNCCL(SeqNum=1,"),
    ("first_collective", "WorkNCCL(SeqNum=2,"),
    ("first_collective", "WorkNCCL(SeqNum=3,"),
    ("remote_crash", "*** Process received signal"),
)
"""Lines that decide nothing alone: (name, words)."""
_FACT_SHAPES = tuple({_DIGITS.sub("0", words) for _, words in _FACTS})


class Event(NamedTuple):
    """A line that a rule knows."""

    order: int
    """Place in the merged order of all sources."""
    source: int
    line: int
    """Number in its source, counted from 1."""
    rank: Optional[int]
    text: str
    hit: Hit
    soft: bool
    """At a level below error, or on its way to another try."""
    echo: bool
    """Printed while something else was being taken down."""
    progress: int
    """Signs of life seen before it."""


class _Again(NamedTuple):
    """A line that was met before but for its digits: an event that is worked out when it is asked for."""

    order: int
    source: int
    line: int
    raw: bytes
    hit: Hit
    soft: bool
    progress: int

    def event(self) -> Event:
        text = clean(self.raw)[:TEXT_CHARS]
        bare = strip_prefixes(text).strip()[:KEPT_CHARS]
        return Event(self.order, self.source, self.line, _rank(text), bare, self.hit, self.soft, False, self.progress)


class Kept:
    """Events of one rule."""

    def __init__(self) -> None:
        self.first: List[Event] = []
        self.last: Deque[Union[Event, _Again]] = deque(maxlen=LAST)
        self.count = 0

    def add(self, event: Union[Event, _Again]) -> None:
        self.count += 1
        if len(self.first) >= FIRST:
            self.last.append(event)
        else:
            self.first.append(event.event() if isinstance(event, _Again) else event)

    def all(self) -> List[Event]:
        return self.first + [event.event() if isinstance(event, _Again) else event for event in self.last]


class _Known(NamedTuple):
    """What a line means whose like was met before."""

    events: Tuple[Tuple[Kept, Hit, bool], ...]
    kind: int


class Engine:
    """Feed it the logs of one attempt, then ask ``verdict.judge``."""

    def __init__(self, book: Optional[Rulebook] = None) -> None:
        self.book = book or rulebook()
        self.kept: Dict[str, Kept] = {}
        self.sources: List[str] = []
        self.lines = 0
        self.bytes = 0
        self.progress = 0
        self.progress_order = -1
        self.tail: Deque[str] = deque(maxlen=40)
        """The last lines that were not blank."""
        self.facts: Dict[str, Any] = {}
        self._points: List[Dict[str, Any]] = []
        self._plain: Dict[str, int] = {}  # lines that no rule knows, digits apart: most of a log are few such lines
        self._plain_chars = 0
        self._seen: Dict[bytes, Union[int, _Known]] = {}  # the same and more, as they stand in the log
        self._part = bytearray()  # the line in progress
        self._line = 0
        self._ignored_until = -1
        self._in_trace = False
        self._head = bytearray()
        self._ring: Deque[bytearray] = deque()
        self._ring_bytes = 0
        self._held: Deque[Tuple[bytes, List[bytearray]]] = deque()
        self._held_bytes = 0
        self._open = False

    def begin(self, name: str) -> None:
        """Start the next source."""
        self.end()
        self.sources.append(name)
        self._line = 0
        self._open = True

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the source."""
        if not self._open:
            self.begin("")
        self.bytes += len(data)
        self._hold(data)
        for i in range(0, len(data), _BLOCK):
            self._block(bytes(data[i : i + _BLOCK]))

    def end(self) -> None:
        """End the source that is being read."""
        if not self._open:
            return
        if self._part:
            self._lines(bytes(self._part))
        self._part = bytearray()
        self._held.append((bytes(self._head), list(self._ring)))
        self._held_bytes += len(self._head) + self._ring_bytes
        self._head = bytearray()
        self._ring.clear()
        self._ring_bytes = 0
        while self._held_bytes > HELD_BYTES:
            self._read_metrics()
        self._ignored_until = -1
        self._open = False

    def trouble(self) -> Optional[Trouble]:
        """Return what is wrong with the numbers at the end of what was fed."""
        if self._held and self._is_quiet(*self._held[-1]):
            return None
        while self._held:
            self._read_metrics()
        return trouble(self._points)

    def _hold(self, data: bytes) -> None:
        room = METRIC_BYTES - len(self._head)
        self._head += data[:room]
        if len(data) <= room:
            return
        if not self._ring or len(self._ring[-1]) >= 1 << 16:
            self._ring.append(bytearray())
        self._ring[-1] += data[room:]
        self._ring_bytes += len(data) - room
        while self._ring_bytes - len(self._ring[0]) >= METRIC_BYTES:
            self._ring_bytes -= len(self._ring.popleft())

    def _is_quiet(self, head: bytes, ring: List[bytearray]) -> bool:
        """Whether the last numbers of the last source are enough, so that the others need not be read."""
        whole = b"".join(ring) or head
        if len(whole) <= RECENT_BYTES:
            return False
        normed = any(
            b"norm" in one.lower() or any(b"norm" in part.lower() for part in more) for one, more in self._held
        )
        normed = normed or any("grad_norm" in point for point in self._points)
        return quiet(_metrics([whole[-RECENT_BYTES:]]), normed)

    def _read_metrics(self) -> None:
        """Read the numbers of the first source that is held."""
        head, ring = self._held.popleft()
        self._held_bytes -= len(head) + sum(map(len, ring))
        for parts in ([head], list(map(bytes, ring))):
            for points in _read(parts):
                self._points += points
                if len(self._points) > 40000:
                    self._points = self._points[:5000] + self._points[-20000:]

    def _block(self, piece: bytes) -> None:
        end = piece.rfind(b"\n")
        if end < 0:
            self._part += piece
            if len(self._part) > _OPEN_MAX:  # of a line without an end only what can become its text
                drawn, _, rest = bytes(self._part).rpartition(b"\r")
                self._part = bytearray(last_state(drawn) + b"\r" + rest[:MAX_LINE_BYTES])
            return
        self._part += piece[:end]
        block = bytes(self._part)
        self._part = bytearray(piece[end + 1 :])
        self._lines(block)

    def _lines(self, block: bytes) -> None:
        """Take whole lines, the end of the last one left out."""
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
            if b"\r" in block:
                block = b"\n".join(line if b"\r" not in line else last_state(line) for line in block.split(b"\n"))
        lines, keys = block.split(b"\n"), block.translate(_SAME).split(b"\n")
        kinds = list(map(self._seen.get, keys))
        own = [i for i, kind in enumerate(kinds) if kind.__class__ is not int]  # new ones, and events
        own.append(len(lines))
        before, at, done = self.lines, 0, 0
        while done < len(lines):
            while own[at] < done:
                at += 1
            stop = done if self._in_trace else own[at]
            if stop > done:
                self._alive_all(kinds[done:stop], before + done)  # type: ignore[arg-type]
                self._line += stop - done
                done = stop
                if done == len(lines):
                    break
            self.lines = before + done + 1
            self._line += 1
            self._take(lines[done], keys[done])
            done += 1
        self.lines = before + len(lines)
        tail: List[str] = []
        for line in reversed(lines):
            text = clean(line[:MAX_LINE_BYTES])[:TEXT_CHARS]
            if text.strip():
                tail.append(text[:KEPT_CHARS])
                if len(tail) == self.tail.maxlen:
                    break
        self.tail.extend(reversed(tail))

    def _alive_all(self, kinds: List[int], before: int) -> None:
        """Note the signs of life of lines in a row."""
        some, much = kinds.count(1), kinds.count(2)
        if some or much:
            self.progress += some + 3 * much
            last = len(kinds) - 1
            while not kinds[last]:
                last -= 1
            self.progress_order = before + last + 1

    def _take(self, raw: bytes, key: bytes) -> None:
        """Take one line."""
        if not self._in_trace:
            known = self._seen.get(key)
            if isinstance(known, int):
                self._alive(known)
                return
            if known is not None and self._line > self._ignored_until:
                self._again(raw, known)
                return
        text = clean(raw[:MAX_LINE_BYTES])[:TEXT_CHARS]
        if not text.strip():
            self._remember(key, 0, "")
            return
        template = _DIGITS.sub("0", text)
        if not self._in_trace:
            kind = self._plain.get(template)
            if kind is not None:
                self._remember(key, kind, text)
                self._alive(kind)
                return
        ignored = "Exception ignored in" in text
        if ignored:
            self._ignored_until = self._line + 8
        for fact, words in _FACTS:
            if words in text:
                self.facts[fact] = self.facts.get(fact, 0) + 1
        hits = self.book.hits(text, None, template)
        was_in_trace = self._in_trace
        traced = self._traced(text)
        if traced and not any(hit.rule.severity == "error" for hit in hits):
            hits = hits + (Hit(self.book.by_id["python-exception"], CONCLUSIVE),)
        if not hits:
            kind = _kind(text)
            self._alive(kind)
            if not ignored:
                if len(self._plain) >= PLAIN_MAX or self._plain_chars > PLAIN_CHARS:
                    self._plain.clear()
                    self._plain_chars = 0
                self._plain[template] = kind
                self._plain_chars += len(template)
                if not self._in_trace:
                    self._remember(key, kind, text)
            return
        known = self._events(text, hits, traced)
        self._alive(known.kind)
        if ignored or was_in_trace or self._in_trace or len(text) >= 400:
            return
        if not counts(text) and not any(shape in template for shape in _FACT_SHAPES):
            self._remember(key, known, text)

    def _events(self, text: str, hits: Tuple[Hit, ...], traced: bool) -> _Known:
        """Keep the events of a line that rules know."""
        bare = strip_prefixes(text).strip()
        soft = bool(_SOFT.search(text[:200])) and "NCCL WARN" not in text
        soft = soft or bool(_RETRY.search(text))
        info = bool(_INFO.search(text[:200]))
        rank = _rank(text)
        echo = self._line <= self._ignored_until
        looks = traced or bool(_ERROR.search(bare))
        errors = False
        events = []
        for hit in hits:
            if info and hit.role == INDICATOR:
                continue
            errors = errors or hit.rule.severity == "error"
            weak = soft or (hit.rule.needs_error and not looks)
            source = len(self.sources) - 1
            event = Event(self.lines, source, self._line, rank, bare[:KEPT_CHARS], hit, weak, echo, self.progress)
            kept = self.kept.setdefault(hit.rule.id, Kept())
            kept.add(event)
            events.append((kept, hit, weak))
        return _Known(tuple(events), 0 if errors and not _bar(text) else _kind(text))

    def _again(self, raw: bytes, known: _Known) -> None:
        source = len(self.sources) - 1
        for kept, hit, weak in known.events:
            kept.add(_Again(self.lines, source, self._line, raw, hit, weak, self.progress))
        self._alive(known.kind)

    def _remember(self, key: bytes, what: Union[int, _Known], text: str) -> None:
        """Know the line when only its digits differ, unless they decide: 0 is a good exit."""
        if len(key) <= _SEEN_LINE and "exit" not in text.lower():
            if len(self._seen) >= _SEEN_MAX:
                self._seen.clear()
            self._seen[key] = what

    def _alive(self, kind: int) -> None:
        """Note a sign of life: 1 progress, 2 something finished."""
        if kind:
            self.progress += 1 if kind == 1 else 3
            self.progress_order = self.lines

    def _traced(self, text: str) -> bool:
        """Whether a line ends a traceback: the first after it that is not indented."""
        if "Traceback (most recent call last)" in text:
            self._in_trace = True
            return False
        if not self._in_trace:
            return False
        body = strip_prefixes(text)
        if body[:1] in (" ", "\t") or body.startswith(("File ", "│", "╭", "╰")) or "%|" in body:
            return False
        self._in_trace = False
        return ": " in body or body.strip().isidentifier()


def looks_like_error(text: str) -> bool:
    """Whether a line reads like an error: its level or an exception's name, and no word that takes it back."""
    return bool(_ERROR.search(text)) and not (_INFO.search(text[:200]) or _RETRY.search(text))


def _bar(text: str) -> bool:
    return "%|" in text


def _rank(text: str) -> Optional[int]:
    match = _RANK.search(text)
    return int(match.group(1) or match.group(2)) if match else None


def _kind(text: str) -> int:
    """Return what sign of life a line is: 1 progress, 2 something finished, 0 none."""
    low = text.lower() if text.isascii() else ""  # letters that only look like these are for the expressions to judge
    if (not low or any(word in low for word in _DONE_WORDS)) and _DONE.search(text):
        return 2
    if (not low or any(word in low for word in _PROGRESS_WORDS)) and _PROGRESS.search(text):
        return 1
    return 0


def _metrics(parts: List[bytes]) -> List[Dict[str, Any]]:
    return [point for points in _read(parts) for point in points]


def _read(parts: List[bytes]) -> Iterator[List[Dict[str, Any]]]:
    """Yield the points of a stretch of a log, some at a time."""
    if not any(b"loss" in low or b"norm" in low for low in (part.lower() for part in parts)):
        return
    from .parsers import MetricParser

    parser = MetricParser()
    for part in parts:
        for i in range(0, len(part), _BLOCK):
            yield parser.feed(bytes(part[i : i + _BLOCK]))
    yield parser.flush()
