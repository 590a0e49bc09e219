"""What the samples of a live run mean: starved, oversubscribed, throttled, waiting for others, stalled, quiet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from outlive.advice.checkup import (
    FINDING,
    HOT_REASONS,
    MEMORY_SHARE,
    OK,
    THROTTLED_SHARE,
    TIGHT_SHARE,
    UNKNOWN,
    Check,
    size,
)

WINDOW_S = 600.0
"""Samples of this last time count: what was before may be another phase."""
FEW = 3
"""Fewer GPU readings than this say nothing about the run."""
STARVED_BELOW, BUSY = 0.7, 0.9
QUIET_S = 300.0
STALL_S = 600.0
LOW_POWER = 0.45


def judge_run(status: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return every check of a run from its status and its newest samples, oldest first."""
    if status.get("ended") or status.get("work_alive") is False:
        return [Check("alive", UNKNOWN, f"the run is {status.get('state')}: nothing runs that could be judged")]
    recent = [one for one in samples if one.get("b") is not None]
    if recent:
        recent = [one for one in recent if float(one["b"]) >= float(recent[-1]["b"]) - WINDOW_S]
    checks = [
        Check("alive", OK if status.get("work_alive") else UNKNOWN, str(status.get("why") or status.get("state")))
    ]
    checks += _progress(status, recent)
    checks += _quota(recent)
    checks += _room(recent)
    checks += _gpu(recent)
    return checks


def _cpu_rate(recent: Sequence[Mapping[str, Any]]) -> float | None:
    """Return how many cores the work used on average, None when unknown."""
    known = [one for one in recent if one.get("cpu_s") is not None]
    if len(known) < 2 or known[-1]["b"] <= known[0]["b"]:
        return None
    rate = (float(known[-1]["cpu_s"]) - float(known[0]["cpu_s"])) / (float(known[-1]["b"]) - float(known[0]["b"]))
    return max(0.0, rate)


def _devices(recent: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the distinct GPU readings: a reading is repeated in every sample until the next."""
    found: list[list[Mapping[str, Any]]] = []
    last: Any = None
    for one in recent:
        gpu = one.get("gpu") or {}
        if gpu.get("state") == "ok" and gpu != last:
            found.append(gpu.get("devices") or [])
        last = gpu
    return found


def _busy(recent: Sequence[Mapping[str, Any]]) -> float | None:
    shares = [
        float(device["utilisation"])
        for devices in _devices(recent)
        for device in devices
        if device.get("utilisation") is not None
    ]
    return fmean(shares) if shares else None


def _progress(status: Mapping[str, Any], recent: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    alarm = next((one for one in status.get("alarms") or [] if one.get("alarm") in ("stall", "hung")), None)
    log_s, metric_s = status.get("log_age_s"), status.get("metrics_age_s")
    cpu, busy = _cpu_rate(recent), _busy(recent)
    reading = {
        "log_age_s": log_s,
        "metrics_age_s": metric_s,
        "cpu_cores": cpu,
        "gpu_busy": busy,
        "step": status.get("step"),
    }
    moves = (cpu is not None and cpu > 0.2) or (busy is not None and busy > 0.2)
    if alarm or status.get("state") in ("stalled", "hung"):
        said = str((alarm or {}).get("sentence") or status.get("why"))
        yield Check(
            "progress",
            FINDING,
            f"stalled: {said}",
            reading,
            ("MO6",),
            (
                "py-spy dump --pid PID on every rank: is it a collective or the data loader?",
                "ask for a save first: outlive checkpoint",
            ),
        )
    elif log_s is None:
        yield Check("progress", UNKNOWN, "it has not printed anything yet", reading, ("MO6",))
    elif log_s < QUIET_S:
        yield Check("progress", OK, f"printed {log_s:.0f} s ago", reading, ("MO6",))
    elif moves:
        said = f"its log is {log_s / 60:.0f} min old, but it works"
        yield Check(
            "progress",
            FINDING,
            f"quiet log, healthy run: {said}",
            reading,
            ("U43",),
            ("nothing to do now; next time PYTHONUNBUFFERED=1, or print(..., flush=True)",),
        )
    elif cpu is not None and log_s > STALL_S and cpu < 0.05:
        said = f"nothing printed for {log_s / 60:.0f} min and {cpu:.2f} cores used"
        yield Check(
            "progress", FINDING, f"stalled: {said}", reading, ("MO6",), ("py-spy dump --pid PID on every rank",)
        )
    else:
        yield Check("progress", UNKNOWN, f"its log is {log_s:.0f} s old, and too little is known of its load", reading)


def _quota(recent: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    known = [
        one for one in recent if one.get("cpu_periods") is not None and one.get("cpu_throttled_periods") is not None
    ]
    passed = int(known[-1]["cpu_periods"]) - int(known[0]["cpu_periods"]) if len(known) > 1 else 0
    if passed <= 0:
        none = bool(known) and not known[-1]["cpu_periods"]
        yield Check(
            "cpu-quota", OK if none else UNKNOWN, "no quota" if none else "no samples of it", source_ids=("U40",)
        )
        return
    cut = int(known[-1]["cpu_throttled_periods"]) - int(known[0]["cpu_throttled_periods"])
    share = max(0.0, cut / passed)
    reading = {"throttled_share": round(share, 3), "periods": passed}
    if share >= THROTTLED_SHARE:
        yield Check(
            "cpu-quota",
            FINDING,
            f"oversubscribed: the quota held it back in {share:.0%} of the time",
            reading,
            ("U40",),
            ("set OMP_NUM_THREADS to the cores of the quota divided by the processes", "fewer workers"),
        )
    else:
        yield Check("cpu-quota", OK, f"held back in {share:.0%} of the time", reading, ("U40",))


def _room(recent: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    last = recent[-1] if recent else {}
    used, limit = last.get("memory_used_bytes"), last.get("memory_limit_bytes")
    reading = {"used_bytes": used, "limit_bytes": limit}
    if used is not None and limit:
        tight = float(used) >= MEMORY_SHARE * float(limit)
        said = f"{size(used)} of {size(limit)} in use"
        yield Check(
            "memory",
            FINDING if tight else OK,
            said,
            reading,
            ("U9",),
            ("fewer workers or less prefetch, before the kernel ends it",) if tight else (),
        )
    elif used is None:
        yield Check("memory", UNKNOWN, "no samples of it", reading, ("U9",))
    for what, ids in (("bytes", ("U6",)), ("inodes", ("U7",))):
        free, total = last.get(f"disk_free_{what}"), last.get(f"disk_total_{what}")
        if free is not None and total:
            share = 1 - float(free) / float(total)
            tight = share >= TIGHT_SHARE
            yield Check(
                f"disk-{what}",
                FINDING if tight else OK,
                f"{share:.0%} used on {last.get('disk_path')}",
                {"free": free, "total": total},
                ids,
                ("outlive doctor BOX says what takes it",) if tight else (),
            )


def _gpu(recent: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    readings = _devices(recent)
    last = (recent[-1].get("gpu") or {}) if recent else {}
    if last.get("state") == "none":
        yield Check("gpu", OK, "this box has none")
        return
    if len(readings) < FEW:
        why = last.get("why") or f"{len(readings)} GPU readings in the last {WINDOW_S / 60:.0f} min, {FEW} are needed"
        yield Check("gpu", UNKNOWN, str(why), source_ids=("U24", "U23"))
        return
    busy = _busy(recent)
    flat = [device for devices in readings for device in devices]
    hot = sorted(
        {
            reason
            for device in flat
            for reason in device.get("throttle") or ()
            if reason in HOT_REASONS and (device.get("utilisation") or 0) > 0.5
        }
    )
    power = [
        float(d["power_w"]) / float(d["power_limit_w"]) for d in flat if d.get("power_w") and d.get("power_limit_w")
    ]
    reading = {"busy": busy, "power_share": fmean(power) if power else None, "throttle": hot, "gpus": len(readings[-1])}
    if hot:
        yield Check(
            "gpu-clocks",
            FINDING,
            f"throttled: {', '.join(hot)}",
            reading,
            ("U23",),
            ("tell the provider or take another box",),
        )
    else:
        yield Check("gpu-clocks", OK, "no thermal or power reason", reading, ("U23",))
    if busy is None:
        yield Check("gpu-load", UNKNOWN, "the driver does not tell", reading, ("U24",))
    elif busy < STARVED_BELOW:
        cpu = _cpu_rate(recent)
        said = f"starved: the GPU is {busy:.0%} busy" + (f", the work uses {cpu:.1f} cores" if cpu is not None else "")
        yield Check(
            "gpu-load",
            FINDING,
            said,
            reading,
            ("U24",),
            ("more data loader workers, persistent and pinned", "move heavy transforms to the GPU"),
        )
    elif busy >= BUSY and power and fmean(power) < LOW_POWER and len(readings[-1]) > 1:
        said = f"likely waiting for the other GPUs: {busy:.0%} busy at {fmean(power):.0%} of their power"
        yield Check(
            "gpu-load",
            FINDING,
            said,
            reading,
            ("TI1", "T23"),
            (
                "more work per step (larger batch, accumulation under no_sync)",
                "look at the interconnect: nvidia-smi topo -m",
            ),
        )
    else:
        yield Check("gpu-load", OK, f"{busy:.0%} busy", reading, ("U24",))
