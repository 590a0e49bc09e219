"""GPUs as the driver's own tool reports them, and who holds them. Nothing here may hang: a sick GPU can
keep ``nvidia-smi`` inside the kernel for minutes, so each question has one deadline."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from outlive.probes.bounded import Bounded, last_line, run_bounded, text
from outlive.wire.clock import boot_s
from outlive.wire.values import Value

if TYPE_CHECKING:
    from outlive.probes.gpu_holders import GpuHolders

STATES = ("ok", "none", "sick", "unknown")

THROTTLE_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of the driver's clock reason mask; the names are its own."""

_FIELDS = (
    ("index", "index"),
    ("name", "name"),
    ("uuid", "uuid"),
    ("pci_bus_id", "pci.bus_id"),
    ("driver", "driver_version"),
    ("memory_total_bytes", "memory.total"),
    ("memory_used_bytes", "memory.used"),
    ("utilisation", "utilization.gpu"),
    ("power_w", "power.draw"),
    ("power_limit_w", "power.limit"),
    ("temperature_c", "temperature.gpu"),
    ("pstate", "pstate"),
    ("sm_clock_mhz", "clocks.sm"),
    ("sm_clock_max_mhz", "clocks.max.sm"),
    ("throttle", "clocks_throttle_reasons.active"),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total"),
    ("ecc_corrected", "ecc.errors.corrected.volatile.total"),
    ("mig", "mig.mode.current"),
)

_RENAMED = {"clocks_throttle_reasons.active": "clocks_event_reasons.active"}
"""Names that a driver may have given up, and what it calls them now."""

_ABSENT = frozenset(
    ("", "n/a", "[n/a]", "[not supported]", "not supported", "[requested functionality has been deprecated]")
)
_BROKEN = ("err!", "unknown error", "gpu is lost", "requires reset", "insufficient permissions")

_SICK_WORDS = (
    "driver/library version mismatch",
    "unable to determine the device handle",
    "gpu is lost",
    "unknown error",
    "requires reset",
    "rm has detected an nvml/rm version mismatch",
)
_NO_DRIVER_WORDS = ("couldn't communicate with the nvidia driver", "driver not loaded")


@dataclass(frozen=True)
class Gpu(Value):
    """One device; a field that the device or driver does not report is None."""

    index: int
    name: Optional[str] = None
    uuid: Optional[str] = None
    pci_bus_id: Optional[str] = None
    memory_total_bytes: Optional[int] = None
    memory_used_bytes: Optional[int] = None
    """Used by anybody, also by processes outside our container."""
    utilisation: Optional[float] = None
    """Share of the last sample period in which a kernel ran, 0 to 1; says nothing of how busy it was."""
    utilisation_mean: Optional[float] = None
    """The same over all readings since the last sample, where there were several."""
    power_w: Optional[float] = None
    power_limit_w: Optional[float] = None
    temperature_c: Optional[float] = None
    pstate: Optional[str] = None
    sm_clock_mhz: Optional[float] = None
    sm_clock_max_mhz: Optional[float] = None
    throttle: Optional[Tuple[str, ...]] = None
    """Reasons for lowered clocks, names of ``THROTTLE_BITS``; empty when there are none."""
    ecc_uncorrected: Optional[int] = None
    """Uncorrected memory errors since the driver was loaded."""
    ecc_corrected: Optional[int] = None
    mig: Optional[str] = None
    errors: Tuple[str, ...] = ()
    """Fields that the driver answered with an error, as ``field: words``."""


@dataclass(frozen=True)
class GpuReading(Value):
    """All devices, or why there are none.

    ``none``: there is no GPU here, from evidence. ``sick``: there is one and the driver reports trouble
    with it. ``unknown``: no answer, or one that we do not understand.
    """

    state: str
    devices: Tuple[Gpu, ...] = ()
    driver: Optional[str] = None
    cuda: Optional[str] = None
    """Newest CUDA version that the driver serves; not what any framework was built with."""
    why: str = ""

    def to_wire(self) -> Dict[str, Any]:
        wire = super().to_wire()
        wire["devices"] = [device.to_wire() for device in self.devices]
        return wire

    @classmethod
    def from_wire(cls, data: Dict[str, Any]) -> "GpuReading":
        clean = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        devices = []
        for found in clean.get("devices") or ():
            device = Gpu.from_wire(found)
            throttle = found.get("throttle")
            fixed = dict(device.__dict__, errors=tuple(found.get("errors") or ()))
            fixed["throttle"] = None if throttle is None else tuple(throttle)
            devices.append(Gpu(**fixed))
        clean["devices"] = tuple(devices)
        return cls(**clean)


def gpus(
    timeout_s: float = 5.0,
    argv: Optional[Sequence[str]] = None,
    with_cuda: bool = True,
    dev: str = "/dev",
    pci: str = "/sys/bus/pci/devices",
) -> GpuReading:
    """Ask ``nvidia-smi`` for all devices and answer within ``timeout_s`` plus a second.

    ``argv`` is the command to ask instead of the one found on this machine. ``with_cuda=False`` saves the
    second call that the CUDA version needs, for repeated sampling. ``dev`` and ``pci`` are where device
    nodes and the bus are looked for when the tool itself cannot tell a missing GPU from a broken one.
    """
    command = list(argv) if argv else find_command()
    nodes = _nodes(dev)
    if command is None:
        if nodes:
            return GpuReading("unknown", why="%s is here but nvidia-smi is not" % nodes[0])
        if _on_bus(pci):
            return GpuReading("unknown", why="an NVIDIA device is on the bus, but no driver and no nvidia-smi")
        return GpuReading("none", why="no nvidia-smi, no /dev/nvidia*, no NVIDIA device on the bus")
    end_s = boot_s() + timeout_s
    answer, asked = _query(command, end_s)
    if answer.timed_out:
        return GpuReading("unknown", why="nvidia-smi gave %s; it often hangs on a sick GPU" % answer.why)
    if answer.rc is None:
        return GpuReading("unknown", why=answer.why)
    devices, driver, complaint = _parse(text(answer.out), asked)
    state, why = _judge(answer, devices, complaint, bool(nodes), pci)
    cuda = _cuda(command, end_s) if with_cuda and devices and state == "ok" else None
    return GpuReading(state, tuple(devices), driver, cuda, why)


def parse_query(printed: str, fields: Optional[Sequence[str]] = None) -> Tuple[Gpu, ...]:
    """Read the lines of a ``--format=csv,noheader,nounits`` answer to ``fields`` (default: what we ask)."""
    return tuple(_parse(printed, list(fields) if fields else [name for _, name in _FIELDS])[0])


def reading_of(printed: str, asked: Sequence[str], dev: str = "/dev", pci: str = "/sys/bus/pci/devices") -> GpuReading:
    """Return what a printed answer to ``asked`` says, judged as ``gpus`` judges one; without the CUDA version."""
    devices, driver, complaint = _parse(printed, list(asked))
    said = Bounded(0, printed.encode("utf-8", "replace"), b"")
    state, why = _judge(said, devices, complaint, bool(_nodes(dev)), pci)
    return GpuReading(state, tuple(devices), driver, None, why)


def query_words(asked: Sequence[str]) -> List[str]:
    """Return the flags that ask for fields, a line for each device."""
    return ["--query-gpu=" + ",".join(asked), "--format=csv,noheader,nounits"]


def all_fields() -> List[str]:
    """Return the fields that we ask for, as the driver calls them."""
    return [name for _, name in _FIELDS]


def known_fields(asked: Sequence[str], said: str) -> Optional[List[str]]:
    """Return the fields to ask for instead when the answer refuses one of them, else None."""
    import re

    refused = re.search(r'Field "([^"]+)" is not a valid field to query', said)
    if refused is None or refused.group(1) not in asked:
        return None
    name, fields = refused.group(1), list(asked)
    place = fields.index(name)
    fields[place : place + 1] = [_RENAMED[name]] if name in _RENAMED else []
    return fields


def holders(timeout_s: float = 5.0, argv: Optional[Sequence[str]] = None) -> "GpuHolders":
    """Return who holds the GPUs, as ``gpu_holders.GpuHolders``; see there."""
    from outlive.probes import gpu_holders

    return gpu_holders.holders(timeout_s, argv)


def _query(command: List[str], end_s: float) -> Tuple[Bounded, List[str]]:
    """Ask for all fields; a field that this driver does not know is renamed or dropped and we ask again."""
    asked = all_fields()
    while True:
        answer = run_bounded(command + query_words(asked), max(0.05, end_s - boot_s()))
        others = known_fields(asked, text(answer.out + answer.err))
        if others is None:
            return answer, asked
        asked = others


def _parse(printed: str, asked: List[str]) -> Tuple[List[Gpu], Optional[str], str]:
    """Return devices, driver version, and the first line that is not a device."""
    ours = {name: key for key, name in _FIELDS}
    ours.update((new, ours[old]) for old, new in _RENAMED.items())
    devices, driver, complaint = [], None, ""
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(asked) or not cells[0].isdigit():
            complaint = complaint or line.strip()
            continue
        facts: Dict[str, Any] = {}
        errors: List[str] = []
        for name, cell in zip(asked, cells):
            key, word = ours[name], cell.lower()
            if word in _ABSENT:
                continue
            if any(broken in word for broken in _BROKEN):
                errors.append("%s: %s" % (name, cell))
                continue
            facts[key] = _value(key, cell)
        driver = facts.pop("driver", None) or driver
        devices.append(Gpu(errors=tuple(errors), **facts))
    return devices, driver, complaint


def _value(key: str, cell: str) -> Any:
    if key in ("name", "uuid", "pci_bus_id", "driver", "pstate", "mig"):
        return cell
    try:
        if key == "throttle":
            mask = int(cell, 16)
            return tuple(name for bit, name in sorted(THROTTLE_BITS.items()) if mask & bit)
        number = float(cell.split()[0])
    except (ValueError, IndexError):
        return None
    if key in ("index", "ecc_uncorrected", "ecc_corrected"):
        return int(number)
    if key.endswith("_bytes"):
        return int(number * 1024 * 1024)
    return number / 100.0 if key == "utilisation" else number


def _judge(answer: Bounded, devices: List[Gpu], complaint: str, nodes: bool, pci: str) -> Tuple[str, str]:
    said = text(answer.out + b"\n" + answer.err)
    low = said.lower()
    line = complaint or last_line(answer.err) or last_line(answer.out)
    broken = ["GPU %d %s" % (device.index, device.errors[0]) for device in devices if device.errors]
    if broken:
        permissions = all("insufficient permissions" in words.lower() for d in devices for words in d.errors)
        return ("unknown" if permissions else "sick"), "; ".join(broken)
    for words in _SICK_WORDS:
        if words in low:
            return "sick", _line_with(said, words)
    if "no devices were found" in low:
        if nodes:
            return "sick", "a device node exists, but the driver says: No devices were found"
        return "none", "No devices were found"
    if any(words in low for words in _NO_DRIVER_WORDS):
        if nodes or _on_bus(pci):
            return "sick", line
        return "none", "no NVIDIA device on the bus, and no driver answers"
    if answer.rc == 0 and devices and not complaint:
        return "ok", ""
    if answer.rc == 0 and devices:
        return "ok", "a line that is not a device: %s" % complaint[:200]
    return "unknown", "nvidia-smi ended with %s: %s" % (answer.rc, line[:300] or "no words")


def _cuda(command: List[str], end_s: float) -> Optional[str]:
    """The CUDA version stands only in the head of the plain report."""
    import re

    left_s = end_s - boot_s()
    if left_s <= 0.05:
        return None
    found = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+(?:\.\d+)*)", text(run_bounded(command, left_s).out))
    return found.group(1) if found else None


def _line_with(said: str, words: str) -> str:
    return next((line.strip()[:300] for line in said.splitlines() if words in line.lower()), words)


def find_command() -> Optional[List[str]]:
    """Return the driver's tool as the beginning of a command, or None if this machine has none."""
    import shutil

    # Where containers and WSL put it without telling PATH.
    extra = ("/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
    path = os.pathsep.join((os.environ.get("PATH", os.defpath),) + extra)
    found = shutil.which("nvidia-smi", path=path)
    return [found] if found else None


def _nodes(dev: str) -> List[str]:
    try:
        names = sorted(name for name in os.listdir(dev) if name.startswith("nvidia") and name[6:].isdigit())
    except OSError:
        return []
    return [os.path.join(dev, name) for name in names]


def _on_bus(pci: str) -> bool:
    """Whether an NVIDIA display or compute device is on the bus. In a container it may be the host's."""
    try:
        devices = os.listdir(pci)
    except OSError:
        return False
    for device in devices:
        try:
            with open(os.path.join(pci, device, "vendor")) as file:
                vendor = file.read().strip()
            with open(os.path.join(pci, device, "class")) as file:
                kind = file.read().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            return True
    return False
