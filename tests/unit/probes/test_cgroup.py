"""Control groups in every layout that boxes have: version 1 and 2, mixed, nested, in containers, none.

The trees are synthetic; their file names, mount lines and membership lines follow what such systems show.
"""

import os

import pytest

from outlive.probes.cgroup import CgroupReading, cgroup
from outlive.probes.cpu import usable_cores, vcpu_cap

GIB = 1 << 30
NO_LIMIT = "9223372036854771712"


@pytest.fixture
def machine(tmp_path):
    """Build a machine from {path: content} for cgroup files, its mounts and its membership."""

    def build(files, mounts, membership, vmstat=None):
        root, proc = tmp_path / "cg", tmp_path / "proc"
        (proc / "self").mkdir(parents=True)
        root.mkdir()
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + "\n")
        lines = ["22 1 8:1 / / rw - ext4 /dev/sda1 rw"]
        for number, (point, top, kind, options) in enumerate(mounts):
            lines.append("%d 22 0:%d %s %s rw - %s cgroup %s" % (30 + number, number, top, point, kind, options))
        (proc / "self/mountinfo").write_text("\n".join(lines) + "\n")
        (proc / "self/cgroup").write_text(membership)
        if vmstat:
            (proc / "vmstat").write_text(vmstat)
        return cgroup(str(root), str(proc))

    return build


V2 = [("/sys/fs/cgroup", "/", "cgroup2", "rw")]
V1 = [
    ("/sys/fs/cgroup/memory", "/", "cgroup", "rw,memory"),
    ("/sys/fs/cgroup/cpu,cpuacct", "/", "cgroup", "rw,cpu,cpuacct"),
    ("/sys/fs/cgroup/pids", "/", "cgroup", "rw,pids"),
]


def test_version_2_in_a_container(machine):
    found = machine(
        {
            "cgroup.controllers": "cpuset cpu io memory pids",
            "cgroup.type": "domain",
            "memory.max": str(8 * GIB),
            "memory.current": str(3 * GIB),
            "memory.peak": str(5 * GIB),
            "memory.stat": "anon 100\nfile 200\ninactive_file 150",
            "memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 0",
            "cpu.max": "250000 100000",
            "cpu.stat": "usage_usec 9\nnr_periods 40\nnr_throttled 7\nthrottled_usec 2500000",
            "pids.max": "512",
            "pids.current": "33",
        },
        V2,
        "0::/\n",
    )
    assert found.version == 2
    assert (found.memory_limit_bytes, found.memory_used_bytes, found.memory_peak_bytes) == (8 * GIB, 3 * GIB, 5 * GIB)
    assert found.memory_reclaimable_bytes == 150
    assert found.oom_kill == 3
    assert (found.cpu_quota_cores, found.throttled_s, found.periods_throttled, found.periods) == (2.5, 2.5, 7, 40)
    assert (found.pids_limit, found.pids_used) == (512, 33)
    assert found.unlimited == () and found.why_unknown == {}
    assert CgroupReading.from_wire(found.to_wire()) == found


def test_version_2_limit_of_a_group_above_binds(machine):
    found = machine(
        {
            "cgroup.controllers": "cpu memory pids",
            "job/memory.max": str(2 * GIB),
            "job/memory.current": "700",
            "job/cpu.max": "max 100000",
            "job/task/memory.max": "max",
            "job/task/memory.current": "100",
            "job/task/memory.events": "oom_kill 1",
            "job/task/cpu.max": "50000 100000",
            "job/task/pids.max": "max",
        },
        V2,
        "0::/job/task\n",
    )
    assert found.memory_limit_bytes == 2 * GIB
    assert found.memory_used_bytes == 700, "read where the limit is"
    assert found.oom_kill == 1, "our own group's counter"
    assert found.cpu_quota_cores == 0.5
    assert found.unlimited == ("pids_limit",)
    assert "memory_peak_bytes" in found.why_unknown, "memory.peak came late to version 2"


def test_version_2_on_a_bare_machine_is_unlimited_not_unknown(machine):
    found = machine(
        {"cgroup.controllers": "cpu memory pids", "cpu.stat": "usage_usec 5"},
        V2,
        "0::/\n",
        vmstat="pgfault 5\noom_kill 4\n",
    )
    assert set(found.unlimited) == {"memory_limit_bytes", "cpu_quota_cores", "pids_limit"}
    assert found.oom_kill == 4, "the real root's counter is the machine's"


def test_version_2_without_the_memory_controller_is_unknown(machine):
    found = machine({"cgroup.controllers": "hugetlb", "cgroup.type": "domain"}, V2, "0::/\n", vmstat="oom_kill 4\n")
    assert found.version == 0 and found.memory_limit_bytes is None and found.oom_kill is None
    assert "memory_limit_bytes" in found.why_unknown and "oom_kill" in found.why_unknown
    assert found.unlimited == ()


def test_version_1_in_a_container_whose_mount_root_is_its_own_group(machine):
    # No namespace: membership tells the host's path, the mount shows our group as its root.
    mine = "/docker/0123456789abcdef"
    mounts = [(point, mine, kind, options) for point, _, kind, options in V1]
    found = machine(
        {
            "memory/memory.limit_in_bytes": str(GIB),
            "memory/memory.usage_in_bytes": "1000",
            "memory/memory.max_usage_in_bytes": "2000",
            "memory/memory.stat": "inactive_file 5\ntotal_inactive_file 7",
            "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5",
            "cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 1500000000",
            "pids/pids.max": "64",
            "pids/pids.current": "3",
        },
        mounts,
        "5:memory:%s\n4:cpu,cpuacct:%s\n3:pids:%s\n1:name=systemd:%s\n" % (mine, mine, mine, mine),
    )
    assert found.version == 1
    assert (found.memory_limit_bytes, found.memory_used_bytes, found.memory_peak_bytes) == (GIB, 1000, 2000)
    assert (found.memory_reclaimable_bytes, found.oom_kill) == (7, 5)
    assert (found.cpu_quota_cores, found.throttled_s, found.periods_throttled) == (0.5, 1.5, 4)
    assert (found.pids_limit, found.pids_used) == (64, 3)


def test_version_1_on_a_host_with_nested_groups(machine):
    found = machine(
        {
            "memory/release_agent": "",
            "memory/memory.limit_in_bytes": NO_LIMIT,
            "memory/slurm/job_7/memory.limit_in_bytes": str(4 * GIB),
            "memory/slurm/job_7/memory.usage_in_bytes": "10",
            "memory/slurm/job_7/step_0/memory.limit_in_bytes": NO_LIMIT,
            "memory/slurm/job_7/step_0/memory.oom_control": "oom_kill 2",
            "cpu,cpuacct/release_agent": "",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "pids/release_agent": "",
        },
        V1,
        "5:memory:/slurm/job_7/step_0\n4:cpu,cpuacct:/\n3:pids:/\n",
    )
    assert found.memory_limit_bytes == 4 * GIB and found.memory_used_bytes == 10
    assert found.oom_kill == 2
    assert "cpu_quota_cores" in found.unlimited
    assert "pids_limit" in found.unlimited, "the real root has no such file and no such limit"
    assert "pids_used" in found.why_unknown


def test_an_old_kernel_without_the_kill_counter_is_unknown(machine):
    found = machine(
        {
            "memory/memory.limit_in_bytes": NO_LIMIT,
            "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0",
        },
        V1[:1],
        "5:memory:/\n",
    )
    assert found.oom_kill is None and "oom_kill" in found.why_unknown
    assert found.unlimited == ("memory_limit_bytes",)
    assert "cpu_quota_cores" in found.why_unknown, "no controller is not the same as no limit"


def test_mixed_layout_takes_each_controller_where_it_lives(machine):
    found = machine(
        {
            "memory/memory.limit_in_bytes": str(GIB),
            "memory/memory.oom_control": "oom_kill 1",
            "unified/cgroup.controllers": "pids memory",
            "unified/app/pids.max": "10",
            "unified/app/memory.max": "5",
        },
        V1[:1] + [("/sys/fs/cgroup/unified", "/", "cgroup2", "rw")],
        "5:memory:/\n0::/app\n",
    )
    assert found.version == 1 and found.memory_limit_bytes == GIB and found.oom_kill == 1
    assert found.pids_limit == 10


@pytest.mark.parametrize("membership", ["0::/../../other\n", "0::/not/here\n", "", "nonsense\n"])
def test_a_path_that_cannot_be_followed_falls_back_to_what_is_mounted(machine, membership):
    found = machine({"cgroup.controllers": "memory", "memory.max": "123", "cgroup.type": "domain"}, V2, membership)
    assert found.memory_limit_bytes == 123


def test_no_mount_table_goes_by_the_layout(tmp_path):
    root = tmp_path / "cg"
    (root / "memory").mkdir(parents=True)
    (root / "memory/memory.limit_in_bytes").write_text("77\n")
    found = cgroup(str(root), str(tmp_path / "noproc"))
    assert (found.version, found.memory_limit_bytes) == (1, 77)


def test_nothing_at_all(tmp_path):
    found = cgroup(str(tmp_path), str(tmp_path))
    assert found.version == 0 and found.unlimited == ()
    assert set(found.why_unknown) == {
        name for name in found.to_wire() if name not in ("version", "unlimited", "paths", "why_unknown")
    }


@pytest.mark.parametrize("content", ["", "garbage", "max max", "100000 0", "\xff"])
def test_garbage_is_unknown(machine, content):
    found = machine({"cgroup.controllers": "cpu memory", "cgroup.type": "x", "cpu.max": content}, V2, "0::/\n")
    assert found.cpu_quota_cores is None and (
        "cpu_quota_cores" in found.why_unknown or "cpu_quota_cores" in found.unlimited
    )


def test_this_machine():
    found = cgroup()
    for name in ("memory_limit_bytes", "cpu_quota_cores", "pids_limit"):
        known = getattr(found, name) is not None
        assert known + (name in found.unlimited) + (name in found.why_unknown) == 1, name


def test_usable_cores_by_quota_and_by_affinity(tmp_path):
    root = tmp_path / "cg"
    root.mkdir()
    (tmp_path / "self").mkdir()
    (root / "cgroup.controllers").write_text("cpu")
    (root / "cgroup.type").write_text("domain")
    (root / "cpu.max").write_text("150000 1000000")
    found = usable_cores(str(root), str(tmp_path))
    assert found.value == 0.15 and found.source.startswith("quota") and found.unit == "cores"
    assert vcpu_cap(str(root), str(tmp_path)) == 1
    (root / "cpu.max").write_text("max 100000")
    found = usable_cores(str(root), str(tmp_path))
    expected = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert found.value == expected and vcpu_cap(str(root), str(tmp_path)) == expected
