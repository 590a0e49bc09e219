"""Every error that `outlive` raises on purpose, with its exit code.

::

    OutliveError
     ├─ CheckFailed          1   a check found something, or the work ended badly
     │   ├─ WorkFailed           the job's own command failed
     │   └─ Corrupt              bytes do not match their digest or their container's structure
     ├─ UsageError           2   what was typed or written cannot be meant; nothing was done
     │   ├─ BadConfig            outlive.toml: file, line, key, nearest valid key
     │   ├─ UnknownName          no such box, run, platform or verb; the candidates
     │   ├─ Ambiguous            several match; the candidates
     │   ├─ BadAddress           not an address that ssh could reach
     │   └─ NoSafePlace          a spot box, and nowhere to keep the result (`to = "none"` accepts that)
     ├─ Refused              3   we could, and will not: something would be lost or harmed
     │   ├─ GateRefused          a clause before an irreversible verb is red
     │   ├─ RunAlive             a live run stands in the way
     │   ├─ SpecDiffers          a live run of that name has another spec
     │   └─ NoSpace              too few bytes or inodes for what was asked; nothing was written
     ├─ PlaceError           4   the place cannot be reached, or cannot be worked with
     │   ├─ Unreachable          no answer; says nothing about the box or its runs
     │   ├─ HostKeyChanged       the far end's key is not the recorded one
     │   ├─ LoginRefused         it answers and refuses our key
     │   ├─ BoxLacks             no interpreter or tool for what was asked
     │   ├─ NotHere              the place has no such capability: "not here, because ..."
     │   └─ WireMismatch         the supervisor there speaks another major version
     ├─ ApprovalNeeded       5   a person has to approve
     │   └─ ApprovalInvalid      expired, used, or for another box, run or state
     ├─ Unconfirmed          6   done, but nothing that could be read says so (METER STILL RUNNING)
     │   └─ Unknown              the evidence for any answer is missing
     ├─ TimeOver             7   the time given is over and nothing is decided
     └─ Interrupted        130   Ctrl-C; a run that was watched goes on

Each says what happened, what is safe right now, and what to type next. The travelling packages do
not use these: on the box an error is a record in the journal.

An error that is not in this tree is a bug of ours.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a type checker takes it for true; every command starts faster without these imports
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import ClassVar

SCHEMA = "outlive/error/1"

EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "the work or the check failed",
    2: "usage: what was typed or configured cannot be meant; nothing was done",
    3: "refused, by the gate or because of a live run; nothing was changed",
    4: "the place is unreachable or cannot be worked with; this says nothing about its runs",
    5: "an approval by a person is needed",
    6: "unknown or unconfirmed; a meter may still be running",
    7: "time over, nothing decided",
    130: "interrupted; a watched run is untouched",
}
"""Every exit code of the command line and its meaning."""

PRECEDENCE: tuple[int, ...] = (130, 2, 4, 6, 3, 5, 1, 7, 0)
"""Where one command meets several endings, the first of these that occurred is its exit code."""


class OutliveError(Exception):
    """Base of the tree.

    ``what`` is one sentence without a final newline: what happened. ``safe`` says what is safe right
    now, ``next`` holds commands to type (each a list of words), ``why`` the reasons, one per line.
    ``code`` is a stable slug for programs, ``exit_code`` the process's exit status.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"

    def __init__(
        self,
        what: str,
        *,
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.safe = safe
        self.next: list[list[str]] = [list(argv) for argv in next]
        self.why: list[str] = list(why)

    def details(self) -> dict[str, object]:
        """Return what this class knows beyond the common fields, as JSON-ready values."""
        return {}

    def to_json(self) -> dict[str, object]:
        """Return the error as one JSON-ready object with ``schema: outlive/error/1``."""
        return {
            **self.details(),
            "schema": SCHEMA,
            "error": self.code,
            "exit_code": self.exit_code,
            "what": self.what,
            "why": list(self.why),
            "safe": self.safe,
            "next": [list(argv) for argv in self.next],
        }

    def sentence(self) -> str:
        """Return the text for a terminal: what, why, what is safe, what to type. No final newline."""
        import shlex

        lines = [self.what]
        lines += [f"  - {reason}" for reason in self.why]
        if self.safe:
            lines.append(f"safe: {self.safe}")
        lines += [f"next: {shlex.join(argv)}" for argv in self.next]
        return "\n".join(lines)


# ---- 1: the work or the check failed ----


class CheckFailed(OutliveError):
    """A check found something. `doctor`, `ckpt verify`, `lint-train` and `drill` end with this."""

    exit_code = 1
    code = "check-failed"


class WorkFailed(CheckFailed):
    """The job's own command ended badly; ``returncode`` is its status where it is known."""

    code = "work-failed"

    def __init__(
        self,
        what: str,
        *,
        returncode: int | None = None,
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.returncode = returncode

    def details(self) -> dict[str, object]:
        return {"returncode": self.returncode}


class Corrupt(CheckFailed):
    """Bytes are not what their digest, length or container says. ``path`` names the file."""

    code = "corrupt"

    def __init__(
        self,
        what: str,
        *,
        path: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.path = path

    def details(self) -> dict[str, object]:
        return {"path": self.path}


# ---- 2: usage ----


class UsageError(OutliveError):
    """What was typed or written cannot be meant. Nothing was done."""

    exit_code = 2
    code = "usage"


class BadConfig(UsageError):
    """A file of settings is wrong: where, which key, and the nearest valid key.

    ``line`` counts from 1; None where the parser gave none. ``suggestion`` is "" if nothing is near.
    """

    code = "bad-config"

    def __init__(
        self,
        what: str,
        *,
        file: str = "outlive.toml",
        line: int | None = None,
        key: str = "",
        suggestion: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.file = file
        self.line = line
        self.key = key
        self.suggestion = suggestion

    def details(self) -> dict[str, object]:
        return {"file": self.file, "line": self.line, "key": self.key, "suggestion": self.suggestion}

    def sentence(self) -> str:
        at = f"{self.file}:{self.line}" if self.line is not None else self.file
        key = f" [{self.key}]" if self.key else ""
        head, _, rest = super().sentence().partition("\n")
        hint = f" (did you mean `{self.suggestion}`?)" if self.suggestion else ""
        return f"{at}{key}: {head}{hint}" + (f"\n{rest}" if rest else "")


class UnknownName(UsageError):
    """No box, run, platform or the like has that name. ``candidates`` holds those that exist."""

    code = "unknown-name"

    def __init__(
        self,
        what: str,
        *,
        name: str = "",
        candidates: Iterable[str] = (),
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.name = name
        self.candidates: list[str] = list(candidates)

    @classmethod
    def of(cls, kind: str, name: str, candidates: Iterable[str], *, next: Iterable[Sequence[str]] = ()) -> UnknownName:
        """Return the error for a ``kind`` (box, run, platform) that is not among ``candidates``."""
        known = sorted(candidates)
        near = nearest(name, known)
        if near:
            what = f"no {kind} is called `{name}`; did you mean `{near}`?"
        elif known:
            what = f"no {kind} is called `{name}`"
        else:
            what = f"no {kind} is called `{name}`; there is none yet"
        return cls(what, name=name, candidates=known, next=next)

    def details(self) -> dict[str, object]:
        return {"name": self.name, "candidates": list(self.candidates)}

    def sentence(self) -> str:
        text = super().sentence()
        if not self.candidates:
            return text
        shown = self.candidates[:12]
        more = len(self.candidates) - len(shown)
        return text + "\nknown: " + ", ".join(shown) + (f" and {more} more" if more else "")


class Ambiguous(UnknownName):
    """The name, or its absence, fits several; ``candidates`` holds them."""

    code = "ambiguous"


class BadAddress(UsageError):
    """Not an address: neither an ssh alias, ``user@host[:port]``, a URL, a pasted ssh line nor ``local:``."""

    code = "bad-address"

    def __init__(
        self,
        what: str,
        *,
        address: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.address = address

    def details(self) -> dict[str, object]:
        return {"address": self.address}


class NoSafePlace(UsageError):
    """A box that can vanish, and nowhere to keep the result. Writing ``to = "none"`` accepts that."""

    code = "no-safe-place"


# ---- 3: refused ----


class Refused(OutliveError):
    """We could and will not, because something would be lost or harmed. Nothing was changed."""

    exit_code = 3
    code = "refused"


class GateRefused(Refused):
    """A clause of the gate is red; ``why`` has one line per red clause."""

    code = "gate-refused"


class RunAlive(Refused):
    """A live run stands in the way; ``runs`` names it."""

    code = "run-alive"

    def __init__(
        self,
        what: str,
        *,
        runs: Iterable[str] = (),
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.runs: list[str] = list(runs)

    def details(self) -> dict[str, object]:
        return {"runs": list(self.runs)}


class SpecDiffers(Refused):
    """A live run of the same name has another spec; ``why`` holds the difference, one key per line."""

    code = "spec-differs"


class NoSpace(Refused):
    """Too few bytes or inodes for what was asked, found before anything was written there.

    None means not known: a tier without an inode count has ``inodes_free = None``.
    """

    code = "no-space"

    def __init__(
        self,
        what: str,
        *,
        path: str = "",
        bytes_needed: int | None = None,
        bytes_free: int | None = None,
        inodes_needed: int | None = None,
        inodes_free: int | None = None,
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.path = path
        self.bytes_needed = bytes_needed
        self.bytes_free = bytes_free
        self.inodes_needed = inodes_needed
        self.inodes_free = inodes_free

    def details(self) -> dict[str, object]:
        return {
            "path": self.path,
            "bytes_needed": self.bytes_needed,
            "bytes_free": self.bytes_free,
            "inodes_needed": self.inodes_needed,
            "inodes_free": self.inodes_free,
        }


# ---- 4: the place ----


class PlaceError(OutliveError):
    """The place cannot be reached or worked with. Says nothing about what runs there."""

    exit_code = 4
    code = "place"

    def __init__(
        self,
        what: str,
        *,
        place: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.place = place

    def details(self) -> dict[str, object]:
        return {"place": self.place}


class Unreachable(PlaceError):
    """No answer, or the connection died. A command that was sent may have run, be running, or never have started."""

    code = "unreachable"


class HostKeyChanged(PlaceError):
    """The far end shows another key than the recorded one: a new box at an old address, or a stranger."""

    code = "host-key-changed"

    def __init__(
        self,
        what: str,
        *,
        place: str = "",
        recorded: str = "",
        shown: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, place=place, safe=safe, next=next, why=why)
        self.recorded = recorded
        self.shown = shown

    def details(self) -> dict[str, object]:
        return {**super().details(), "recorded": self.recorded, "shown": self.shown}


class LoginRefused(PlaceError):
    """The far end answers and refuses every key that we may use.

    ``login_lost``: a connection from before still works, so what is there can be pulled now and only now.
    """

    code = "login-refused"
    login_lost: bool = False

    def details(self) -> dict[str, object]:
        return {**super().details(), "login_lost": self.login_lost}


class BoxLacks(PlaceError):
    """The place has not what the request needs: an interpreter, a tool. ``lacks`` names it."""

    code = "box-lacks"

    def __init__(
        self,
        what: str,
        *,
        place: str = "",
        lacks: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, place=place, safe=safe, next=next, why=why)
        self.lacks = lacks

    def details(self) -> dict[str, object]:
        return {**super().details(), "lacks": self.lacks}


class NotHere(PlaceError):
    """The place lacks the capability that the request needs, and nothing was done. ``capability`` names it.

    ``because`` is the reason as a part of a sentence. Another place may do it.
    """

    code = "not-here"

    def __init__(
        self,
        what: str,
        *,
        place: str = "",
        capability: str = "",
        because: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, place=place, safe=safe, next=next, why=why)
        self.capability = capability
        self.because = because

    @classmethod
    def of(
        cls,
        wanted: str,
        capability: str,
        because: str,
        *,
        place: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
    ) -> NotHere:
        """Return the error for what was ``wanted`` (a verb or a request), as one sentence: "not here, because ..."."""
        at = f" ({place})" if place else ""
        return cls(
            f"{wanted}: not here{at}, because {because}",
            place=place,
            capability=capability,
            because=because,
            safe=safe or "Nothing was done.",
            next=next,
        )

    def details(self) -> dict[str, object]:
        return {**super().details(), "capability": self.capability, "because": self.because}


class WireMismatch(PlaceError):
    """The supervisor there speaks another major version of the wire; ``theirs`` and ``ours`` name both."""

    code = "wire-mismatch"

    def __init__(
        self,
        what: str,
        *,
        place: str = "",
        theirs: int | None = None,
        ours: int | None = None,
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, place=place, safe=safe, next=next, why=why)
        self.theirs = theirs
        self.ours = ours

    def details(self) -> dict[str, object]:
        return {**super().details(), "theirs": self.theirs, "ours": self.ours}


# ---- 5, 6, 7, 130 ----


class ApprovalNeeded(OutliveError):
    """A person has to approve; ``request`` is the id for `outlive approve`, "" where there is none."""

    exit_code = 5
    code = "approval-needed"

    def __init__(
        self,
        what: str,
        *,
        request: str = "",
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.request = request

    def details(self) -> dict[str, object]:
        return {"request": self.request}


class ApprovalInvalid(ApprovalNeeded):
    """The approval is expired, was used, or is for another box, run or state; ``why`` says which."""

    code = "approval-invalid"


class Unconfirmed(OutliveError):
    """The verb was carried out, and nothing that could be read says so. A meter may still be running."""

    exit_code = 6
    code = "unconfirmed"


class Unknown(Unconfirmed):
    """The evidence for any answer is missing. Never a reason to act."""

    code = "unknown"


class TimeOver(OutliveError):
    """The time given is over and nothing is decided; ``after_s`` is that time in seconds."""

    exit_code = 7
    code = "time-over"

    def __init__(
        self,
        what: str,
        *,
        after_s: float | None = None,
        safe: str = "",
        next: Iterable[Sequence[str]] = (),
        why: Iterable[str] = (),
    ) -> None:
        super().__init__(what, safe=safe, next=next, why=why)
        self.after_s = after_s

    def details(self) -> dict[str, object]:
        return {"after_s": self.after_s}


class Interrupted(OutliveError):
    """The user pressed Ctrl-C. What runs on a box goes on."""

    exit_code = 130
    code = "interrupted"


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of a command that met several endings: 130 > 2 > 4 > 6 > 3 > 5 > 1 > 7 > 0.

    No codes is 0. Raises ValueError for a number that is no exit code of ours.
    """
    seen = set(codes)
    foreign = seen.difference(PRECEDENCE)
    if foreign:
        raise ValueError(f"not an exit code of outlive: {sorted(foreign)}")
    return next((code for code in PRECEDENCE if code in seen), 0)


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return the candidate that ``word`` was most likely meant to be, or "" if none is near.

    Upper and lower case, `-` and `_` are not told apart.
    """
    import difflib

    plain: dict[str, str] = {}
    for candidate in candidates:
        plain.setdefault(candidate.casefold().replace("_", "-"), candidate)
    found = difflib.get_close_matches(word.casefold().replace("_", "-"), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else ""


def all_errors() -> list[type[OutliveError]]:
    """Return every class of the tree, parents before children, in the order of this file."""

    def below(cls: type[OutliveError]) -> list[type[OutliveError]]:
        return [cls, *(deeper for child in cls.__subclasses__() for deeper in below(child))]

    return [cls for cls in below(OutliveError) if cls.__module__ == __name__]
