"""What the readings of a machine and the samples of a run are judged to be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from servers import ran

from outlive.advice.checkup import Check, Expected, covered, judge
from outlive.advice.running import judge_run
from outlive.cli.main import main
from outlive.probes.gpu import gpus
from outlive.probes.gpu_holders import GpuHolder, GpuHolders
from outlive.probes.kernel_log import parse_xids
from outlive.probes.network import proxies
from outlive.runs.ask import stop
from outlive.runs.doctor import Diagnosis, doctor_here, doctor_run
from outlive.views import doctor_view

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "nvidia-smi"
GIB = 1 << 30


def read(**parts: Any) -> dict[str, Any]:
    return {name.replace("__", ":"): {"value": value, "why_unknown": ""} for name, value in parts.items()}


def verdicts(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}


def gpu_case(case: str, **more: Any) -> dict[str, str]:
    found = gpus(20, [sys.executable, str(RECORDED / "replay"), str(RECORDED / f"{case}.txt")])
    return verdicts(judge(read(gpu=found.to_wire(), **more), Expected()))


def test_what_cannot_be_read_is_unknown_and_never_ok() -> None:
    told = verdicts(judge({"disk:/data": {"value": None, "why_unknown": "no answer within 25 s"}}, Expected()))
    assert told.pop("disk-bytes /data") == "unknown"
    assert set(told.values()) == {"unknown"}
    forbidden = gpu_case("a100x8", kernel_log={"xids": None, "why_unknown": "Operation not permitted"})
    assert forbidden["gpu-faults"] == "unknown"
    assert forbidden["gpu-held 0"] == "unknown"


def test_gpus_from_recorded_answers() -> None:
    eight = gpu_case("a100x8")
    assert eight["gpu"] == "ok"
    assert {eight[f"gpu-memory-errors {n}"] for n in range(8)} == {"ok"}
    assert eight["gpu-clocks 2"] == "ok", "at its power cap under load, which is normal"
    assert eight["gpu-clocks 0"] == "unknown", "idle clocks say nothing"
    broken = gpu_case("one-device-err")
    assert broken["gpu"] == "finding"
    assert broken["gpu-memory-errors 1"] == "finding"
    assert gpu_case("driver-mismatch")["gpu"] == "finding"
    assert gpu_case("gpu-is-lost")["gpu"] == "finding"
    assert gpu_case("rtx4090")["gpu-memory-errors 0"] == "unknown"


def test_a_gpu_that_was_there_at_up_and_is_not_now() -> None:
    gone = read(gpu={"state": "none", "devices": [], "why": "no nvidia-smi"})
    assert verdicts(judge(gone, Expected(gpus=1)))["gpu"] == "finding"
    assert verdicts(judge(gone, Expected(gpus=0)))["gpu"] == "ok"


@pytest.mark.parametrize(
    ("holders", "busy", "verdict"),
    [
        (GpuHolders((GpuHolder(7, True, gpu_uuids=("GPU-1",)),)), 0.0, "ok"),
        (GpuHolders(), 0.0, "finding"),
        (GpuHolders(unreadable=3), 0.0, "unknown"),
        (GpuHolders(why_unknown="no nvidia-smi to ask"), 0.0, "unknown"),
        (GpuHolders((GpuHolder(7, True, devices=("/dev/nvidia0",)),)), 0.0, "finding"),
        (GpuHolders((GpuHolder(7, True, devices=("/dev/nvidia0",)),)), 0.9, "ok"),
    ],
)
def test_memory_of_a_gpu_that_nobody_holds(holders: GpuHolders, busy: float, verdict: str) -> None:
    device = {"index": 0, "uuid": "GPU-1", "memory_used_bytes": 9 * GIB, "utilisation": busy}
    found = read(gpu={"state": "ok", "devices": [device]}, gpu_holders=holders.to_wire())
    assert verdicts(judge(found, Expected()))["gpu-held 0"] == verdict


def test_faults_in_the_kernel_log() -> None:
    line = "[ 812.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    events = parse_xids(f"[1.0] usb 1-1: new device\n{line}\n")
    assert [(event["xid"], event["device"], event["boot_s"]) for event in events] == [(79, "0000:3b:00", 812.5)]
    ok = {"state": "ok", "devices": [{"index": 0}]}
    check = next(
        one for one in judge(read(gpu=ok, kernel_log={"xids": events}), Expected()) if one.name == "gpu-faults"
    )
    assert check.verdict == "finding"
    assert "hardware" in check.why


@pytest.mark.parametrize(
    ("capability", "arches", "runs"),
    [
        ("9.0", ["sm_80", "sm_90"], True),
        ("8.6", ["sm_80"], True),
        ("12.0", ["sm_80", "sm_90"], False),
        ("12.0", ["sm_80", "compute_90"], True),
        ("10.0", ["sm_100"], True),
        ("7.0", ["sm_75", "sm_80"], False),
    ],
)
def test_kernels_of_a_build_and_the_device(capability: str, arches: list[str], runs: bool) -> None:
    assert covered(capability, arches) is runs


def test_a_full_disk_is_told_with_what_can_go_first() -> None:
    caches = [
        {"name": "model hub", "path": "~/.cache/huggingface", "real": "/data/hf", "linked": True, "cost": "download",
         "mount": "/data", "bytes": 40 * GIB, "files": 90, "complete": True},
        {"name": "pip cache", "path": "/data/pip", "real": "/data/pip", "linked": False, "cost": "free",
         "mount": "/data", "bytes": 3 * GIB, "files": 900, "complete": True},
    ]  # fmt: skip
    disk = {"mount": "/data", "free_bytes": GIB, "total_bytes": 100 * GIB, "free_inodes": 9, "total_inodes": 10}
    found = read(disk__x=disk, hogs={"caches": caches, "largest": {}})
    check = next(one for one in judge(found, Expected()) if one.name == "disk-bytes x")
    assert check.verdict == "finding"
    assert check.fix[0].startswith("pip cache")
    assert "~/.cache/huggingface -> /data/hf" in check.fix[1]


def test_the_no_proxy_trap() -> None:
    dead = proxies({"http_proxy": "http://user:hidden@127.0.0.1:9"}, 5.0)
    assert [one["state"] for one in dead["set"]] == ["closed"]
    assert "hidden" not in json.dumps(dead)

    def told(**no_proxy: str) -> dict[str, str]:
        known = [{"proxy": "p:1", "names": ["http_proxy"], "state": "open", "why": ""}]
        return verdicts(judge(read(network={"peers": [], "proxies": {"set": known, "no_proxy": no_proxy}}), Expected()))

    assert told()["no-proxy"] == "finding"
    assert told(no_proxy="localhost,127.0.0.1")["no-proxy"] == "finding"
    assert told(no_proxy="localhost,127.0.0.0/8", NO_PROXY="localhost,127.0.0.1")["proxy"] == "ok"


def test_clocks_that_differ() -> None:
    assert verdicts(judge({}, Expected(skew_s=90.0)))["clock"] == "finding"
    assert verdicts(judge({}, Expected(skew_s=7.0, round_trip_s=6.0)))["clock"] == "ok"


ALIVE = {"state": "running", "why": "", "ended": False, "work_alive": True, "log_age_s": 2.0, "alarms": []}


def samples(
    busy: float, cores: float = 1.0, power_w: float = 300.0, cut: int = 0, gpus: int = 1
) -> list[dict[str, Any]]:
    found = []
    for number in range(12):
        device = {"utilisation": busy, "power_w": power_w + number * 0.1, "power_limit_w": 400.0, "throttle": []}
        found.append(
            {
                "b": 100.0 + 30 * number,
                "cpu_s": cores * 30 * number,
                "cpu_periods": 300 * number,
                "cpu_throttled_periods": cut * number,
                "gpu": {"state": "ok", "devices": [device] * gpus},
            }
        )
    return found


@pytest.mark.parametrize(
    ("status", "seen", "name", "word"),
    [
        ({}, samples(0.98), "gpu-load", ""),
        ({}, samples(0.3), "gpu-load", "starved"),
        ({}, samples(0.99, power_w=120.0, gpus=8), "gpu-load", "waiting for the other GPUs"),
        ({}, samples(0.99, power_w=120.0), "gpu-load", ""),
        ({}, samples(0.98, cut=200), "cpu-quota", "oversubscribed"),
        ({"log_age_s": 900.0}, samples(0.98), "progress", "quiet log, healthy run"),
        ({"log_age_s": 900.0}, samples(0.0, cores=0.0), "progress", "stalled"),
        ({"state": "stalled", "why": "no metric"}, samples(0.98), "progress", "stalled"),
        ({}, [], "gpu", "unknown"),
        ({}, [], "cpu-quota", "unknown"),
    ],
)
def test_a_run_that_goes_on(status: dict[str, Any], seen: list[dict[str, Any]], name: str, word: str) -> None:
    check = next(one for one in judge_run({**ALIVE, **status}, seen) if one.name == name)
    if word == "unknown":
        assert check.verdict == "unknown"
    else:
        assert (check.verdict == "finding") == bool(word)
        assert word in check.why


def test_a_run_that_has_ended_is_not_judged() -> None:
    assert verdicts(judge_run({"ended": True, "state": "failed"}, samples(0.1))) == {"alive": "unknown"}


def test_this_machine_as_text_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "state"))
    code = main(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "outlive/doctor/1"
    assert code == int(said["counts"]["finding"] > 0)
    assert {"verdict", "why", "reading", "source_ids", "fix", "name"} == set(said["checks"][0])
    assert main(["doctor", "--peer", "nowhere"]) == 2
    assert main(["doctor", "nobox", "--running", "x"]) == 2
    assert main(["doctor", "nobox"]) == 2


def test_a_look_that_has_no_time_says_so() -> None:
    seen = doctor_here([], budget_s=0.0)
    assert "ok" not in {check.verdict for check in seen.checks if check.name != "clock"}


def test_findings_come_first_and_unknown_is_told() -> None:
    checks = [
        Check("a", "ok", "fine"),
        Check("b", "unknown", "why"),
        Check("c", "finding", "bad", {}, ("U7",), ("do",)),
    ]
    rows = doctor_view.rows(Diagnosis("lab", checks, {}))
    assert [label.strip() for label, _ in rows] == ["", "!", "fix", "unknown", "ok"]
    assert rows[0][1] == "lab: 1 finding, 1 unknown"


SLOW = "import time\nfor step in range(100000):\n    print('step', step, flush=True)\n    time.sleep(0.05)\n"


def test_a_live_run_is_judged_from_its_samples(tmp_path: Path) -> None:
    place = ran.local(tmp_path)
    run = ran.start(place, SLOW)
    try:
        ran.until(place, run, lambda status: status["work_alive"] and status["log_bytes"], limit_s=120.0)
        seen = doctor_run(place.home, run)
        assert seen.box == run
        told = verdicts(seen.checks)
        assert (told["alive"], told["progress"]) == ("ok", "ok")
        assert "gpu" in told or "gpu-load" in told
    finally:
        stop(place.home, place.home.run_of(run), grace_s=1.0, wait_s=120.0)
        place.close()
    assert verdicts(doctor_run(place.home, run).checks) == {"alive": "unknown"}
