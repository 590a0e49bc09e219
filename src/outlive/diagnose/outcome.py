"""How an attempt ended, from evidence alone: one ordered table, first match wins.

Rules that read whole logs come later and refine this: they take the same ``Evidence`` and this ``Outcome`` and may
replace a class of ``REFINABLE`` by a finer one. What rests on records and counters stays as it is here.
"""

import signal as _signal
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from ..wire.states import OUTCOME_CLASSES
from ..wire.values import Evidence, Outcome
from .fatal import Hint, fatal_lines, hint

NOTHING_DECLARED = "nothing declared"
"""Put into ``Evidence.artifacts_why`` with ``artifacts_ok=None`` when a stage has to leave nothing behind."""

REFINABLE = frozenset({"code", "config", "network", "unknown", "killed_unexplained", "oom_gpu", "oom_host", "driver"})
"""Classes that later log rules may replace."""

# The scheduler's and the platform's own words, compared without case, blanks, dashes and underscores.
_WORDS: Dict[str, str] = {}
for _cls, _list in (
    ("oom_host", "OUTOFMEMORY OOM OOMKILLED OUTOFMEMORYERROR"),
    ("walltime", "TIMEOUT TIMELIMIT WALLTIME DEADLINE DEADLINEEXCEEDED TIMEDOUT"),
    (
        "preempted",
        "PREEMPTED PREEMPTION PREEMPTING SPOTINTERRUPTION SPOT INTERRUPTED REVOKED EVICTED RECLAIMED TERMINATEDBYPLATFORM",
    ),
    ("reboot", "NODEFAIL BOOTFAIL NODELOST NODESHUTDOWN REBOOT NODEFAILURE NODEREBOOT"),
    ("cancelled", "CANCELLED CANCELED CANCEL"),
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
_CANNOT_TELL = frozenset({9, 15})


class Case:
    """The evidence with what follows from it directly; what the table's conditions look at."""

    def __init__(self, evidence: Evidence) -> None:
        self.e = evidence
        self.code = evidence.exit_code
        self.signal = _signal_of(evidence)
        self.seen = evidence.exit_seen
        self.zero = self.seen and self.code == 0 and self.signal is None
        self.failed = self.seen and not self.zero
        word = evidence.scheduler_word.upper() if isinstance(evidence.scheduler_word, str) else ""
        squeezed = "".join(c for c in word if c.isalnum())
        self.word = _WORDS.get(squeezed, "cancelled" if squeezed.startswith("CANCEL") else "")
        lines = tuple(str(line) for line in (evidence.fatal_lines or ()))
        self.hint = hint(lines) or Hint("", "", "")  # type: Hint
        self.said = " ".join(lines).lower()
        self.ok = evidence.artifacts_ok
        self.stop = str(evidence.our_stop or "")
        self.noticed = bool(evidence.notice)
        self.oom = (evidence.oom_kill_delta or 0) > 0
        self.undone = _undone(evidence)

    def ended(self) -> str:
        """How it ended, in words."""
        if not self.seen:
            return "nobody saw the end"
        if self.signal is not None:
            return "ended by signal %d%s" % (self.signal, _signal_name(self.signal))
        return "exit status %s" % (self.code if self.code is not None else "unknown")

    def line(self) -> str:
        """The line of the log that the hint rests on, short."""
        return self.hint.line[:200]

    def steps(self) -> str:
        """How far it came, or nothing when that is unknown."""
        if self.e.last_step is None:
            return ""
        if self.e.total_steps:
            return " at step %s of %s" % (self.e.last_step, self.e.total_steps)
        return " at step %s" % self.e.last_step


class Rule(NamedTuple):
    """One row: when it holds, the outcome is of this class."""

    cls: str
    when: Callable[[Case], bool]
    says: Callable[[Case], str]
    fields: Tuple[str, ...]
    """Names of the evidence that decided."""


_EXIT = ("exit_seen", "exit_code", "signal")
_ART = ("artifacts_ok", "artifacts_why")
_HINTED = _EXIT + ("fatal_lines",)

RULES: Tuple[Rule, ...] = (
    # -- we did it ourselves
    Rule(
        "lease", lambda c: c.stop == "lease", lambda c: "the run lease ended; we stopped it" + c.steps(), ("our_stop",)
    ),
    Rule(
        "suspect",
        lambda c: c.stop == "hung" and c.ok is False,
        lambda c: "its process would not end and was ended by us, but " + _missing(c),
        ("our_stop",) + _ART,
    ),
    Rule(
        "hung_exit",
        lambda c: c.stop == "hung",
        lambda c: "the work was complete, its process would not end; we ended it",
        ("our_stop",) + _ART,
    ),
    Rule("stopped", lambda c: bool(c.stop), lambda c: _stopped(c), ("our_stop",)),
    # -- it came to its own end
    Rule(
        "preempted",
        lambda c: c.zero and c.ok is not True and (c.noticed or c.word == "preempted"),
        lambda c: "exit status 0 after %s; the artifacts are not complete" % _notice(c),
        ("notice", "scheduler_word", "artifacts_ok", "exit_code"),
    ),
    Rule(
        "preempted",
        lambda c: c.zero and c.undone is True and (c.noticed or c.word == "preempted"),
        lambda c: "exit status 0%s after %s" % (c.steps(), _notice(c)),
        ("notice", "scheduler_word", "last_step", "total_steps", "exit_code"),
    ),
    Rule(
        "succeeded",
        lambda c: c.zero and c.ok is True,
        lambda c: "exit status 0 and every artifact is there and passes its check" + _but(c),
        _EXIT + _ART,
    ),
    Rule("suspect", lambda c: c.zero and c.ok is False, lambda c: "exit status 0, but " + _missing(c), _EXIT + _ART),
    Rule(
        "suspect",
        lambda c: c.zero and _nothing_declared(c) and c.undone is True,
        lambda c: "exit status 0%s; nothing was declared that could say whether that was meant" % c.steps(),
        _EXIT + ("artifacts_why", "last_step", "total_steps"),
    ),
    Rule(
        "succeeded",
        lambda c: c.zero and _nothing_declared(c),
        lambda c: "exit status 0; no artifacts were declared" + _but(c),
        _EXIT + ("artifacts_why",),
    ),
    Rule(
        "unknown",
        lambda c: c.zero,
        lambda c: "exit status 0, but whether the artifacts are whole is not known%s" % _why(c),
        _EXIT + _ART,
    ),
    # -- the scheduler, the platform, the machine
    Rule(
        "oom_host", lambda c: c.word == "oom_host", lambda c: "the scheduler says: out of memory", ("scheduler_word",)
    ),
    Rule(
        "walltime",
        lambda c: c.word == "walltime",
        lambda c: "the scheduler's time limit was reached",
        ("scheduler_word",),
    ),
    Rule(
        "preempted",
        lambda c: c.word == "preempted",
        lambda c: "taken away by " + _notice(c),
        ("scheduler_word", "notice"),
    ),
    Rule(
        "reboot",
        lambda c: c.word == "reboot",
        lambda c: "the node failed: " + _quote(c.e.scheduler_word),
        ("scheduler_word",),
    ),
    Rule(
        "unknown",
        lambda c: c.word == "cancelled",
        lambda c: "cancelled in the scheduler, not by us",
        ("scheduler_word", "our_stop"),
    ),
    Rule(
        "preempted",
        lambda c: c.e.machine_changed is True and (not c.seen or c.signal in (1, 9, 15)) and c.noticed,
        lambda c: "another machine stands here now, after " + _notice(c),
        ("machine_changed", "notice"),
    ),
    Rule(
        "reboot",
        lambda c: c.e.machine_changed is True and (not c.seen or c.signal in (1, 9, 15)),
        lambda c: "the machine restarted or was replaced%s" % c.steps(),
        ("machine_changed",),
    ),
    Rule(
        "preempted",
        lambda c: c.noticed and (c.signal in (2, 9, 10, 12, 15) or (not c.seen and c.ok is not True)),
        lambda c: "%s after %s" % (c.ended(), _notice(c)),
        _EXIT + ("notice",),
    ),
    Rule(
        "preempted",
        lambda c: c.noticed and c.failed and not c.hint.cls,
        lambda c: "%s after %s; no line of the log says otherwise" % (c.ended(), _notice(c)),
        _HINTED + ("notice",),
    ),
    # -- memory of the host: a counter, before any line of the log
    Rule(
        "oom_host",
        lambda c: c.oom and c.signal in (6, 7, 9),
        lambda c: (
            "%s and the kernel's out-of-memory killer struck %d time(s) in the cgroup"
            % (c.ended(), c.e.oom_kill_delta or 0)
        ),
        _EXIT + ("oom_kill_delta",),
    ),
    Rule(
        "oom_host",
        lambda c: c.oom and c.ok is not True and _killed_child(c),
        lambda c: "%s; the out-of-memory killer struck in the cgroup, a child process was its victim" % c.ended(),
        _HINTED + ("oom_kill_delta",),
    ),
    # -- sick hardware leaves any exit status
    Rule(
        "gpu_fault",
        lambda c: c.hint.cls == "gpu_fault" and _not_done(c),
        lambda c: "%s; the GPU reported a hardware fault: %s" % (c.ended(), c.line()),
        _HINTED,
    ),
    # -- the disk said no
    Rule(
        "disk_inodes",
        lambda c: c.failed and (c.e.disk_refused == "inodes" or _disk_hint(c) == "inodes"),
        lambda c: "%s; the file system has no inodes left" % c.ended(),
        _HINTED + ("disk_refused", "disk_inodes_free"),
    ),
    Rule(
        "disk_bytes",
        lambda c: c.failed and (c.e.disk_refused == "bytes" or _disk_hint(c) in ("bytes", "quota")),
        lambda c: (
            "%s; %s"
            % (c.ended(), "a disk quota is exceeded" if _disk_hint(c) == "quota" else "the disk has no bytes left")
        ),
        _HINTED + ("disk_refused", "disk_bytes_free"),
    ),
    Rule(
        "unknown",
        lambda c: c.failed and c.hint.what == "write",
        lambda c: "%s; a file could not be written, and the disk is not known to be full: %s" % (c.ended(), c.line()),
        _HINTED + ("disk_bytes_free", "disk_inodes_free"),
    ),
    # -- numbers
    Rule(
        "nan",
        lambda c: c.failed and c.hint.cls == "nan",
        lambda c: "%s; %s" % (c.ended(), c.line()),
        _HINTED + ("nan_seen",),
    ),
    Rule(
        "nan",
        lambda c: (
            c.failed and c.e.nan_seen and c.signal is None and (not c.hint.cls or "nan" in c.hint.line.lower().split())
        ),
        lambda c: "%s after NaN or Inf in the metrics" % c.ended(),
        _HINTED + ("nan_seen",),
    ),
    # -- signals with a meaning of their own
    Rule(
        "hangup", lambda c: c.signal == 1, lambda c: "hang-up: the terminal or session it belonged to went away", _EXIT
    ),
    Rule(
        "config",
        lambda c: c.signal == 7 and ("shm" in c.said or "shared memory" in c.said),
        lambda c: (
            "bus error; the shared memory (/dev/shm) is too small or full: fewer loader workers or a larger /dev/shm"
        ),
        _HINTED,
    ),
    # -- the log's last word
    Rule(
        "oom_gpu",
        lambda c: c.hint.cls == "oom_gpu" and _not_done(c),
        lambda c: "%s; the GPU's memory is exhausted: %s" % (c.ended(), c.line()),
        _HINTED,
    ),
    Rule(
        "oom_host",
        lambda c: c.hint.cls == "oom_host" and _not_done(c),
        lambda c: "%s; %s: %s" % (c.ended(), c.hint.what, c.line()),
        _HINTED,
    ),
    Rule(
        "driver",
        lambda c: c.hint.cls == "driver" and _not_done(c),
        lambda c: "%s; %s: %s" % (c.ended(), c.hint.what, c.line()),
        _HINTED,
    ),
    Rule(
        "walltime", lambda c: c.failed and c.hint.cls == "walltime", lambda c: "%s; %s" % (c.ended(), c.line()), _HINTED
    ),
    Rule(
        "preempted",
        lambda c: c.failed and c.hint.cls == "preempted",
        lambda c: "%s; %s" % (c.ended(), c.line()),
        _HINTED,
    ),
    Rule(
        "network",
        lambda c: c.failed and c.hint.cls == "network",
        lambda c: "%s; %s: %s" % (c.ended(), c.hint.what, c.line()),
        _HINTED,
    ),
    # -- the shell's own statuses
    Rule(
        "command_missing",
        lambda c: c.failed and (c.code in (126, 127) or c.hint.cls == "command_missing"),
        lambda c: _command(c),
        _HINTED,
    ),
    Rule(
        "config",
        lambda c: c.hint.cls == "config" and _not_done(c),
        lambda c: "%s; %s: %s" % (c.ended(), c.hint.what, c.line()),
        _HINTED,
    ),
    Rule(
        "unknown",
        lambda c: c.failed and c.hint.cls == "unknown",
        lambda c: "%s; %s: %s" % (c.ended(), c.hint.what, c.line()),
        _HINTED,
    ),
    Rule(
        "code",
        lambda c: c.hint.cls == "code" and _not_done(c),
        lambda c: "%s; %s: %s" % (c.ended(), c.hint.what, c.line()),
        _HINTED,
    ),
    Rule(
        "config",
        lambda c: c.failed and c.code == 2 and ("usage:" in c.said or ": error:" in c.said),
        lambda c: "exit status 2 with a usage message",
        _HINTED,
    ),
    Rule("code", lambda c: c.failed and "traceback" in c.said, lambda c: "%s with a traceback" % c.ended(), _HINTED),
    # -- nobody saw the end, and nothing above explains it: the artifacts decide
    Rule(
        "succeeded",
        lambda c: not c.seen and c.ok is True,
        lambda c: "status unknown; artifacts complete",
        ("exit_seen",) + _ART,
    ),
    Rule(
        "unknown",
        lambda c: not c.seen,
        lambda c: "status unknown%s%s" % (_artifacts(c), "; last error line: " + c.line() if c.hint.cls else ""),
        _HINTED + _ART,
    ),
    # -- signals without a known sender
    Rule(
        "killed_unexplained",
        lambda c: c.signal in _CANNOT_TELL and c.e.oom_kill_delta == 0 and not c.e.fatal_lines,
        lambda c: "%s, which we did not send; no out-of-memory kill and no error line%s" % (c.ended(), c.steps()),
        _HINTED + ("oom_kill_delta", "our_stop"),
    ),
    Rule(
        "unknown",
        lambda c: c.signal in _CANNOT_TELL,
        lambda c: "%s, which we did not send; %s" % (c.ended(), _why_not_explained(c)),
        _HINTED + ("oom_kill_delta", "our_stop"),
    ),
    Rule(
        "unknown",
        lambda c: c.signal == 7,
        lambda c: "bus error: most often a full or small /dev/shm, or a mapped file that was cut short",
        _HINTED + ("disk_bytes_free",),
    ),
    Rule(
        "code",
        lambda c: c.signal in (4, 5, 6, 8, 11, 13, 31),
        lambda c: "%s: the program crashed outside Python" % c.ended(),
        _EXIT,
    ),
    Rule(
        "config",
        lambda c: c.signal in (24, 25),
        lambda c: "%s: a limit of the account or shell (ulimit) was reached" % c.ended(),
        _EXIT,
    ),
    Rule(
        "unknown",
        lambda c: c.signal is not None,
        lambda c: "%s, which we did not send" % c.ended(),
        _EXIT + ("our_stop",),
    ),
    Rule(
        "unknown",
        lambda c: True,
        lambda c: "%s, and no line of the log names a cause%s" % (c.ended(), _last(c)),
        _HINTED,
    ),
)
"""The whole table. Order is meaning: our own acts, the program's own end, records, counters, then lines of the log."""


def classify(evidence: Evidence) -> Outcome:
    """Return how the attempt ended, by the first row of ``RULES`` that holds. Pure; never raises."""
    case = Case(evidence)
    rule = next(r for r in RULES if r.when(case))
    decided = {name: _plain(getattr(evidence, name)) for name in rule.fields}
    return Outcome(rule.cls, OUTCOME_CLASSES[rule.cls], rule.says(case), decided)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _signal_of(evidence: Evidence) -> Optional[int]:
    """The signal, also from a shell's status above 128 or a negative one."""
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


def _nothing_declared(c: Case) -> bool:
    return c.ok is None and str(c.e.artifacts_why or "").startswith(NOTHING_DECLARED)


def _not_done(c: Case) -> bool:
    """The attempt failed, or nobody saw its end and the artifacts do not say that it is complete."""
    return c.failed or (not c.seen and c.ok is not True)


def _killed_child(c: Case) -> bool:
    if not c.failed:
        return not c.seen
    if c.hint.cls in ("", "oom_host", "unknown"):
        return True
    return c.hint.cls == "code" and any(word in c.said for word in _KILLED_CHILD)


def _disk_hint(c: Case) -> str:
    """``bytes``, ``inodes`` or ``quota`` when the last error is a full disk."""
    if c.hint.cls != "disk":
        return ""
    if c.hint.what in ("inodes", "quota"):
        return c.hint.what
    inodes, free = c.e.disk_inodes_free, c.e.disk_bytes_free
    if c.hint.what == "write" and (free is None or free > 2_000_000_000) and (inodes is None or inodes >= 16):
        return ""  # a failed write alone does not say that the disk is full
    return "inodes" if inodes is not None and inodes < 16 and (free is None or free > 1_000_000) else "bytes"


def _last(c: Case) -> str:
    return ": " + _quote(c.e.fatal_lines[-1]) if c.e.fatal_lines else ""


def _quote(text: object) -> str:
    return " ".join(str(text).split())[:120]


def _notice(c: Case) -> str:
    if c.noticed:
        return "a notice (%s)" % _quote(c.e.notice)
    return "the scheduler or platform (%s)" % _quote(c.e.scheduler_word)


def _stopped(c: Case) -> str:
    return ("we were asked to stop it" if c.stop == "asked" else "we ended it: " + _quote(c.stop)) + c.steps()


def _why(c: Case) -> str:
    return " (%s)" % _quote(c.e.artifacts_why) if c.e.artifacts_why else ""


def _missing(c: Case) -> str:
    return "an artifact is missing or fails its check" + _why(c)


def _artifacts(c: Case) -> str:
    if c.ok is False:
        return "; " + _missing(c)
    return "; artifacts not checked%s" % _why(c)


def _but(c: Case) -> str:
    notes = []
    if c.undone:
        notes.append("the last step seen is %s of %s" % (c.e.last_step, c.e.total_steps))
    if c.e.nan_seen:
        notes.append("NaN or Inf was seen in the metrics")
    return "; note: " + ", ".join(notes) if notes else ""


def _command(c: Case) -> str:
    if c.code == 126:
        text = "exit status 126: the command was found but could not be executed"
    elif c.code == 127:
        text = "exit status 127: the command or a library it needs was not found"
    else:
        text = "%s; the command was not found" % c.ended()
    return text + (": " + c.line() if c.hint.line else "")


def _why_not_explained(c: Case) -> str:
    if c.e.oom_kill_delta is None:
        return "whether memory ran out cannot be read here"
    if c.e.oom_kill_delta:
        return "the out-of-memory killer struck elsewhere in the cgroup"
    return "an error line stands at the end of the log: " + _quote(c.e.fatal_lines[-1])


__all__ = ["NOTHING_DECLARED", "REFINABLE", "RULES", "Case", "Rule", "classify", "fatal_lines"]
