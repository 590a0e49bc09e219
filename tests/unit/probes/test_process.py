"""Who is alive and who belongs together, asked of real processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from outlive.probes import process, process_ps

linux = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads /proc")


def until(condition, limit_s=60.0):
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def spawn():
    """Start processes; each is killed and reaped at the end of the test."""
    started = []

    def start(argv, **named):
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, **named)
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait()


def test_this_process_is_alive_with_its_ticks_and_not_with_others():
    pid = os.getpid()
    ticks = process.start_ticks(pid)
    assert ticks is not None
    assert process.is_alive(pid, ticks)
    assert not process.is_alive(pid, ticks + 1), "the same number with another start is another process"
    assert process.is_alive(pid, None)


def test_numbers_that_name_nothing():
    for pid in (0, -1, 2**31 - 1):
        assert process.is_alive(pid, None) is False
    gone = 2**31 - 1
    assert process.start_ticks(gone) is None
    assert process.parent(gone) is None
    assert process.owner_uid(gone) is None
    assert process.command_line(gone) is None
    assert process.environ_value(gone, "PATH") is None
    assert process.tree(gone) == []
    assert process.cpu_seconds([gone]) is None


def test_a_zombie_is_dead(spawn):
    child = spawn(["true"])
    assert until(lambda: (process.stat(child.pid) or process.stat(os.getpid())).state == "Z")
    ticks = process.start_ticks(child.pid)
    assert ticks is not None, "a zombie is still listed"
    assert not process.is_alive(child.pid, ticks)
    assert child.pid not in process.tree(os.getpid())


def test_parent_and_owner(spawn):
    child = spawn(["sleep", "30"])
    assert process.parent(child.pid) == os.getpid()
    assert process.owner_uid(child.pid) == os.geteuid()
    assert until(lambda: process.command_line(child.pid) == ["sleep", "30"])


def test_tree_holds_grandchildren(spawn):
    child = spawn(["sh", "-c", "sleep 30 & sleep 30 & wait"])
    assert until(lambda: len(process.tree(child.pid)) == 3)
    assert process.tree(child.pid)[0] == child.pid
    assert set(process.tree(child.pid)) < set(process.tree(os.getpid()))
    orphans = process.tree(child.pid)[1:]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert process.tree(child.pid) == [], "the orphans belong to someone else now"
    for orphan in orphans:
        os.kill(orphan, signal.SIGKILL)


@linux
def test_members_finds_the_reparented_by_environment_and_the_rewritten_by_tree(spawn):
    uuid = "test-%d-%d" % (os.getpid(), time.monotonic_ns())
    env = dict(os.environ, OUTLIVE_ATTEMPT=uuid)
    # One double-forked process that keeps the mark, one in the tree that dropped it, one of another attempt.
    lost = subprocess.run(
        ["sh", "-c", "setsid sleep 30 >/dev/null 2>&1 & echo $!"], env=env, stdout=subprocess.PIPE, check=True
    )
    lost_pid = int(lost.stdout)
    keeper = spawn(["sh", "-c", "env -u OUTLIVE_ATTEMPT sleep 30 & wait"], env=dict(os.environ))
    other = spawn(["sleep", "30"], env=dict(os.environ, OUTLIVE_ATTEMPT=uuid + "0"))
    try:
        assert until(lambda: len(process.tree(keeper.pid)) == 2)
        assert until(lambda: process.environ_value(lost_pid, "OUTLIVE_ATTEMPT") == uuid)
        inside = process.tree(keeper.pid)
        assert process.members(uuid, keeper.pid) == sorted(inside + [lost_pid])
        assert process.members(uuid, None) == [lost_pid]
        assert other.pid not in process.members(uuid, keeper.pid)
        ticks = process.start_ticks(keeper.pid)
        assert process.members(uuid, keeper.pid, root_ticks=ticks) == sorted(inside + [lost_pid])
        assert process.members(uuid, keeper.pid, root_ticks=ticks + 1) == [lost_pid], "a reused number is no root"
        assert process.members("", None) == []
    finally:
        os.kill(lost_pid, signal.SIGKILL)
        for pid in process.tree(keeper.pid):
            os.kill(pid, signal.SIGKILL)


@linux
def test_environment_of_a_process(spawn):
    env = {"PATH": os.environ["PATH"], "EQUALS": "a=b=c", "EMPTY": ""}
    child = spawn(["sleep", "30"], env=env)
    assert until(lambda: process.environ(child.pid) == env)
    assert process.environ_value(child.pid, "EQUALS") == "a=b=c"
    assert process.environ_value(child.pid, "EMPTY") == ""
    assert process.environ_value(child.pid, "ABSENT") is None


def test_cpu_seconds_grows_with_work_and_counts_reaped_children():
    before = process.cpu_seconds([os.getpid()])
    burn = "import time\nend = time.process_time() + 0.15\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert process.cpu_seconds([os.getpid()]) - before >= 0.1


@linux
def test_a_leader_that_ended_before_its_threads_is_alive(spawn):
    # sys.exit in the main thread waits for the others; only pthread_exit leaves a zombie leader behind.
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: time.sleep(30)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    if os.uname().machine != "x86_64":
        pytest.skip("uses a system call's number")
    child = spawn([sys.executable, "-c", code])
    assert until(lambda: process.stat(child.pid).state == "Z")
    assert process.is_alive(child.pid, process.start_ticks(child.pid))


def test_machine_identity_is_stable_and_depends_on_the_box():
    one = process.machine_identity("box-a")
    assert one == process.machine_identity("box-a")
    assert one != process.machine_identity("box-b")
    assert len(one) == 64 and int(one, 16) >= 0


@linux
def test_machine_identity_changes_with_boot_pid1_and_namespace(tmp_path, monkeypatch):
    def machine(boot, ticks, namespace):
        fake = tmp_path / ("%s-%s-%s" % (boot, ticks, namespace))
        (fake / "sys/kernel/random").mkdir(parents=True)
        (fake / "self/ns").mkdir(parents=True)
        (fake / "1").mkdir()
        (fake / "sys/kernel/random/boot_id").write_text(boot + "\n")
        stat = "1 (init) S 0 " + " ".join(["0"] * 17) + " %d 0 0\n" % ticks
        (fake / "1/stat").write_text(stat)
        (fake / "self/stat").write_text(stat)
        os.symlink("pid:[%s]" % namespace, str(fake / "self/ns/pid"))
        monkeypatch.setattr(process, "PROC", str(fake))
        assert process.start_ticks(1) == ticks
        return process.machine_identity("box")

    first = machine("b1", 10, "n1")
    others = {machine("b2", 10, "n1"), machine("b1", 11, "n1"), machine("b1", 10, "n2")}
    assert len(others) == 3 and first not in others


def test_a_command_name_with_parentheses_and_spaces():
    fields = "S 7 " + " ".join(str(number) for number in range(1, 18)) + " 4242 0 0"
    found = process._parse_stat(b"12 (a) (b c) " + fields.encode())
    assert (found.pid, found.comm, found.ppid, found.ticks) == (12, "a) (b c", 7, 4242)
    assert process._parse_stat(b"garbage") is None
    assert process._parse_stat(b"") is None


@linux
def test_subreaper_collects_orphans():
    code = (
        "import os, subprocess, time\n"
        "from outlive.probes import process\n"
        "assert process.set_subreaper()\n"
        "child = int(subprocess.check_output(['sh', '-c', 'sleep 0.2 >/dev/null & echo $!']))\n"
        "print(process.parent(child) == os.getpid(), os.waitpid(child, 0)[0] == child)\n"
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    assert subprocess.check_output([sys.executable, "-c", code], env=env) == b"True True\n"


@linux
def test_kernel_threads_are_named_and_have_no_environment():
    kernel = [found for found in process.snapshot().values() if found.kernel]
    for found in kernel[:3]:
        assert process.command_line(found.pid) == ["[%s]" % found.comm]


class TestByPs:
    """The same questions where there is no /proc; ``ps`` of this machine stands in for that of macOS."""

    @pytest.fixture(autouse=True)
    def no_proc(self, monkeypatch):
        import shutil

        if shutil.which("ps") is None:
            pytest.skip("no ps on this machine")
        self.true_parent = os.getppid()
        monkeypatch.setattr(process, "PROC", "/nope")

    def test_alive_parent_tree(self, spawn):
        assert not process.has_proc()
        child = spawn(["sh", "-c", "sleep 30 & wait"])
        assert until(lambda: len(process.tree(child.pid)) == 2)
        ticks = process.start_ticks(child.pid)
        assert abs(ticks - time.time()) < 60
        assert process.is_alive(child.pid, ticks) and not process.is_alive(child.pid, ticks + 100)
        assert process.parent(child.pid) == os.getpid()
        assert process.owner_uid(child.pid) == os.geteuid()
        assert process.command_line(child.pid)[0] == "sh"
        for pid in process.tree(child.pid)[1:]:
            os.kill(pid, signal.SIGKILL)

    def test_zombie_is_dead(self, spawn):
        child = spawn(["true"])
        assert until(lambda: not process.is_alive(child.pid, None))

    def test_marked(self, spawn):
        uuid = "ps-%d-%d" % (os.getpid(), time.monotonic_ns())
        child = spawn(["sleep", "30"], env=dict(os.environ, OUTLIVE_ATTEMPT=uuid))
        assert until(lambda: process.members(uuid, None) == [child.pid])

    def test_cpu_of_this_process(self):
        assert process.cpu_seconds([os.getpid()]) is not None

    def test_lines_that_are_none(self):
        assert process_ps.parse_line("") is None
        assert process_ps.parse_line("a b c d e f g h i") is None

    def test_a_line_as_macos_prints_it(self):
        found = process_ps.parse_line("  501   1 Ss   1-02:03:04.50 Mon Jan  5 10:20:30 2026     /sbin/a program")
        assert (found.pid, found.ppid, found.state, found.comm) == (501, 1, "S", "/sbin/a program")
        assert found.cpu_ticks == (86400 + 2 * 3600 + 3 * 60 + 4) * 100 + 50
        assert found.ticks == 1767608430
