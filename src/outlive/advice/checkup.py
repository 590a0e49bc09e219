"""What the readings of a machine mean: one verdict a check, never "ok" where nothing could be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

OK, FINDING, UNKNOWN = "ok", "finding", "unknown"

TIGHT_SHARE = 0.95
"""Of bytes or inodes used: above it a checkpoint may not fit."""
SMALL_MEMORY_BYTES = 2 << 30
"""A limit below it cannot hold torch with CUDA and a data loader."""
MEMORY_SHARE = 0.9
SMALL_SHM_BYTES = 1 << 30
THREADS_PER_CORE = 3.0
"""Runnable threads for each usable core from which they only take turns."""
THROTTLED_SHARE = 0.25
LOST_VRAM_BYTES = 500 << 20
SKEW_S = 5.0
BUSY = 0.5
IDLE = 0.05
HOT_REASONS = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
FATAL_XIDS = {48, 63, 64, 74, 79, 92, 94, 95, 119, 120}
LOCAL_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Check:
    """One check. ``reading`` holds the numbers it was judged by; ``fix`` is in order."""

    name: str
    verdict: str
    why: str
    reading: Mapping[str, Any] = field(default_factory=dict)
    source_ids: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "why": self.why,
            "reading": dict(self.reading),
            "source_ids": list(self.source_ids),
            "fix": list(self.fix),
        }


@dataclass(frozen=True)
class Expected:
    """What is known of the box from before. ``gpus``: how many it had at `up`, None when nobody looked."""

    gpus: int | None = None
    skew_s: float | None = None
    round_trip_s: float = 0.0


def judge(found: Mapping[str, Any], expected: Expected) -> list[Check]:
    """Return every check of the readings of ``probes.checkup``, in a fixed order."""
    checks: list[Check] = []
    mounts: set[str] = set()
    for part in found:
        if part.startswith("disk:"):
            mount = str((_value(found, part)[0] or {}).get("mount") or part)
            if mount not in mounts:  # several of the directories may lie on one file system
                mounts.add(mount)
                checks += _disk(part[5:], found)
    checks += _memory(found)
    checks += _load(found)
    checks += _shm(found)
    checks += _gpus(found, expected)
    checks += _software(found)
    checks += _network(found)
    checks += _clock(expected)
    checks += _bystanders(found)
    return checks


def _value(found: Mapping[str, Any], part: str) -> tuple[Any, str]:
    answer = found.get(part) or {}
    return answer.get("value"), str(answer.get("why_unknown") or "no answer")


def size(number: float | None) -> str:
    """Return bytes for people."""
    if number is None:
        return "unknown"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit in ("B", "KiB") else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _disk(path: str, found: Mapping[str, Any]) -> Iterator[Check]:
    disk, why = _value(found, f"disk:{path}")
    for what, word, ids in (("bytes", "bytes", ("U6",)), ("inodes", "inodes", ("U7",))):
        name = f"disk-{what} {path}"
        free, total = (disk or {}).get(f"free_{what}"), (disk or {}).get(f"total_{what}")
        if disk is None or (free is None and what not in (disk.get("unlimited") or ())):
            yield Check(name, UNKNOWN, str((disk or {}).get("why_unknown") or why), source_ids=ids)
            continue
        if not total or free is None:
            if what == "bytes":
                yield Check(name, UNKNOWN, "the file system reports no size", source_ids=ids)
            continue
        used = 1.0 - float(free) / float(total)
        reading = {"free": free, "total": total, "used_share": round(used, 4), "mount": disk.get("mount")}
        left = size(float(free)) if what == "bytes" else f"{free:,}".replace(",", " ")
        if used >= TIGHT_SHARE:
            more, fix = _clean_up(found, str(disk.get("mount") or path), what)
            reading.update(more)
            yield Check(name, FINDING, f"{used:.0%} of the {word} are used, {left} left", reading, ids, tuple(fix))
        else:
            yield Check(name, OK, f"{left} {'' if what == 'bytes' else 'inodes '}free", reading, ids)
    if disk is not None and disk.get("read_only"):
        yield Check(
            f"disk-writable {path}",
            FINDING,
            "mounted read-only",
            {"mount": disk.get("mount")},
            ("U6",),
            ("look at the provider's console: a disk goes read-only after an I/O error or an unpaid bill",),
        )


COSTS = {"free": "made again at no cost", "download": "downloaded again when needed", "look": "look before you delete"}


def _clean_up(found: Mapping[str, Any], mount: str, what: str) -> tuple[dict[str, Any], list[str]]:
    """Return what takes the space on ``mount``, ranked by what is won and what losing it costs."""
    hogs, _ = _value(found, "hogs")
    if not hogs:
        return {}, ["find the largest directories: `du -x -d2 / | sort -n | tail` (inodes: `du --inodes -x -d2 /`)"]
    key = "bytes" if what == "bytes" else "files"
    here = [one for one in hogs.get("caches") or [] if one.get("mount") == mount and one.get(key)]
    order = {"free": 0, "download": 1, "look": 2}
    here.sort(key=lambda one: (order.get(str(one.get("cost")), 3), -int(one[key])))
    fix = []
    for one in here[:6]:
        amount = size(one["bytes"]) if what == "bytes" else f"{one['files']} files"
        place = f"{one['path']} -> {one['real']}" if one.get("linked") else str(one["path"])
        bound = "" if one.get("complete") else "at least "
        fix.append(f"{one['name']} {place}: {bound}{amount}, {COSTS.get(str(one['cost']), '')}")
    largest = sorted((hogs.get("largest") or {}).get(mount) or [], key=lambda one: -int(one[key]))[:3]
    for one in largest:
        amount = size(one["bytes"]) if what == "bytes" else f"{one['files']} files"
        fix.append(f"{one['path']}: {amount}; keep checkpoints and results, pull them first")
    return {"caches": here[:6], "largest": largest}, fix


def _memory(found: Mapping[str, Any]) -> Iterator[Check]:
    group, why = _value(found, "cgroup")
    unread = (group or {}).get("why_unknown") or why
    limit = (group or {}).get("memory_limit_bytes")
    if group is None or (limit is None and "memory_limit_bytes" not in (group.get("unlimited") or ())):
        if (_value(found, "machine")[0] or {}).get("system") == "Darwin":
            yield Check("memory-limit", OK, "no control groups on this system")
        else:
            yield Check("memory-limit", UNKNOWN, str(unread), source_ids=("U9", "U41"))
    elif limit is None:
        yield Check("memory-limit", OK, "no limit of its own", source_ids=("U9", "U41"))
    else:
        used = group.get("memory_used_bytes")
        held = None if used is None else used - (group.get("memory_reclaimable_bytes") or 0)
        total = (_value(found, "memory")[0] or {}).get("total_bytes")
        reading = {"limit_bytes": limit, "held_bytes": held, "machine_bytes": total}
        if held is not None and held >= limit * MEMORY_SHARE:
            yield Check(
                "memory-limit",
                FINDING,
                f"{size(held)} of the limit of {size(limit)} are in use",
                reading,
                ("U9", "U41"),
                ("fewer data loader workers, or end what is not needed", "rent a box with more memory"),
            )
        elif limit < SMALL_MEMORY_BYTES:
            yield Check(
                "memory-limit",
                FINDING,
                f"the limit is {size(limit)}, though the machine has {size(total)}: torch and a data loader need more",
                reading,
                ("U9", "U41"),
                ("start the container with more memory (`--memory`), or rent another box", "num_workers=0 until then"),
            )
        else:
            yield Check("memory-limit", OK, f"limit {size(limit)}, {size(held)} in use", reading, ("U9", "U41"))
    kills = (group or {}).get("oom_kill")
    if kills is None:
        yield Check("oom-kills", UNKNOWN, str(unread), source_ids=("U9",))
    elif kills:
        yield Check(
            "oom-kills",
            FINDING,
            f"the kernel has killed {kills} process(es) of this box for memory since it started",
            {"oom_kill": kills},
            ("U9",),
            ("lower num_workers and prefetch, share one copy of the data", "look for `Killed` at the end of the log"),
        )
    else:
        yield Check("oom-kills", OK, "none", {"oom_kill": 0}, ("U9",))


def _load(found: Mapping[str, Any]) -> Iterator[Check]:
    load, why = _value(found, "load")
    ids = ("U40", "U41")
    if not load or load.get("running") is None or not load.get("cores"):
        yield Check("cpu-threads", UNKNOWN, str((load or {}).get("why_unknown") or why), source_ids=ids)
        return
    cores, running, cut = float(load["cores"]), float(load["running"]), load.get("throttled_share")
    reading = {
        key: load.get(key) for key in ("cores", "host_cores", "quota_cores", "running", "throttled_share", "top")
    }
    crowded = running > max(cores * THREADS_PER_CORE, cores + 4)
    # cut short alone may be a burst; with more threads than cores the quota is what they wait for
    held = cut is not None and cut >= THROTTLED_SHARE and running > cores
    if crowded or held:
        said = f"{running:g} threads want to run on {cores:g} usable cores"
        if cut:
            said += f", and the quota cut {cut:.0%} of the last second's periods short"
        n = max(1, int(cores))
        yield Check(
            "cpu-threads",
            FINDING,
            said,
            reading,
            ids,
            (
                f"export OMP_NUM_THREADS={n} MKL_NUM_THREADS={n} (divided by the number of processes)",
                f"num_workers at most {max(1, n - 1)}",
            ),
        )
    else:
        yield Check("cpu-threads", OK, f"{running:g} threads run on {cores:g} usable cores", reading, ids)


def _shm(found: Mapping[str, Any]) -> Iterator[Check]:
    shm, why = _value(found, "shm")
    ids = ("DP15", "EC1")
    total, free = (shm or {}).get("total_bytes"), (shm or {}).get("free_bytes")
    if total is None or free is None:
        if (_value(found, "machine")[0] or {}).get("system") == "Darwin":
            yield Check("shm", OK, "this system has none")
        else:
            yield Check("shm", UNKNOWN, str((shm or {}).get("why_unknown") or why), source_ids=ids)
        return
    reading = {"total_bytes": total, "free_bytes": free}
    fix = (
        "start the container with --shm-size=16g or --ipc=host",
        'where it cannot be changed: torch.multiprocessing.set_sharing_strategy("file_system"), or fewer workers',
    )
    if total < SMALL_SHM_BYTES:
        why = f"/dev/shm has {size(total)}: data loaders with workers may die of a bus error"
        yield Check("shm", FINDING, why, reading, ids, fix)
    elif free < total * (1 - TIGHT_SHARE):
        yield Check(
            "shm",
            FINDING,
            f"/dev/shm has {size(free)} of {size(total)} left",
            reading,
            ids,
            ("see what lies there: ls -la /dev/shm", *fix),
        )
    else:
        yield Check("shm", OK, f"{size(free)} free", reading, ids)


def _gpus(found: Mapping[str, Any], expected: Expected) -> Iterator[Check]:
    gpu, why = _value(found, "gpu")
    if gpu is None:
        yield Check("gpu", UNKNOWN, why, source_ids=("GH1",))
        return
    state, devices = gpu.get("state"), gpu.get("devices") or []
    reading = {"state": state, "driver": gpu.get("driver"), "count": len(devices), "expected": expected.gpus}
    again = ("restart the container with --gpus all", "if it stays so, take another box: outlive up")
    if state == "none":
        if expected.gpus:
            said = f"no GPU answers, and at `up` there were {expected.gpus}: {gpu.get('why')}"
            yield Check("gpu", FINDING, said, reading, ("U31", "GH1"), again)
        else:
            yield Check("gpu", OK, f"none here ({gpu.get('why')})", reading, ("GH1",))
        return
    if state == "unknown":
        yield Check("gpu", UNKNOWN, str(gpu.get("why")), reading, ("GH1",))
        return
    if state == "sick":
        ids = ("U28", "GH1") if "mismatch" in str(gpu.get("why")).lower() else ("U22", "GH1")
        fix = ("save what is there: outlive pull", "restart the container, or take another box")
        yield Check("gpu", FINDING, str(gpu.get("why")), reading, ids, fix)
    elif expected.gpus and len(devices) < expected.gpus:
        said = f"{len(devices)} of {expected.gpus} GPUs answer"
        yield Check("gpu", FINDING, said, reading, ("U22", "GH1"), ("outlive pull", "take another box"))
    else:
        yield Check("gpu", OK, f"{len(devices)} answer", reading, ("GH1",))
    for device in devices:
        yield from _device(device)
    yield from _vram(found, devices)
    yield from _xids(found)


def _device(device: Mapping[str, Any]) -> Iterator[Check]:
    index = device.get("index")
    errors = device.get("ecc_uncorrected")
    if errors:
        yield Check(
            f"gpu-memory-errors {index}",
            FINDING,
            f"{errors} uncorrected memory errors since the driver was loaded",
            {"ecc_uncorrected": errors},
            ("U22",),
            ("outlive pull", "take another box: results here cannot be trusted"),
        )
    elif errors == 0:
        yield Check(f"gpu-memory-errors {index}", OK, "none", {"ecc_uncorrected": 0}, ("U22",))
    else:
        yield Check(f"gpu-memory-errors {index}", UNKNOWN, "this GPU does not count them", source_ids=("U22",))
    reasons, busy = device.get("throttle"), device.get("utilisation")
    clock, most = device.get("sm_clock_mhz"), device.get("sm_clock_max_mhz")
    reading = {
        key: device.get(key)
        for key in (
            "throttle",
            "utilisation",
            "temperature_c",
            "sm_clock_mhz",
            "sm_clock_max_mhz",
            "power_w",
            "power_limit_w",
        )
    }
    name = f"gpu-clocks {index}"
    if reasons is None or busy is None:
        yield Check(name, UNKNOWN, "the driver does not tell", reading, ("U23",))
    elif busy < BUSY:
        yield Check(name, UNKNOWN, f"it is {busy:.0%} busy: clocks tell something under load only", reading, ("U23",))
    elif HOT_REASONS & set(reasons):
        said = f"slowed down by {', '.join(sorted(HOT_REASONS & set(reasons)))} at {device.get('temperature_c')} C"
        yield Check(
            name,
            FINDING,
            said,
            reading,
            ("U23",),
            ("tell the provider or take another box", "do not look for the cause in the model or the data"),
        )
    elif busy >= 0.9 and _idle_power(device) and clock and most:
        said = f"{busy:.0%} busy at {device.get('power_w'):g} of {device.get('power_limit_w'):g} W: it mostly waits"
        yield Check(name, FINDING, said, reading, ("U21", "U38"), ("look at the data loader, and at small kernels",))
    else:
        yield Check(name, OK, "no thermal or power reason", reading, ("U23",))


def _idle_power(device: Mapping[str, Any]) -> bool:
    power, limit = device.get("power_w"), device.get("power_limit_w")
    return power is not None and bool(limit) and float(power) < 0.3 * float(limit or 1)


def _vram(found: Mapping[str, Any], devices: list[Mapping[str, Any]]) -> Iterator[Check]:
    held, why = _value(found, "gpu_holders")
    known = {uuid for one in (held or {}).get("holders") or [] for uuid in one.get("gpu_uuids") or []}
    files = [one for one in (held or {}).get("holders") or [] if one.get("devices") and not one.get("gpu_uuids")]
    for device in devices:
        used, index = device.get("memory_used_bytes"), device.get("index")
        name = f"gpu-held {index}"
        reading = {"used_bytes": used, "holders": (held or {}).get("holders")}
        if used is None or held is None or held.get("why_unknown"):
            yield Check(name, UNKNOWN, str((held or {}).get("why_unknown") or why), reading, ("U11",))
        elif used < LOST_VRAM_BYTES:
            yield Check(name, OK, f"{size(used)} in use", reading, ("U11",))
        elif device.get("uuid") in known or (device.get("mig") == "Enabled" and known):
            yield Check(name, OK, f"{size(used)} in use by processes that the driver names", reading, ("U11",))
        elif files and (device.get("utilisation") or 0) > IDLE:
            # in a container the driver's list is often empty: what has the device open and computes is the work itself
            yield Check(name, OK, f"{size(used)} in use by processes that have it open", reading, ("U11",))
        elif files:
            pids = ", ".join(str(one["pid"]) for one in files[:5])
            yield Check(
                name,
                FINDING,
                f"{size(used)} are held while it idles; these have it open: {pids}",
                reading,
                ("U11",),
                (
                    f"see whose they are: ps -o pid,user,etime,args -p {pids.replace(', ', ',')}",
                    "end the ones that are yours and belong to no live run; nothing is ended by this command",
                ),
            )
        elif held.get("unreadable"):
            said = f"{size(used)} are held; {held['unreadable']} processes of other users could not be looked into"
            yield Check(name, UNKNOWN, said, reading, ("U11",))
        else:
            yield Check(
                name,
                FINDING,
                f"{size(used)} are held by no process here: by another container, or a dead one",
                reading,
                ("U11",),
                ("restart the container, or take another box",),
            )


def _xids(found: Mapping[str, Any]) -> Iterator[Check]:
    log, why = _value(found, "kernel_log")
    events = (log or {}).get("xids")
    if events is None:
        yield Check("gpu-faults", UNKNOWN, str((log or {}).get("why_unknown") or why), source_ids=("U22",))
        return
    if not events:
        yield Check("gpu-faults", OK, "no Xid in the kernel log", {"xids": []}, ("U22",))
        return
    numbers = sorted({event["xid"] for event in events})
    fatal = sorted(FATAL_XIDS & set(numbers))
    said = f"Xid {', '.join(map(str, numbers))} in the kernel log" + (
        f"; {', '.join(map(str, fatal))}: hardware" if fatal else "; these are often the program's own faults"
    )
    fix = (
        ("outlive pull", "take another box")
        if fatal
        else ("run again; if it comes with another program too, take another box",)
    )
    yield Check("gpu-faults", FINDING, said, {"xids": events[-5:]}, ("U22",), fix)


def _software(found: Mapping[str, Any]) -> Iterator[Check]:
    gpu, _ = _value(found, "gpu")
    if not gpu or gpu.get("state") not in ("ok", "sick"):
        return
    torch, why = _value(found, "torch")
    if not torch or torch.get("installed") is None:
        yield Check("torch", UNKNOWN, str((torch or {}).get("why_unknown") or why), source_ids=("U28",))
        return
    keys = ("python", "version", "cuda_build", "cuda_available", "arch_list", "devices")
    reading = {**{key: torch.get(key) for key in keys}, "driver": gpu.get("driver"), "driver_cuda": gpu.get("cuda")}
    if not torch["installed"]:
        yield Check("torch", OK, f"not installed for {torch.get('python')}", reading)
        return
    fix = (
        "install a build of torch for a CUDA that the driver serves, or take a box with a newer driver",
        "keep torch, torchvision and torchaudio out of requirements where the image has them",
    )
    built, served = _version(torch.get("cuda_build")), _version(gpu.get("cuda"))
    if torch.get("cuda_available") is False:
        said = f"torch {torch.get('version')} cannot use the GPU: {torch.get('why_no_cuda')}"
        if built and served and built[0] > served[0]:
            said += f" (built for CUDA {torch['cuda_build']}, the driver serves {gpu.get('cuda')})"
        yield Check("torch", FINDING, said, reading, ("U28", "U31"), fix)
        return
    if torch.get("cuda_available") is None:
        yield Check("torch", UNKNOWN, str(torch.get("why_unknown")), reading, ("U28",))
        return
    for device in torch.get("devices") or []:
        if not covered(str(device.get("capability")), [str(arch) for arch in torch.get("arch_list") or []]):
            said = f"torch {torch.get('version')} has no kernels for {device.get('name')} ({device.get('capability')})"
            yield Check("torch", FINDING, said, reading, ("U28",), fix)
            return
    yield Check("torch", OK, f"torch {torch.get('version')} uses the GPU", reading, ("U28",))


def _version(word: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", str(word or ""))[:2])


def covered(capability: str, arch_list: list[str]) -> bool:
    """Return whether kernels of a build run on a device: same major at most its minor, or a PTX that is older."""
    wanted = _version(capability)
    if len(wanted) < 2 or not arch_list:
        return True
    for arch in arch_list:
        found = re.match(r"(sm|compute)_(\d+)(\d)", arch)
        if not found:
            return True
        has = (int(found[2]), int(found[3]))
        if (found[1] == "sm" and has[0] == wanted[0] and has[1] <= wanted[1]) or (
            found[1] == "compute" and has <= (wanted[0], wanted[1])
        ):
            return True
    return False


def _network(found: Mapping[str, Any]) -> Iterator[Check]:
    network, why = _value(found, "network")
    if network is None:
        yield Check("network", UNKNOWN, why)
        return
    for peer in network.get("peers") or []:
        yield from _peer(peer, network)
    yield from _proxies(network.get("proxies") or {})


def _peer(peer: Mapping[str, Any], network: Mapping[str, Any]) -> Iterator[Check]:
    where, tcp = peer.get("peer"), peer.get("tcp")
    reading = dict(peer)
    if tcp == "open":
        yield Check(f"port {where}", OK, f"answers (from {peer.get('local')})", reading, ("MN2",))
    elif tcp == "closed":
        yield Check(
            f"port {where}",
            FINDING,
            "nothing listens there: the connection was refused",
            reading,
            ("MN2",),
            ("start the other side first, and check its address and port",),
        )
    elif tcp == "silent":
        yield Check(
            f"port {where}",
            FINDING,
            f"no way there: {peer.get('why')}",
            reading,
            ("MN2",),
            ("open the port in the provider's firewall", "use the private address of the other box"),
        )
    else:
        yield Check(f"port {where}", UNKNOWN, str(peer.get("why")), reading, ("MN2",))
    frames = peer.get("frames")
    if frames == "lost":
        yield Check(
            f"frames {where}",
            FINDING,
            f"small frames arrive and full ones of {peer.get('mtu')} bytes do not",
            reading,
            ("MN4",),
            ("set the same MTU on both ends and on what lies between: ip link set dev DEV mtu 1500",),
        )
    elif frames == "ok":
        yield Check(f"frames {where}", OK, f"full frames of {peer.get('mtu')} bytes arrive", reading, ("MN4",))
    else:
        yield Check(f"frames {where}", UNKNOWN, "echo requests are not answered, or may not be sent", reading, ("MN4",))


def _proxies(proxies: Mapping[str, Any]) -> Iterator[Check]:
    known = proxies.get("set") or []
    if not known:
        yield Check("proxy", OK, "none is set")
        return
    spared = proxies.get("no_proxy") or {}
    reading = {"proxies": known, "no_proxy": spared}
    for one in known:
        if one.get("state") in ("closed", "silent"):
            names = ", ".join(one.get("names") or [])
            said = f"{one.get('proxy')} ({names}) does not answer: {one.get('why')}"
            yield Check("proxy", FINDING, said, reading, (), (f"unset {' '.join(one.get('names') or [])}",))
            return
    values = [value for value in spared.values() if value]
    lacks = [name for name in LOCAL_NAMES if not any(_spares(value, name) for value in values)]
    if lacks:
        said = f"{known[0].get('proxy')} is used also for {' and '.join(lacks)}: rendezvous and panels on this box fail"
        yield Check("no-proxy", FINDING, said, reading, (), ("export no_proxy=localhost,127.0.0.1 NO_PROXY=$no_proxy",))
    elif len(values) == 1:
        have = next(name for name, value in spared.items() if value)
        other = "NO_PROXY" if have == "no_proxy" else "no_proxy"
        said = f"only {have} is set; some libraries read {other}"
        yield Check("no-proxy", FINDING, said, reading, (), (f"export {other}=${have}",))
    else:
        yield Check("proxy", OK, f"{known[0].get('proxy')} answers, local names are spared", reading)


def _spares(value: str, name: str) -> bool:
    words = [word.strip() for word in value.split(",")]
    return "*" in words or name in words or (name == "127.0.0.1" and any(word.startswith("127.") for word in words))


def _clock(expected: Expected) -> Iterator[Check]:
    skew = expected.skew_s
    if skew is None:
        return
    reading = {"skew_s": round(skew, 2), "round_trip_s": round(expected.round_trip_s, 2)}
    if abs(skew) > SKEW_S + expected.round_trip_s:
        word = "ahead of" if skew > 0 else "behind"
        said = f"its clock is {abs(skew):.0f} s {word} this machine's: tokens, certificates and file times will be off"
        yield Check("clock", FINDING, said, reading, (), ("timedatectl set-ntp true, or tell the provider",))
    else:
        yield Check("clock", OK, "agrees with this machine's", reading)


def _bystanders(found: Mapping[str, Any]) -> Iterator[Check]:
    told, why = _value(found, "bystanders")
    watchers, panels = (told or {}).get("watchers"), (told or {}).get("panels")
    if watchers is None or panels is None:
        yield Check("watchers", UNKNOWN, str((told or {}).get("why_unknown") or why), source_ids=("U16",))
        return
    many = sum(len(one.get("pids") or []) for one in watchers)
    if many >= 3:
        said = f"{many} watchers older than an hour, like `{watchers[0]['command']}`"
        pids = " ".join(str(pid) for one in watchers for pid in one["pids"][:5])
        yield Check(
            "watchers", FINDING, said, {"watchers": watchers}, ("U16",), (f"end those of ended runs: kill {pids}",)
        )
    else:
        yield Check("watchers", OK, f"{many} old ones", {"watchers": watchers}, ("U16",))
    for panel in panels:
        if panel.get("events") == 0:
            said = f"TensorBoard on port {panel.get('port')} reads {panel.get('logdir')}, where no event file lies"
            yield Check(
                "tensorboard", FINDING, said, panel, ("U39",), ("start it with the --logdir that the run writes",)
            )
        elif panel.get("events") is None:
            yield Check("tensorboard", UNKNOWN, "its directory could not be read", panel, ("U39",))
        else:
            yield Check("tensorboard", OK, f"{panel.get('events')} event files", panel, ("U39",))
