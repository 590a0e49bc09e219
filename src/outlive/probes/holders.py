"""Processes, whoever owns them, that may still write below given directories."""

import os
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from outlive.probes import process
from outlive.wire.values import Value

_SHOWN = 5
_WRITES = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Holder(Value):
    """One process with files open for writing (or mapped for shared writing) below the directories."""

    pid: int
    start_ticks: Optional[int] = None
    uid: Optional[int] = None
    command: str = ""
    """First words of its command line; may hold secrets."""
    files: Tuple[str, ...] = ()
    """Some of the files; deleted ones end in `` (deleted)``."""
    file_count: int = 0


@dataclass(frozen=True)
class Holders(Value):
    """Who writes. An empty list proves that nobody does only if ``unreadable`` is 0 and ``why_unknown`` empty.

    Writers on other machines that share a network mount are never seen from here.
    """

    holders: Tuple[Holder, ...] = ()
    unreadable: Optional[int] = None
    """Processes whose open files we may not see; None where processes cannot be looked into at all."""
    why_unknown: str = ""
    unreadable_uids: Tuple[Optional[int], ...] = ()
    """Whose those processes are, each owner once; None where even that is hidden."""

    def to_wire(self) -> Dict[str, Any]:
        wire = super().to_wire()
        wire["holders"] = [holder.to_wire() for holder in self.holders]
        return wire


def holders(dirs: Sequence[str], ignore: Iterable[int] = ()) -> Holders:
    """Return the processes that hold files for writing below ``dirs``, without those in ``ignore``."""
    if not process.has_proc():
        return Holders(why_unknown="this system has no /proc to look for open files in")
    tops = [os.path.realpath(dir) for dir in dirs]
    skipped = set(ignore)
    found, unreadable = [], 0
    owners: Set[Optional[int]] = set()
    for pid, stat in sorted(process.snapshot().items()):
        if stat.kernel or stat.state == "Z" or pid in skipped:
            continue
        files: Set[str] = set()
        try:
            files.update(_open_for_write(pid, tops))
            files.update(_mapped_for_write(pid, tops))
        except PermissionError:
            unreadable += 1
            owners.add(process.owner_uid(pid))
        except OSError:
            continue
        if files:
            words = process.command_line(pid) or ["[%s]" % stat.comm]
            shown = tuple(sorted(files)[:_SHOWN])
            command = " ".join(words)[:200]
            found.append(Holder(pid, stat.ticks, process.owner_uid(pid), command, shown, len(files)))
    why = "%d processes could not be looked into" % unreadable if unreadable else ""
    return Holders(tuple(found), unreadable, why, tuple(sorted(owners, key=str)))


def _open_for_write(pid: int, tops: List[str]) -> List[str]:
    place = "%s/%d" % (process.PROC, pid)
    result = []
    for handle in os.listdir(place + "/fd"):
        try:
            target = os.readlink("%s/fd/%s" % (place, handle))
            if _below(target, tops) and _flags("%s/fdinfo/%s" % (place, handle)) & _WRITES:
                result.append(target)
        except FileNotFoundError:
            # Closed between the two looks.
            continue
    return result


def _flags(path: str) -> int:
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8)
    return 0


def _mapped_for_write(pid: int, tops: List[str]) -> List[str]:
    """Files mapped shared and writable: their handle may be closed long ago."""
    result = []
    with open("%s/%d/maps" % (process.PROC, pid), "rb") as file:
        for line in file:
            words = line.split(None, 5)
            if len(words) == 6 and words[1][1:2] == b"w" and words[1][3:4] == b"s":
                target = os.fsdecode(words[5].rstrip(b"\n"))
                if _below(target, tops):
                    result.append(target)
    return result


def _below(target: str, tops: List[str]) -> bool:
    return any(target == top or target.startswith(top.rstrip("/") + "/") for top in tops)
