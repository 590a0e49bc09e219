"""Readings that only ``doctor`` asks for, each against a condition that is made here."""

import os
import socket
import subprocess
import sys
import time

from outlive.probes import bystanders as bystanders_module
from outlive.probes.bystanders import bystanders
from outlive.probes.checkup import checkup
from outlive.probes.hogs import hogs
from outlive.probes.load import load
from outlive.probes.network import connect, interfaces, peer, proxies


def test_everything_is_asked_and_nothing_is_written(tmp_path):
    found = checkup([str(tmp_path)], 30.0)
    assert {"cgroup", "shm", "gpu", "load", "hogs", "network", "kernel_log", "bystanders", "clock"} <= set(found)
    assert "disk:" + str(tmp_path) in found
    for part, answer in found.items():
        assert answer["value"] is not None or answer["why_unknown"], part
    assert os.listdir(str(tmp_path)) == []


def test_busy_processes_are_counted():
    spin = [sys.executable, "-c", "while True: pass"]
    work = [subprocess.Popen(spin) for _ in range(3)]
    try:
        end_s = time.monotonic() + 60
        while True:
            found = load(0.1)
            if found["running"] is None or found["running"] >= 3:
                break
            assert time.monotonic() < end_s, found
    finally:
        for one in work:
            one.kill()
            one.wait()
    assert found["cores"] and found["top"] is not None


def test_a_cache_behind_a_link_is_counted_where_it_lies(tmp_path, monkeypatch):
    real = tmp_path / "disk" / "hub"
    real.mkdir(parents=True)
    (real / "weights").write_bytes(b"\1" * 300000)
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)
    (home / ".cache" / "huggingface").symlink_to(real)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("HF_HOME", raising=False)
    entry = next(one for one in hogs([], 30.0)["caches"] if one["name"] == "model hub")
    assert entry["linked"] and entry["real"] == str(real)
    assert entry["bytes"] >= 300000 and entry["files"] == 1


def test_ports_open_closed_and_without_an_address():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        port = server.getsockname()[1]
        assert connect("127.0.0.1", port, 30.0)[0] == "open"
        assert peer("127.0.0.1:%d" % port, 30.0)["tcp"] == "open"
    assert connect("127.0.0.1", port, 30.0)[0] == "closed"
    assert peer("no such host.invalid:1", 5.0)["tcp"] == "unknown"
    assert peer("127.0.0.1:notaport", 5.0)["tcp"] == "unknown"


def test_interfaces_have_their_frame_size(tmp_path):
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "mtu").write_text("9000\n")
    assert interfaces(str(tmp_path)) == [{"name": "eth0", "mtu": 9000, "state": None}]
    assert interfaces(str(tmp_path / "none")) == []


def test_a_proxy_is_named_without_its_password():
    found = proxies({"https_proxy": "http://me:word@127.0.0.1:1", "HTTPS_PROXY": "127.0.0.1:1", "no_proxy": "a"}, 30.0)
    assert found["set"][0]["names"] == ["https_proxy", "HTTPS_PROXY"]
    assert found["no_proxy"] == {"no_proxy": "a", "NO_PROXY": None}
    assert "word" not in repr(found)


def test_old_watchers_and_an_empty_panel(tmp_path, monkeypatch):
    monkeypatch.setattr(bystanders_module, "OLD_S", -1.0)
    watcher = subprocess.Popen(["tail", "-f", "/dev/null"])
    name = str(tmp_path / "tensorboard")
    with open(name, "w") as script:
        script.write("import time\ntime.sleep(600)\n")
    panel = subprocess.Popen([sys.executable, name, "--logdir=%s" % tmp_path, "--port", "6007"])
    try:
        end_s = time.monotonic() + 60
        while True:
            found = bystanders()
            mine = [one for one in found["watchers"] or [] if watcher.pid in one["pids"]]
            panels = [one for one in found["panels"] or [] if one["pid"] == panel.pid]
            if (mine and panels) or found["why_unknown"]:
                break
            assert time.monotonic() < end_s, found
            time.sleep(0.1)
    finally:
        for one in (watcher, panel):
            one.kill()
            one.wait()
    if not found["why_unknown"]:
        assert (panels[0]["events"], panels[0]["port"]) == (0, "6007")
