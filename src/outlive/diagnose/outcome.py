"""How an attempt ended, from evidence alone: one ordered table, first match wins.

Rules that read whole logs come later and refine this: they take the same ``Evidence`` and this ``Outcome`` and may
replace a class of ``REFINABLE`` by a finer one. What rests on records and counters stays as it is here.
"""

from typing import Callable, NamedTuple, Tuple

from ..wire.states import OUTCOME_CLASSES
from ..wire.values import Evidence, Outcome
from .case import NOTHING_DECLARED, Case
from .fatal import fatal_lines

REFINABLE = frozenset({"code", "config", "network", "unknown", "killed_unexplained", "oom_gpu", "oom_host", "driver"})
"""Classes that later log rules may replace."""


class Rule(NamedTuple):
    """One row: when it holds, the outcome is of this class."""

    cls: str
    when: Callable[[Case], bool]
    says: str
    """The sentence; ``{c.name}`` are words of the ``Case``."""
    fields: Tuple[str, ...]
    """Names of the evidence that decided."""


_EXIT = ("exit_seen", "exit_code", "signal")
_ARTIFACTS = ("artifacts_ok", "artifacts_why")
_STEPS = ("last_step", "total_steps")
_LOG = _EXIT + ("fatal_lines",)
_HINT = "{c.ended}; {c.hint.what}: {c.line}"

RULES: Tuple[Rule, ...] = (
    # -- We did it ourselves.
    Rule("lease", lambda c: c.stop == "lease", "the run lease ended; we stopped it{c.steps}", ("our_stop",)),
    Rule(
        "suspect",
        lambda c: c.stop == "hung" and c.ok is False,
        "its process would not end and was ended by us; {c.artifacts}",
        ("our_stop",) + _ARTIFACTS,
    ),
    Rule(
        "hung_exit",
        lambda c: c.stop == "hung",
        "the work was complete, its process would not end; we ended it",
        ("our_stop",) + _ARTIFACTS,
    ),
    Rule("stopped", lambda c: bool(c.stop), "{c.stopped}{c.steps}", ("our_stop",)),
    # -- It came to its own end. Exit status 0 is believed only with the artifacts.
    Rule(
        "preempted",
        lambda c: c.zero and c.taken and (c.ok is not True or c.undone is True),
        "exit status 0{c.steps} after {c.notice}; the work is not complete",
        ("notice", "scheduler_word", "exit_code") + _ARTIFACTS + _STEPS,
    ),
    Rule(
        "succeeded",
        lambda c: c.zero and c.ok is True,
        "exit status 0 and every artifact is there and passes its check{c.but}",
        _EXIT + _ARTIFACTS,
    ),
    Rule("suspect", lambda c: c.zero and c.ok is False, "exit status 0, but {c.artifacts}", _EXIT + _ARTIFACTS),
    Rule(
        "suspect",
        lambda c: c.zero and c.nothing_declared and c.undone is True,
        "exit status 0{c.steps}; nothing was declared that could say whether that was meant",
        _EXIT + _ARTIFACTS + _STEPS,
    ),
    Rule(
        "succeeded",
        lambda c: c.zero and c.nothing_declared,
        "exit status 0; no artifacts were declared{c.but}",
        _EXIT + _ARTIFACTS,
    ),
    Rule("unknown", lambda c: c.zero, "exit status 0; {c.artifacts}", _EXIT + _ARTIFACTS),
    # -- The scheduler, the platform, the machine.
    Rule("oom_host", lambda c: c.word == "oom_host", "the scheduler says: out of memory", ("scheduler_word",)),
    Rule("walltime", lambda c: c.word == "walltime", "the scheduler's time limit was reached", ("scheduler_word",)),
    Rule("preempted", lambda c: c.word == "preempted", "taken away by {c.notice}", ("scheduler_word", "notice")),
    Rule("reboot", lambda c: c.word == "reboot", "the scheduler says that the node failed", ("scheduler_word",)),
    Rule(
        "unknown",
        lambda c: c.word == "cancelled",
        "cancelled in the scheduler, not by us",
        ("scheduler_word", "our_stop"),
    ),
    Rule(
        "preempted",
        lambda c: c.e.machine_changed is True and (not c.seen or c.signal in (1, 9, 15)) and c.noticed,
        "another machine stands here now, after {c.notice}",
        ("machine_changed", "notice"),
    ),
    Rule(
        "reboot",
        lambda c: c.e.machine_changed is True and (not c.seen or c.signal in (1, 9, 15)),
        "the machine restarted or was replaced{c.steps}",
        ("machine_changed",),
    ),
    Rule(
        "preempted",
        lambda c: c.noticed and (c.signal in (2, 9, 10, 12, 15) or (not c.seen and c.ok is not True)),
        "{c.ended} after {c.notice}",
        _EXIT + ("notice",),
    ),
    Rule(
        "preempted",
        lambda c: c.noticed and c.failed and not c.hint.cls,
        "{c.ended} after {c.notice}; no line of the log says otherwise",
        _LOG + ("notice",),
    ),
    # -- Memory of the host: a counter, before any line of the log.
    Rule(
        "oom_host",
        lambda c: c.oom_kills > 0 and c.signal in (6, 7, 9),
        "{c.ended}; the kernel's out-of-memory killer struck {c.oom_kills} time(s) in the cgroup",
        _EXIT + ("oom_kill_delta",),
    ),
    Rule(
        "oom_host",
        lambda c: c.oom_kills > 0 and c.not_done and c.killed_child,
        "{c.ended}; the kernel's out-of-memory killer struck in the cgroup, a child process was its victim",
        _LOG + ("oom_kill_delta",),
    ),
    # -- Sick hardware leaves any exit status.
    Rule("gpu_fault", lambda c: c.hints("gpu_fault"), _HINT, _LOG),
    # -- The disk said no.
    Rule(
        "disk_inodes",
        lambda c: c.failed and c.disk == "inodes",
        "{c.ended}; the file system has no inodes left",
        _LOG + ("disk_refused", "disk_inodes_free"),
    ),
    Rule(
        "disk_bytes",
        lambda c: c.failed and c.disk in ("bytes", "quota"),
        "{c.ended}; {c.full}",
        _LOG + ("disk_refused", "disk_bytes_free"),
    ),
    Rule(
        "unknown",
        lambda c: c.failed and c.hint.what == "write",
        "{c.ended}; a file could not be written, and the disk is not known to be full: {c.line}",
        _LOG + ("disk_bytes_free", "disk_inodes_free"),
    ),
    # -- Numbers.
    Rule("nan", lambda c: c.failed and c.hint.cls == "nan", _HINT, _LOG + ("nan_seen",)),
    Rule(
        "nan",
        lambda c: c.failed and c.e.nan_seen and c.signal is None and not c.hint.cls,
        "{c.ended} after NaN or Inf in the metrics",
        _LOG + ("nan_seen",),
    ),
    # -- Signals with a meaning of their own.
    Rule("hangup", lambda c: c.signal == 1, "hang-up: the terminal or session it belonged to went away", _EXIT),
    Rule(
        "config",
        lambda c: c.signal == 7 and ("shm" in c.said or "shared memory" in c.said),
        "bus error; the shared memory (/dev/shm) is too small or full: fewer loader workers or a larger /dev/shm",
        _LOG,
    ),
    # -- The log's last word. Classes that resume by themselves need an end that somebody saw.
    Rule("oom_gpu", lambda c: c.hints("oom_gpu"), _HINT, _LOG),
    Rule("oom_host", lambda c: c.hints("oom_host"), _HINT, _LOG),
    Rule("driver", lambda c: c.hints("driver"), _HINT, _LOG),
    Rule("walltime", lambda c: c.failed and c.hint.cls == "walltime", _HINT, _LOG),
    Rule("preempted", lambda c: c.failed and c.hint.cls == "preempted", _HINT, _LOG),
    Rule("network", lambda c: c.failed and c.hint.cls == "network", _HINT, _LOG),
    Rule(
        "command_missing",
        lambda c: c.failed and (c.code in (126, 127) or c.hint.cls == "command_missing"),
        "{c.command}",
        _LOG,
    ),
    Rule("config", lambda c: c.hints("config"), _HINT, _LOG),
    Rule("unknown", lambda c: c.failed and c.hint.cls == "unknown", _HINT, _LOG),
    Rule("code", lambda c: c.hints("code"), _HINT, _LOG),
    Rule(
        "config",
        lambda c: c.failed and c.code == 2 and ("usage:" in c.said or ": error:" in c.said),
        "exit status 2 with a usage message{c.last}",
        _LOG,
    ),
    Rule("code", lambda c: c.failed and "traceback" in c.said, "{c.ended} with a traceback", _LOG),
    # -- Nobody saw the end, and nothing above explains it: the artifacts decide.
    Rule(
        "succeeded",
        lambda c: not c.seen and c.ok is True,
        "status unknown; artifacts complete",
        ("exit_seen",) + _ARTIFACTS,
    ),
    Rule("unknown", lambda c: not c.seen, "status unknown; {c.artifacts}{c.last}", _LOG + _ARTIFACTS),
    # -- Signals without a known sender.
    Rule(
        "killed_unexplained",
        lambda c: c.signal in (9, 15) and c.e.oom_kill_delta == 0 and not c.has_lines,
        "{c.ended}, which we did not send; no out-of-memory kill and no error line{c.steps}",
        _LOG + ("oom_kill_delta", "our_stop"),
    ),
    Rule(
        "unknown",
        lambda c: c.signal in (9, 15),
        "{c.ended}, which we did not send; {c.unexplained}",
        _LOG + ("oom_kill_delta", "our_stop"),
    ),
    Rule(
        "unknown",
        lambda c: c.signal == 7,
        "bus error: most often a full or small /dev/shm, or a mapped file that was cut short",
        _LOG + ("disk_bytes_free",),
    ),
    Rule(
        "code", lambda c: c.signal in (4, 5, 6, 8, 11, 13, 31), "{c.ended}: the program crashed outside Python", _EXIT
    ),
    Rule("config", lambda c: c.signal in (24, 25), "{c.ended}: a limit of the account or shell was reached", _EXIT),
    Rule("unknown", lambda c: c.signal is not None, "{c.ended}, which we did not send", _EXIT + ("our_stop",)),
    Rule("unknown", lambda c: True, "{c.ended}, and no line of the log names a cause{c.last}", _LOG),
)
"""The whole table. Order is meaning: our own acts, the program's own end, records, counters, then lines of the log."""


def classify(evidence: Evidence) -> Outcome:
    """Return how the attempt ended, by the first row of ``RULES`` that holds. Pure; never raises."""
    case = Case(evidence)
    rule = next(r for r in RULES if r.when(case))
    decided = {name: _plain(getattr(evidence, name)) for name in rule.fields}
    return Outcome(rule.cls, OUTCOME_CLASSES[rule.cls], rule.says.format(c=case), decided)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


__all__ = ["NOTHING_DECLARED", "REFINABLE", "RULES", "Case", "Rule", "classify", "fatal_lines"]
