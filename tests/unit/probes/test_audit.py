"""The audit as a whole: complete on this machine, and in time on one where everything hangs."""

import json
import os
import sys
import time
from pathlib import Path

from outlive.probes import audit as audit_module
from outlive.probes.audit import audit

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "nvidia-smi"

PARTS = {
    "machine",
    "cgroup",
    "cpu",
    "memory",
    "limits",
    "shm",
    "gpu",
    "gpu_holders",
    "tools",
    "environment",
    "interpreters",
    "torch",
}


def replay(case):
    return [sys.executable, str(RECORDED / "replay"), str(RECORDED / (case + ".txt"))]


def test_this_machine_is_read_whole(tmp_path):
    here, absent = str(tmp_path), str(tmp_path / "absent")
    found = audit([here, absent], 40, [sys.executable], gpu_argv=replay("a100x8"))
    assert set(found) == PARTS | {"disk:" + here, "disk:" + absent}
    assert json.loads(json.dumps(found)) == found
    for name, part in found.items():
        assert part["value"] is not None, (name, part)
        assert set(part) == {"value", "why_unknown", "took_s"}
    assert found["machine"]["value"]["uid"] == os.getuid()
    assert found["gpu"]["value"]["state"] == "ok" and len(found["gpu"]["value"]["devices"]) == 8
    assert found["interpreters"]["value"][0]["path"] == sys.executable
    assert found["torch"]["value"]["installed"] in (True, False)
    assert found["disk:" + here]["value"]["commit_mode"] in ("rename", "marker")
    assert found["disk:" + absent]["value"]["exists"] is False
    assert found["memory"]["value"]["total_bytes"] > 0
    assert os.listdir(here) == []


def test_hanging_parts_are_unknown_and_the_others_are_there(tmp_path, monkeypatch):
    def forever(emit, *args, **named):
        time.sleep(60)

    def partly(emit, *args, **named):
        emit("environment", {"kept": {}, "why_unknown": ""})
        time.sleep(60)

    def broken(emit, *args, **named):
        raise KeyError("odd machine")

    monkeypatch.setattr(audit_module, "_storage", forever)
    monkeypatch.setattr(audit_module, "software", partly)
    monkeypatch.setattr(audit_module, "_tools", broken)
    begin_s = time.monotonic()
    found = audit([str(tmp_path)], 2.5, gpu_argv=replay("hang"))
    assert time.monotonic() - begin_s < 5
    assert found["machine"]["value"]
    assert found["environment"]["value"] == {"kept": {}, "why_unknown": ""}
    for name in ("interpreters", "torch", "disk:" + str(tmp_path)):
        assert found[name]["value"] is None and "no answer" in found[name]["why_unknown"]
    assert found["tools"]["value"] is None and "odd machine" in found["tools"]["why_unknown"]
    assert found["gpu"]["value"]["state"] == "unknown" and found["gpu"]["why_unknown"]


def test_no_child_and_no_handle_is_left(tmp_path, monkeypatch):
    from outlive.probes import process

    monkeypatch.setattr(audit_module, "software", lambda emit, *args: time.sleep(60))
    handles = len(os.listdir("/dev/fd"))
    before = set(process.tree(os.getpid()))
    audit([], 0.5, gpu_argv=["true"])
    assert len(os.listdir("/dev/fd")) == handles
    assert set(process.tree(os.getpid())) == before
