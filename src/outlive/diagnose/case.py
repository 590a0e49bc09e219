"""The evidence of one ending with all that follows from it directly: what the outcome table looks at and says."""

import signal as _signal
from typing import Dict, List, Optional

from ..wire.values import Evidence
from .fatal import Hint, hint

NOTHING_DECLARED = "nothing declared"
"""Put into ``Evidence.artifacts_why`` with ``artifacts_ok=None`` when a stage has to leave nothing behind."""

# The scheduler's and the platform's own words, compared in capitals without blanks, dashes and underscores.
_WORDS: Dict[str, str] = {}
for _cls, _list in (
    ("oom_host", "OUTOFMEMORY OOM OOMKILLED OUTOFMEMORYERROR"),
    ("walltime", "TIMEOUT TIMELIMIT WALLTIME DEADLINE DEADLINEEXCEEDED TIMEDOUT"),
    ("preempted", "PREEMPTED PREEMPTION PREEMPTING SPOTINTERRUPTION SPOT INTERRUPTED REVOKED EVICTED RECLAIMED"),
    ("reboot", "NODEFAIL BOOTFAIL NODELOST NODESHUTDOWN REBOOT NODEFAILURE NODEREBOOT"),
):
    for _word in _list.split():
        _WORDS[_word] = _cls

_KILLED_CHILD = (
    "killed",
    "sigkill",
    "exitcode",
    "exited unexpectedly",
    "brokenprocesspool",
    "oom",
    "signal 9",
    "memory",
)
_FEW_INODES = 16
_FEW_BYTES = 2_000_000_000


class Case:
    """One ending. Lower-case attributes are facts; the properties are words for sentences."""

    def __init__(self, evidence: Evidence) -> None:
        self.e = evidence
        self.code = evidence.exit_code
        self.seen = evidence.exit_seen
        self.signal = _signal_of(evidence)
        self.zero = self.seen and self.code == 0 and self.signal is None
        self.failed = self.seen and not self.zero
        self.ok = evidence.artifacts_ok
        self.not_done = self.failed or (not self.seen and self.ok is not True)
        """It failed, or nobody saw the end and the artifacts do not say that it is complete."""
        self.nothing_declared = self.ok is None and str(evidence.artifacts_why or "").startswith(NOTHING_DECLARED)
        self.stop = str(evidence.our_stop or "")
        self.noticed = bool(evidence.notice)
        self.oom_kills = evidence.oom_kill_delta or 0
        squeezed = "".join(c for c in str(evidence.scheduler_word).upper() if c.isalnum())
        self.word = "cancelled" if squeezed.startswith("CANCEL") else _WORDS.get(squeezed, "")
        self.taken = self.noticed or self.word == "preempted"
        lines = [str(line) for line in (evidence.fatal_lines or ())]
        self.said = " ".join(lines).lower()
        self.has_lines = bool(lines)
        found = hint(lines)
        self.hint: Hint = found if found is not None else Hint("", "", "")
        self.undone = _undone(evidence)

    def hints(self, cls: str) -> bool:
        """Whether the log's last word is of this class and the attempt is not done."""
        return self.hint.cls == cls and self.not_done

    @property
    def disk(self) -> str:
        """``bytes``, ``inodes`` or ``quota`` when the disk refused a write, else empty."""
        if self.e.disk_refused in ("bytes", "inodes"):
            return self.e.disk_refused
        if self.hint.cls != "disk":
            return ""
        if self.hint.what in ("inodes", "quota"):
            return self.hint.what
        inodes, free = self.e.disk_inodes_free, self.e.disk_bytes_free
        no_inodes = inodes is not None and inodes < _FEW_INODES
        if self.hint.what == "write" and not no_inodes and (free is None or free > _FEW_BYTES):
            return ""  # a failed write alone does not say that the disk is full
        return "inodes" if no_inodes and (free is None or free > 1_000_000) else "bytes"

    @property
    def killed_child(self) -> bool:
        """Whether the error reads as if a child process had been killed, or says nothing else."""
        if self.hint.cls in ("", "oom_host", "unknown"):
            return True
        return self.failed and self.hint.cls == "code" and any(word in self.said for word in _KILLED_CHILD)

    # -- words

    @property
    def ended(self) -> str:
        """How it ended."""
        if not self.seen:
            return "nobody saw the end"
        if self.signal is not None:
            return "ended by signal %d%s" % (self.signal, _signal_name(self.signal))
        return "exit status %s" % (self.code if self.code is not None else "unknown")

    @property
    def line(self) -> str:
        """The line of the log that the hint rests on, short."""
        return self.hint.line[:200]

    @property
    def last(self) -> str:
        """``: `` and the last fatal-looking line, or nothing."""
        return ": " + _quote(self.e.fatal_lines[-1]) if self.has_lines else ""

    @property
    def steps(self) -> str:
        """How far it came, or nothing when that is unknown."""
        if self.e.last_step is None:
            return ""
        return " at step %s%s" % (self.e.last_step, " of %s" % self.e.total_steps if self.e.total_steps else "")

    @property
    def notice(self) -> str:
        """Who took the machine away."""
        if self.noticed:
            return "a notice (%s)" % _quote(self.e.notice)
        return "the scheduler or platform (%s)" % _quote(self.e.scheduler_word)

    @property
    def why(self) -> str:
        """The artifacts' reason in brackets, or nothing."""
        return " (%s)" % _quote(self.e.artifacts_why) if self.e.artifacts_why else ""

    @property
    def artifacts(self) -> str:
        """What is known of the artifacts."""
        known = "an artifact is missing or fails its check" if self.ok is False else "artifacts not checked"
        return known + self.why

    @property
    def stopped(self) -> str:
        """Why we ended it."""
        return "we were asked to stop it" if self.stop == "asked" else "we ended it: " + _quote(self.stop)

    @property
    def but(self) -> str:
        """What does not fit a success, or nothing."""
        notes: List[str] = []
        if self.undone:
            notes.append("the last step seen is %s of %s" % (self.e.last_step, self.e.total_steps))
        if self.e.nan_seen:
            notes.append("NaN or Inf was seen in the metrics")
        return "; note: " + ", ".join(notes) if notes else ""

    @property
    def full(self) -> str:
        """How the disk refused."""
        return "a disk quota is exceeded" if self.disk == "quota" else "the disk has no bytes left"

    @property
    def command(self) -> str:
        """What was wrong with the command."""
        if self.code == 126:
            text = "exit status 126: the command was found but could not be executed"
        elif self.code == 127:
            text = "exit status 127: the command or a library it needs was not found"
        else:
            text = "%s; the command was not found" % self.ended
        return text + (": " + self.line if self.line else "")

    @property
    def unexplained(self) -> str:
        """Why a kill is not called unexplained."""
        if self.e.oom_kill_delta is None:
            return "whether memory ran out cannot be read here"
        if self.oom_kills:
            return "the out-of-memory killer struck elsewhere in the cgroup"
        return "an error line stands at the end of the log" + self.last


def _signal_of(evidence: Evidence) -> Optional[int]:
    """The signal, also from a shell's status above 128 or a negative one. Nothing counts that nobody saw."""
    if not evidence.exit_seen:
        return None
    if evidence.signal:
        return evidence.signal
    code = evidence.exit_code
    if code is not None and 128 < code <= 128 + 64:
        return code - 128
    if code is not None and -64 <= code < 0:
        return -code
    return None


def _signal_name(number: int) -> str:
    try:
        return " (%s)" % _signal.Signals(number).name
    except ValueError:
        return ""


def _undone(e: Evidence) -> Optional[bool]:
    """Whether the last step is clearly below the plan; None when either is unknown."""
    if e.last_step is None or not e.total_steps:
        return None
    return e.last_step < 0.98 * e.total_steps - 1


def _quote(text: object) -> str:
    return " ".join(str(text).split())[:120]
