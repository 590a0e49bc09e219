"""``doctor`` on real boxes whose trouble is real: each is found, and a quiet box has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client

from outlive import errors
from outlive.advice.checkup import Check, Expected, judge
from outlive.runs.doctor import Diagnosis, doctor_box

SRC = Path(__file__).resolve().parents[2] / "src"


def found(diagnosis: Diagnosis, name: str) -> Check:
    """The finding of that name; AssertionError with all checks when there is none."""
    for check in diagnosis.findings:
        if check.name.split(" ")[0] == name:
            return check
    raise AssertionError("\n".join(f"{one.name}: {one.verdict} {one.why}" for one in diagnosis.checks))


def size_shm(box: Any, size: str) -> None:
    """Shared memory as a container gets it (64m) or as it should be."""
    words = ["mount", "-o", f"remount,size={size}", "/dev/shm"]
    subprocess.run(["nsenter", "-t", str(box.pid1), "-m", *words], check=True, capture_output=True, timeout=60)


def test_a_quiet_box_has_no_finding_until_its_inodes_are_gone(box_factory: Any, client: Client) -> None:
    box = box_factory(memory_mb=8192, cpu_percent=400)
    size_shm(box, "2g")
    name = client.up(box).place.name
    quiet = doctor_box(client.home, name, [])
    assert [f"{one.name}: {one.why}" for one in quiet.findings] == []
    names = {check.name.split(" ")[0] for check in quiet.checks if check.verdict == "ok"}
    wanted = {
        "disk-bytes",
        "disk-inodes",
        "memory-limit",
        "oom-kills",
        "cpu-threads",
        "shm",
        "gpu",
        "watchers",
        "clock",
    }
    assert wanted <= names
    box.exhaust_inodes(leave=100)
    check = found(doctor_box(client.home, name, []), "disk-inodes")
    assert check.source_ids == ("U7",)
    assert any("/var/tmp" in step and "files" in step for step in check.fix), check.fix


def test_a_poor_box_is_told_in_one_look(box_factory: Any, client: Client) -> None:
    box = box_factory(memory_mb=512, cpu_percent=100)
    name = client.up(box).place.name
    # at the lowest priority, so that the look itself gets its turn; they are still as many as they are
    busy = "nice -n 19 sh -c 'while :; do :; done' </dev/null >/dev/null 2>&1 &"
    box.ssh(f"for i in 1 2 3 4 5 6 7 8 9 10; do {busy} done", check=True, timeout_s=60)
    peers = [f"{box.address}:{box.port}", f"{box.address}:1"]
    poor = doctor_box(client.home, name, peers, budget_s=60.0)
    assert found(poor, "memory-limit").reading["limit_bytes"] == 512 << 20
    assert found(poor, "shm").reading["total_bytes"] == 64 << 20
    threads = found(poor, "cpu-threads")
    assert threads.reading["quota_cores"] == 1.0
    assert threads.reading["running"] > 4
    ports = {check.name: check.verdict for check in poor.checks if check.name.startswith("port ")}
    assert ports == {f"port {peers[0]}": "ok", f"port {peers[1]}": "finding"}


def test_a_box_that_does_not_answer_is_no_finding(box_factory: Any, client: Client) -> None:
    box = box_factory()
    name = client.up(box).place.name
    box.kill()
    with pytest.raises(errors.PlaceError):
        doctor_box(client.home, name, [])


@pytest.fixture
def two_networks() -> Iterator[tuple[str, str]]:
    """Two network namespaces on one cable, one end with jumbo frames: (name of that end, address of the other)."""
    near, far = (f"outlive-mtu-{os.getpid()}-{end}" for end in "ab")
    third = os.getpid() % 250
    steps = [
        f"ip netns add {near}",
        f"ip netns add {far}",
        f"ip -n {near} link add eth0 type veth peer name eth0 netns {far}",
        f"ip -n {near} addr add 10.213.{third}.1/24 dev eth0",
        f"ip -n {far} addr add 10.213.{third}.2/24 dev eth0",
        f"ip -n {near} link set eth0 mtu 9000 up",
        f"ip -n {far} link set eth0 mtu 1500 up",
    ]
    try:
        for step in steps:
            subprocess.run(step.split(), check=True, capture_output=True, timeout=60)
        yield near, f"10.213.{third}.2"
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)


@pytest.mark.box
def test_frames_that_one_end_cannot_take_are_found(two_networks: tuple[str, str]) -> None:
    near, far = two_networks
    ask = "import json, sys; from outlive.probes.network import network; print(json.dumps(network(sys.argv[1:], 6.0)))"

    def frames() -> str:
        words = ["ip", "netns", "exec", near, sys.executable, "-c", ask, f"{far}:9"]
        environ = {"PYTHONPATH": str(SRC), "PATH": os.environ["PATH"]}
        done = subprocess.run(words, env=environ, check=True, capture_output=True, timeout=120)
        checks = judge({"network": {"value": json.loads(done.stdout)}}, Expected())
        return next(check.verdict for check in checks if check.name.startswith("frames "))

    assert frames() == "finding"
    subprocess.run(["ip", "-n", near, "link", "set", "eth0", "mtu", "1500"], check=True, timeout=60)
    assert frames() == "ok"
