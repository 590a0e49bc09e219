"""GPU readings from replayed answers of nvidia-smi (tests/recorded/nvidia-smi; reconstructions, no real GPU)."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from outlive.probes import gpu, process
from outlive.probes.gpu import GpuReading, gpus, holders, parse_query
from outlive.probes.gpu_holders import parse_apps

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "nvidia-smi"
MIB = 1 << 20


def replay(case):
    return [sys.executable, str(RECORDED / "replay"), str(RECORDED / (case + ".txt"))]


@pytest.fixture
def bare(tmp_path):
    """Device and bus directories of a machine without any NVIDIA device."""
    for name in ("dev", "pci"):
        (tmp_path / name).mkdir()
    return {"dev": str(tmp_path / "dev"), "pci": str(tmp_path / "pci")}


@pytest.fixture
def with_node(bare):
    Path(bare["dev"], "nvidia0").touch()
    Path(bare["dev"], "nvidiactl").touch()
    return bare


def test_eight_devices(with_node):
    found = gpus(10, replay("a100x8"), **with_node)
    assert (found.state, found.driver, found.cuda, found.why) == ("ok", "535.129.03", "12.2", "")
    assert [device.index for device in found.devices] == list(range(8))
    busy = found.devices[2]
    assert busy.name == "NVIDIA A100-SXM4-80GB" and busy.uuid.startswith("GPU-")
    assert busy.memory_total_bytes == 81920 * MIB and busy.memory_used_bytes == 78342 * MIB
    assert (busy.utilisation, busy.power_w, busy.power_limit_w, busy.temperature_c) == (0.98, 398.71, 400.0, 71.0)
    assert busy.throttle == ("sw_power_cap",) and busy.pstate == "P0"
    assert (busy.ecc_uncorrected, busy.ecc_corrected, busy.mig) == (0, 0, "Disabled")
    assert found.devices[5].throttle == () and found.devices[0].throttle == ("gpu_idle",)
    assert GpuReading.from_wire(found.to_wire()) == found


def test_a_driver_that_renamed_fields_and_its_report(with_node):
    found = gpus(10, replay("h100-renamed-fields"), **with_node)
    assert found.state == "ok" and found.cuda == "13.3"
    assert found.devices[0].throttle == ("sw_power_cap",) and found.devices[0].ecc_corrected == 3


def test_a_consumer_card_has_no_ecc_which_is_no_error(with_node):
    found = gpus(10, replay("rtx4090"), **with_node)
    device = found.devices[0]
    assert found.state == "ok" and found.cuda == "12.4" and device.errors == ()
    assert device.ecc_uncorrected is None and device.mig is None and device.memory_total_bytes == 24564 * MIB


def test_fields_that_the_driver_lacks_are_unknown(with_node):
    found = gpus(20, replay("fields-not-available"), **with_node)
    device = found.devices[0]
    assert found.state == "ok" and found.driver == "470.57.02"
    assert device.temperature_c == 54 and device.memory_used_bytes == 9029 * MIB
    assert (device.utilisation, device.power_w, device.throttle, device.ecc_uncorrected) == (None,) * 4


def test_without_the_second_call_there_is_no_cuda_version(with_node):
    assert gpus(10, replay("rtx4090"), with_cuda=False, **with_node).cuda is None


@pytest.mark.parametrize("case", ["one-device-err", "gpu-is-lost"])
def test_one_sick_device_among_healthy_ones(with_node, case):
    found = gpus(10, replay(case), **with_node)
    assert found.state == "sick" and "GPU 1" in found.why
    assert len(found.devices) == 2 and found.devices[0].errors == () and found.devices[1].errors
    if case == "one-device-err":
        assert found.devices[1].power_w is None and found.devices[1].ecc_uncorrected == 2


def test_driver_upgraded_under_a_running_system(with_node):
    found = gpus(10, replay("driver-mismatch"), **with_node)
    assert found.state == "sick" and found.why == "Failed to initialize NVML: Driver/library version mismatch"
    assert found.devices == ()


@pytest.mark.parametrize("case", ["device-handle", "nvml-unknown-error"])
def test_a_device_that_cannot_be_opened(with_node, case):
    found = gpus(10, replay(case), **with_node)
    assert found.state == "sick" and "Unknown Error" in found.why


@pytest.mark.parametrize("case", ["no-devices", "no-driver"])
def test_tool_without_gpu(bare, case):
    found = gpus(10, replay(case), **bare)
    assert found.state == "none" and found.why


@pytest.mark.parametrize("case", ["no-devices", "no-driver"])
def test_the_same_words_where_a_device_exists_mean_trouble(with_node, case):
    assert gpus(10, replay(case), **with_node).state == "sick"


def test_no_driver_but_a_device_on_the_bus(bare):
    device = Path(bare["pci"], "0000:01:00.0")
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    assert gpus(10, replay("no-driver"), **bare).state == "sick"
    (device / "class").write_text("0x040300\n")
    assert gpus(10, replay("no-driver"), **bare).state == "none", "its sound function is not a GPU"


def test_a_hang_is_unknown_within_the_deadline_and_leaves_nothing(with_node):
    begin_s = time.monotonic()
    before = set(process.tree(os.getpid()))
    found = gpus(1.0, replay("hang"), **with_node)
    assert time.monotonic() - begin_s < 3
    assert found.state == "unknown" and "hang" in found.why
    end_s = time.monotonic() + 3
    while set(process.tree(os.getpid())) - before and time.monotonic() < end_s:
        time.sleep(0.02)
    assert not set(process.tree(os.getpid())) - before


def test_no_tool(bare, monkeypatch):
    monkeypatch.setattr(gpu, "find_command", lambda: None)
    assert gpus(1, **bare).state == "none"
    Path(bare["dev"], "nvidia1").touch()
    found = gpus(1, **bare)
    assert found.state == "unknown" and "nvidia1" in found.why


def test_a_tool_that_is_something_else(bare):
    found = gpus(5, ["echo", "hello"], **bare)
    assert found.state == "unknown" and "hello" in found.why
    assert gpus(5, ["/nope"], **bare).state == "unknown"
    assert gpus(5, ["false"], **bare).state == "unknown"


def test_the_tool_is_found_on_path(tmp_path, monkeypatch, with_node):
    fake = tmp_path / "nvidia-smi"
    fake.write_text('#!/bin/sh\nexec %s "$@"\n' % " ".join(replay("rtx4090")))
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    assert gpus(10, **with_node).devices[0].name == "NVIDIA GeForce RTX 4090"


def test_parse_of_nothing_and_of_other_lines():
    assert parse_query("") == ()
    assert parse_query("Fri Jan 5\n0, x\n") == ()
    assert parse_query("3, Tesla T4\n", ["index", "name"])[0].name == "Tesla T4"


def test_holders_add_up_and_say_who_is_not_here():
    found = holders(10, replay("a100x8"))
    by_pid = {holder.pid: holder for holder in found.holders}
    assert by_pid[41988].memory_used_bytes == (20104 + 20098) * MIB and len(by_pid[41988].gpu_uuids) == 2
    assert found.why_unknown == ""
    for holder in found.holders:
        if not holder.here:
            assert holder.uid is None and holder.command


def test_holders_of_this_machine_are_described():
    line = "%d, python, 100, GPU-x\n" % os.getpid()
    assert parse_apps(line)[os.getpid()]["memory"] == 100 * MIB
    found = holders(10, [sys.executable, "-c", "print('%s')" % line.strip()])
    own = [holder for holder in found.holders if holder.pid == os.getpid()][0]
    assert own.here and own.uid == os.geteuid() and own.command


def test_process_names_with_commas_and_unreadable_memory():
    found = parse_apps("7, a, b, [N/A], GPU-1\nnot a line\n[N/A], x, 1, GPU-2\n")
    assert found == {7: {"name": "a, b", "memory": None, "uuids": ["GPU-1"], "devices": []}}


def test_holders_without_an_answer_prove_nothing():
    found = holders(0.5, replay("hang"))
    assert "no answer" in found.why_unknown
    assert "NVML" in holders(10, replay("driver-mismatch")).why_unknown
