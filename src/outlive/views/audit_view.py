"""What ``up`` found: the machine as a report that a person reads in half a minute."""

from __future__ import annotations

import datetime
from typing import Any

from outlive.runs.up import UpResult
from outlive.views import amounts
from outlive.views.amounts import UNKNOWN
from outlive.views.platform import first_contact
from outlive.views.printable import one_line

WORDS = {
    "new": "{box}: reached, {platform} ({why})",
    "known": "{box}: reached again, {platform}",
    "changed": "changed since the last look",
    "unchanged": "nothing changed since the last look",
    "cores": "{n} cores",
    "core": "1 core",
    "memory limit": "{limit} memory limit (the machine has {total})",
    "memory": "{total} memory, no limit of its own",
    "no torch": "not in {python}",
    "torch cuda": "{version}, CUDA usable, built with {built}",
    "torch no cuda": "{version}, no CUDA: {why}",
    "torch unknown": "unknown: {why}",
    "ahead": "its clock is {s} ahead of this machine's; ages are told by its own clock",
    "behind": "its clock is {s} behind this machine's; ages are told by its own clock",
    "no inodes": "no inode limit",
    "network disk": "network file system",
    "not there": "not there",
    "read only": "read-only",
    "marker": "commits by marker (no safe rename)",
    "same disk": "same disk as {path}",
    "missing tools": "missing",
    "runs here": "runs",
    "adopt": "take them over with: outlive adopt {box}",
    "next": "next",
}

LABELS = {
    "machine": "machine",
    "gpu": "GPU",
    "python": "python",
    "torch": "torch",
    "cpu": "CPU",
    "memory": "memory",
    "shm": "/dev/shm",
    "tools": "tools",
    "clock": "clock",
    "durable": "durable",
    "price": "price",
    "unknown": "unknown",
    "change": "changed",
}

SKEW_TOLD_S = 5.0
TOOLS = ("rsync", "tmux", "zstd", "rclone", "git", "curl", "nvidia-smi", "docker")
PARTS = (
    "machine",
    "cgroup",
    "cpu",
    "memory",
    "shm",
    "gpu",
    "gpu_holders",
    "tools",
    "environment",
    "interpreters",
    "torch",
)
SHM_SMALL_BYTES = 1 << 30


def up_data(found: UpResult, today: datetime.date) -> dict[str, Any]:
    """Return ``up --json``. Of the box's environment only the names are told."""
    box = found.place.box
    audit = {name: dict(part) for name, part in found.audit.items()}
    environment = audit.get("environment", {})
    if environment.get("value"):
        kept = environment["value"].get("kept") or {}
        environment["value"] = {**environment["value"], "kept": sorted(kept)}
    return {
        "schema": "outlive/up/1",
        "box": {
            "name": box.name,
            "box_id": box.box_id,
            "platform": box.platform,
            "address": box.address,
            "root": box.root,
            "price": box.price,
            "facts": box.facts,
        },
        "new": found.new,
        "platform_why": found.platform_why,
        "changes": found.changes,
        "runs": found.runs,
        "skew_s": found.skew_s,
        "interpreters": [{"path": p, "version": v} for p, v in found.pythons],
        "capabilities": sorted(found.place.capabilities),
        "audit": audit,
        "unknown": [{"part": part, "why": why} for part, why in unknown(found.audit)],
        "first_contact": first_contact(found.place.platform, today) if found.new else [],
        "next": [["outlive", "adopt", box.name]]
        if found.runs and found.new
        else [["outlive", "run", "--on", box.name, "--", "CMD"]],
    }


def up_rows(found: UpResult) -> list[tuple[str, str]]:
    """Return label and text of each line of the report; a label "" is a line of its own."""
    box, audit = found.place.box, found.audit
    name = found.place.platform.names.en
    word = WORDS["new"] if found.new else WORDS["known"]
    rows = [("", word.format(box=box.name, platform=name, why=found.platform_why))]
    if not found.new:
        rows += [(LABELS["change"], one_line(change)) for change in found.changes] or [("", WORDS["unchanged"])]
    machine = _value(audit, "machine")
    if machine:
        said = f"{machine.get('hostname')}, {machine.get('system')} {machine.get('kernel')}, {machine.get('arch')}"
        rows.append((LABELS["machine"], one_line(f"{said}, user {box.facts.get('user') or machine.get('uid')}")))
    rows += _gpu_rows(audit)
    rows.append((LABELS["python"], _python(found)))
    rows.append((LABELS["torch"], _torch(audit)))
    rows += _compute(audit)
    rows += _tiers(found)
    rows.append((LABELS["tools"], _tools(audit)))
    if found.skew_s is not None and abs(found.skew_s) >= SKEW_TOLD_S:
        rows.append(
            (
                LABELS["clock"],
                WORDS["ahead" if found.skew_s > 0 else "behind"].format(s=amounts.span(abs(found.skew_s))),
            )
        )
    if box.price:
        rows.append(
            (
                LABELS["price"],
                f"{box.price.get('per_h'):g} {box.price.get('currency')} an hour ({box.price.get('source')})",
            )
        )
    rows += [(LABELS["unknown"], f"{part}: {one_line(why)}") for part, why in unknown(audit)]
    if found.runs:
        rows.append(
            (
                WORDS["runs here"],
                ", ".join(found.runs[-6:]) + (f" and {len(found.runs) - 6} more" if len(found.runs) > 6 else ""),
            )
        )
        if found.new:
            rows.append(("", WORDS["adopt"].format(box=box.name)))
    return rows


def contact_lines(found: UpResult, today: datetime.date) -> list[str]:
    """Return what a person must know of the platform, at first contact only."""
    return first_contact(found.place.platform, today) if found.new else []


def unknown(audit: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (part, why) of everything that could not be read."""
    found = []
    for part, answer in audit.items():
        if answer.get("value") is None:
            found.append((part.replace("disk:", "disk "), str(answer.get("why_unknown") or "no reason was given")))
    return found


def _value(audit: dict[str, Any], part: str) -> Any:
    return (audit.get(part) or {}).get("value")


def _gpu_rows(audit: dict[str, Any]) -> list[tuple[str, str]]:
    gpu = _value(audit, "gpu")
    if not gpu:
        return []  # it is among the unknown
    if gpu.get("state") != "ok":
        return [(LABELS["gpu"], one_line(f"{gpu.get('state')}: {gpu.get('why')}"))]
    devices = gpu.get("devices") or []
    kinds: dict[tuple[str, Any], int] = {}
    for device in devices:
        key = (str(device.get("name") or amounts.UNKNOWN), device.get("memory_total_bytes"))
        kinds[key] = kinds.get(key, 0) + 1
    said = ", ".join(
        (f"{n} x " if n > 1 else "") + f"{name} {amounts.size(memory)}" for (name, memory), n in kinds.items()
    )
    rows = [
        (
            LABELS["gpu"],
            one_line(f"{said}; driver {gpu.get('driver') or UNKNOWN}, serves CUDA {gpu.get('cuda') or UNKNOWN}"),
        )
    ]
    for device in devices:
        if device.get("throttle"):
            rows.append(("!", f"GPU {device.get('index')} is slowed down: {', '.join(device['throttle'])}"))
        if device.get("ecc_uncorrected"):
            rows.append(("!", f"GPU {device.get('index')} has {device['ecc_uncorrected']} uncorrected memory errors"))
    held = (_value(audit, "gpu_holders") or {}).get("holders") or []
    if held:
        names = ", ".join(one_line(str(h.get("name") or h.get("command") or h.get("pid"))) for h in held[:4])
        rows.append(("!", f"{len(held)} process(es) hold a GPU already: {names}"))
    return rows


def _python(found: UpResult) -> str:
    chosen = str(found.place.box.facts.get("python") or "")
    version = next((v for path, v in found.pythons if path == chosen), "")
    others = [f"{path} {v}" for path, v in found.pythons if path != chosen]
    text = f"{chosen} {version}".rstrip()
    return one_line(text + (f"; also {', '.join(others[:3])}" if others else ""))


def _torch(audit: dict[str, Any]) -> str:
    torch = _value(audit, "torch")
    if not torch or torch.get("installed") is None:
        why = (torch or {}).get("why_unknown") or (audit.get("torch") or {}).get("why_unknown") or "not asked"
        return WORDS["torch unknown"].format(why=one_line(str(why)))
    if not torch["installed"]:
        return WORDS["no torch"].format(python=torch.get("python") or "the chosen interpreter")
    if torch.get("cuda_available"):
        return WORDS["torch cuda"].format(
            version=torch.get("version"), built=torch.get("cuda_build") or torch.get("hip_build") or amounts.UNKNOWN
        )
    return WORDS["torch no cuda"].format(
        version=torch.get("version"), why=one_line(str(torch.get("why_no_cuda") or amounts.UNKNOWN))
    )


def _compute(audit: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    cpu = _value(audit, "cpu")
    if cpu and cpu.get("value") is not None:
        number = f"{cpu['value']:g}"
        text = (WORDS["core"] if cpu["value"] == 1 else WORDS["cores"]).format(n=number)
        rows.append((LABELS["cpu"], f"{text} ({cpu['source']})" if cpu.get("source") else text))
    memory, group = _value(audit, "memory") or {}, _value(audit, "cgroup") or {}
    limit, total = group.get("memory_limit_bytes"), memory.get("total_bytes")
    if limit is not None:
        rows.append(
            (LABELS["memory"], WORDS["memory limit"].format(limit=amounts.size(limit), total=amounts.size(total)))
        )
    elif total is not None:
        sure = "memory_limit_bytes" in (group.get("unlimited") or [])
        text = (
            WORDS["memory"].format(total=amounts.size(total))
            if sure
            else f"{amounts.size(total)} memory; whether a limit is set is unknown"
        )
        rows.append((LABELS["memory"], text))
    shm = _value(audit, "shm")
    if shm and shm.get("total_bytes") is not None and shm["total_bytes"] < SHM_SMALL_BYTES:
        rows.append(
            ("!", f"/dev/shm has {amounts.size(shm['total_bytes'])}: data loaders with workers may die of a bus error")
        )
    return rows


def _tiers(found: UpResult) -> list[tuple[str, str]]:
    box = found.place.box
    named = {path: tier for tier, path in (box.facts.get("tiers") or {}).items()}
    rows: list[tuple[str, str]] = []
    for part, answer in found.audit.items():
        if not part.startswith("disk:"):
            continue
        path = part[5:]
        disk = answer.get("value")
        if disk is None:
            continue
        if not disk.get("exists", True):
            rows.append((named.get(path, "disk"), f"{path}: {WORDS['not there']}"))
            continue
        text = f"{path}: {amounts.size(disk.get('free_bytes'))} of {amounts.size(disk.get('total_bytes'))} free"
        if disk.get("total_inodes"):
            text += f", {amounts.count(disk.get('free_inodes'))} inodes free"
        notes = [str(disk.get("fs_type") or "")]
        notes += [WORDS["network disk"]] if disk.get("network") else []
        notes += [WORDS["read only"]] if disk.get("read_only") else []
        notes += [WORDS["marker"]] if disk.get("commit_mode") == "marker" else []
        roles = [
            role
            for role, at in (("root", box.root), ("data", box.facts.get("data")), ("durable", box.facts.get("durable")))
            if at == path
        ]
        text += f" ({', '.join(n for n in notes if n)})" + (f"  <- {', '.join(roles)}" if roles else "")
        rows.append((named.get(path, "disk"), one_line(text)))
    if not box.facts.get("durable") and found.place.platform.id != "local":
        rows.append(
            (
                LABELS["durable"],
                f"no safe place is known: results live on this box until `pull`; outlive up {box.name} --durable PATH",
            )
        )
    return rows


def _tools(audit: dict[str, Any]) -> str:
    tools = _value(audit, "tools")
    if tools is None:
        return amounts.UNKNOWN
    here = [name for name in TOOLS if (tools.get(name) or {}).get("path")]
    missing = [name for name in TOOLS if name in tools and not tools[name].get("path")]
    return " ".join(here) + (f"  ({WORDS['missing tools']}: {' '.join(missing)})" if missing else "")
