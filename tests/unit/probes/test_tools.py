"""Tools on a prepared PATH, and on this machine's."""

import stat
import time

from outlive.probes.tools import NAMES, tools


def program(directory, name, content):
    path = directory / name
    path.write_text("#!/bin/sh\n" + content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_versions_as_these_tools_print_them(tmp_path):
    program(tmp_path, "tmux", "echo 'tmux 3.3a'\n")
    program(tmp_path, "zstd", "echo '*** Zstandard CLI (64-bit) v1.5.4, by Yann Collet ***'\n")
    program(tmp_path, "rclone", "echo 'rclone v1.60.1-DEV'; echo '- os/version: debian 12.7 (64 bit)'\n")
    program(tmp_path, "docker", "echo 'Docker version 28.2.2, build e6534b4'\n")
    program(tmp_path, "rsync", "echo 'rsync  version 3.2.7  protocol version 31'\n")
    program(tmp_path, "flock", "echo 'BusyBox v1.36.1 (2023-11-07 18:53:09 UTC) multi-call binary.' >&2; exit 1\n")
    program(tmp_path, "git", "exit 1\n")
    found = tools({"PATH": str(tmp_path)})
    assert set(found) == set(NAMES)
    versions = {name: tool.version for name, tool in found.items() if tool.version}
    assert versions == {
        "tmux": "3.3a",
        "zstd": "1.5.4",
        "rclone": "1.60.1-DEV",
        "docker": "28.2.2",
        "rsync": "3.2.7",
        "flock": "1.36.1",
    }
    assert found["git"].path and found["git"].why_unknown
    assert found["curl"].path is None and found["curl"].why_unknown == "not on PATH"


def test_nvidia_smi_is_found_and_never_run(tmp_path):
    program(tmp_path, "nvidia-smi", "touch %s/ran\n" % tmp_path)
    tool = tools({"PATH": str(tmp_path)})["nvidia-smi"]
    assert tool.path and tool.version is None and tool.why_unknown
    assert not (tmp_path / "ran").exists()


def test_a_hanging_tool_costs_the_budget_and_no_more(tmp_path):
    for name in ("bash", "git", "docker"):
        program(tmp_path, name, "exec sleep 60\n")
    begin_s = time.monotonic()
    found = tools({"PATH": str(tmp_path) + ":/usr/bin:/bin"}, budget_s=0.5)
    assert time.monotonic() - begin_s < 4
    assert found["bash"].version is None and found["bash"].why_unknown
    assert found["docker"].why_unknown == "no time left to ask"


def test_this_machine_has_a_shell():
    sh = tools()["sh"]
    assert sh.path and sh.version
