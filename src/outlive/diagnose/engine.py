"""Reads logs of any size, once, with bounded memory, and keeps what may explain an end.

``Engine.feed`` takes bytes of one source after another (a rank's or a node's log each); ``verdict.judge`` then
says what the kept events mean. Nothing here knows a class: the rules are data.
"""

import re
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional

from .lines import Line, LineSplitter
from .parsers import MetricParser
from .prefixes import strip_prefixes
from .rulebook import CONCLUSIVE, INDICATOR, Hit, Rulebook, rulebook

TEXT_CHARS = 2000
"""What is read of one line; messages stand at its front."""
KEPT_CHARS = 500
FIRST, LAST = 6, 6
"""Events kept of one rule: the first and the last ones. The others are counted."""
METRIC_BYTES = 4 << 20
"""Metrics are read from the first and the last bytes of a source; a log of this size is read whole."""

PLAIN_MAX = 20000

_DIGITS = re.compile(r"\d+")
_PROGRESS = re.compile(
    r"loss\W{0,6}(?:\[?\d|tensor)|\d%\||\b(?:epoch|step|iter(?:ation)?|batch|global_step)\b\W{0,5}\d|\bit/s|s/it\b"
    r"|\[\s*\d+/\s*\d+\]|\bacc(?:uracy)?\b\W{0,4}\d|ETA[: ]|tokens/s(?:ec)?|samples/s(?:ec)?",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"train_runtime|training (?:is )?(?:complete|finished|done)|finished (?:training|successfully)"
    r"|saved (?:result|model|to\b|final|check)|\ball done\b|\bdone\b[.!]?\s*$"
    r"|exit(?:ed)?(?: with)?(?: code| status)?[ :=]*0\b|\d+ passed|completed successfully|\bSUCCESS\b",
    re.IGNORECASE,
)
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


class Kept:
    """Events of one rule."""

    def __init__(self) -> None:
        self.first: List[Event] = []
        self.last: Deque[Event] = deque(maxlen=LAST)
        self.count = 0

    def add(self, event: Event) -> None:
        self.count += 1
        if len(self.first) < FIRST:
            self.first.append(event)
        else:
            self.last.append(event)

    def all(self) -> List[Event]:
        return self.first + list(self.last)


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
        self.points: List[Dict[str, Any]] = []
        self._plain: Dict[str, int] = {}  # lines that no rule knows, digits apart: most of a log are few such lines
        self._splitter = LineSplitter()
        self._line = 0
        self._ignored_until = -1
        self._in_trace = False
        self._metrics = MetricParser()
        self._metric_bytes = 0
        self._ring: Deque[bytes] = deque()
        self._ring_bytes = 0
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
        self._feed_metrics(data)
        for line in self._splitter.feed(data):
            self._take(line)

    def end(self) -> None:
        """End the source that is being read."""
        if not self._open:
            return
        for line in self._splitter.flush():
            self._take(line)
        self._points(self._metrics.flush())
        if self._ring:
            tail = MetricParser()
            for part in self._ring:
                self._points(tail.feed(part))
            self._points(tail.flush())
        self._splitter = LineSplitter()
        self._metrics = MetricParser()
        self._metric_bytes = self._ring_bytes = 0
        self._ring.clear()
        self._ignored_until = -1
        self._open = False

    def _feed_metrics(self, data: bytes) -> None:
        room = METRIC_BYTES - self._metric_bytes
        if room > 0:
            self._points(self._metrics.feed(data[:room]))
            self._metric_bytes += min(room, len(data))
        if len(data) > room:
            self._ring.append(data[max(0, room) :])
            self._ring_bytes += len(self._ring[-1])
            while self._ring and self._ring_bytes - len(self._ring[0]) >= METRIC_BYTES:
                self._ring_bytes -= len(self._ring.popleft())

    def _points(self, points: List[Dict[str, Any]]) -> None:
        for point in points:
            point["order"] = self.lines
            self.points.append(point)
        if len(self.points) > 40000:
            self.points = self.points[:5000] + self.points[-20000:]

    def _take(self, line: Line) -> None:
        if line.bar:
            return
        self.lines += 1
        self._line += 1
        text = line.text[:TEXT_CHARS]
        if not text.strip():
            return
        self.tail.append(text[:KEPT_CHARS])
        template = _DIGITS.sub("0", text)
        if not self._in_trace:
            kind = self._plain.get(template)
            if kind is not None:
                self._alive(kind)
                return
        bare = strip_prefixes(text).strip()
        if "Exception ignored in" in text:
            self._ignored_until = self._line + 8
        for fact, words in _FACTS:
            if words in text:
                self.facts[fact] = self.facts.get(fact, 0) + 1
        hits = self.book.hits(text, bare)
        traced = self._traced(text)
        if traced and not any(hit.rule.severity == "error" for hit in hits):
            hits = hits + (Hit(self.book.by_id["python-exception"], CONCLUSIVE),)
        errors = False
        if hits:
            soft = bool(_SOFT.search(text[:200])) and "NCCL WARN" not in text
            soft = soft or bool(_RETRY.search(text))
            info = bool(_INFO.search(text[:200]))
            match = _RANK.search(text)
            rank = int(match.group(1) or match.group(2)) if match else None
            echo = self._line <= self._ignored_until
            looks = bool(_ERROR.search(bare)) or traced
            for hit in hits:
                if info and hit.role == INDICATOR:
                    continue
                errors = errors or hit.rule.severity == "error"
                weak = soft or (hit.rule.needs_error and not looks)
                event = Event(
                    self.lines,
                    len(self.sources) - 1,
                    self._line,
                    rank,
                    bare[:KEPT_CHARS],
                    hit,
                    weak,
                    echo,
                    self.progress,
                )
                self.kept.setdefault(hit.rule.id, Kept()).add(event)
        if errors and not _bar(text):
            return
        kind = 2 if _DONE.search(text) else 1 if _PROGRESS.search(text) else 0
        self._alive(kind)
        if not hits and "Exception ignored in" not in text:
            if len(self._plain) >= PLAIN_MAX:
                self._plain.clear()
            self._plain[template] = kind

    def _alive(self, kind: int) -> None:
        """Note a sign of life: 1 progress, 2 something finished."""
        if kind:
            self.progress += 1 if kind == 1 else 3
            self.progress_order = self.lines

    def _traced(self, text: str) -> bool:
        """Whether a line ends a traceback: the first after it that is not indented."""
        body = strip_prefixes(text)
        if "Traceback (most recent call last)" in text:
            self._in_trace = True
            return False
        if not self._in_trace or body[:1] in (" ", "\t") or body.startswith(("File ", "│", "╭", "╰")) or "%|" in body:
            return False
        self._in_trace = False
        return ": " in body or body.strip().isidentifier()


def looks_like_error(text: str) -> bool:
    """Whether a line reads like an error: its level or an exception's name, and no word that takes it back."""
    return bool(_ERROR.search(text)) and not (_INFO.search(text[:200]) or _RETRY.search(text))


def _bar(text: str) -> bool:
    return "%|" in text
