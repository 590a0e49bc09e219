"""Who holds the GPUs: the driver's list of compute processes, and open device files."""

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from outlive.probes import process
from outlive.probes.bounded import last_line, run_bounded, text
from outlive.wire.values import Value


@dataclass(frozen=True)
class GpuHolder(Value):
    """A process that holds a GPU. ``here`` is False where the number is not one of our namespace's."""

    pid: int
    here: bool
    uid: Optional[int] = None
    command: str = ""
    """First words of its command line, or the driver's name for it; may hold secrets."""
    gpu_uuids: Tuple[str, ...] = ()
    memory_used_bytes: Optional[int] = None
    devices: Tuple[str, ...] = ()
    """Device files that it has open."""


@dataclass(frozen=True)
class GpuHolders(Value):
    """``unreadable`` counts processes whose open files we may not see; ``why_unknown`` is set when the
    driver's own list is missing, so that an empty list proves nothing."""

    holders: Tuple[GpuHolder, ...] = ()
    unreadable: int = 0
    why_unknown: str = ""

    def to_wire(self) -> Dict[str, Any]:
        wire = super().to_wire()
        wire["holders"] = [holder.to_wire() for holder in self.holders]
        return wire


def holders(timeout_s: float = 5.0, argv: Optional[Sequence[str]] = None) -> GpuHolders:
    """Return every process known to hold a GPU, within ``timeout_s`` plus a second.

    A process that has only /dev/nvidiactl open (a monitor) is not counted as holding one.
    """
    from outlive.probes.gpu import find_command

    found: Dict[int, Dict[str, Any]] = {}
    why = ""
    command = list(argv) if argv else find_command()
    if command is None:
        why = "no nvidia-smi to ask"
    else:
        flags = ["--query-compute-apps=pid,process_name,used_memory,gpu_uuid", "--format=csv,noheader,nounits"]
        answer = run_bounded(command + flags, timeout_s)
        if answer.rc != 0:
            why = answer.why or "nvidia-smi ended with %s: %s" % (answer.rc, last_line(answer.out, answer.err))
        else:
            found = parse_apps(text(answer.out))
    unreadable = _scan(found)
    result = [_holder(pid, facts) for pid, facts in sorted(found.items())]
    return GpuHolders(tuple(result), unreadable, why)


def parse_apps(printed: str) -> Dict[int, Dict[str, Any]]:
    """Read ``pid, name, MiB, uuid`` lines; a process on several devices is one entry with their sum."""
    found: Dict[int, Dict[str, Any]] = {}
    for line in printed.splitlines():
        # A process name may hold commas; the other cells do not.
        pid, _, rest = line.partition(",")
        cells = rest.rsplit(",", 2)
        if len(cells) != 3 or not pid.strip().isdigit():
            continue
        name, memory, uuid = (cell.strip() for cell in cells)
        facts = found.setdefault(int(pid), {"name": name, "memory": None, "uuids": [], "devices": []})
        if memory.isdigit():
            facts["memory"] = (facts["memory"] or 0) + int(memory) * 1024 * 1024
        facts["uuids"].append(uuid)
    return found


def _scan(found: Dict[int, Dict[str, Any]]) -> int:
    """Add processes with an open device; return how many could not be looked into."""
    unreadable = 0
    for pid, stat in process.snapshot().items():
        if stat.kernel or stat.state == "Z" or stat.comm == "nvidia-smi":
            continue  # the driver's own tool opens every device and holds none of them
        place = "%s/%d/fd" % (process.PROC, pid)
        try:
            handles = os.listdir(place)
        except PermissionError:
            unreadable += 1
            continue
        except OSError:
            continue
        devices = set()
        for handle in handles:
            try:
                target = os.readlink(os.path.join(place, handle))
            except OSError:
                continue
            if target.startswith("/dev/nvidia") and target[11:].isdigit() or target == "/dev/nvidia-uvm":
                devices.add(target)
        if devices:
            facts = found.setdefault(pid, {"name": "", "memory": None, "uuids": [], "devices": []})
            facts["devices"] = sorted(devices)
    return unreadable


def _holder(pid: int, facts: Dict[str, Any]) -> GpuHolder:
    here = process.stat(pid) is not None
    words: Optional[List[str]] = process.command_line(pid) if here else None
    return GpuHolder(
        pid=pid,
        here=here,
        uid=process.owner_uid(pid) if here else None,
        command=" ".join(words)[:200] if words else facts["name"],
        gpu_uuids=tuple(facts["uuids"]),
        memory_used_bytes=facts["memory"],
        devices=tuple(facts["devices"]),
    )
