"""The test bed does what its guide says. What other tests conclude from a box is only worth as much as this."""

from __future__ import annotations

import hashlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

# --- boxes: limits are real ---


def test_a_box_is_a_machine_of_its_own(ssh_box):
    said = ssh_box.ssh("hostname; cat /proc/1/comm; id -un; pwd; ls -d /oldroot").stdout.split()
    assert said == [ssh_box.name, "sshd", "root", "/root"]
    assert ssh_box.ssh(f"ls {ssh_box.directory}").returncode != 0  # it cannot see where it is kept
    assert int(ssh_box.ssh("ps ax -o pid= | wc -l", check=True).stdout) < 10  # nor other processes


def test_a_terminal_is_given(ssh_box):
    assert ssh_box.ssh("tty", options=["-tt"]).stdout.strip() == "/dev/pts/0"


def test_disk_full_is_enospc(box_factory):
    box = box_factory(disk="tmpfs:16m:1000", memory_mb=256)
    done = box.ssh("head -c 40000000 /dev/zero > /root/big")
    assert done.returncode == 1 and "No space left on device" in done.stderr
    assert box.free_bytes() == 0 and box.free_inodes() > 500


@pytest.mark.parametrize("disk", ["tmpfs:16m:1000", "ext4:20:1000"])
def test_fill_disk_leaves_what_is_asked(box_factory, disk):
    box = box_factory(disk=disk)
    box.fill_disk(leave_bytes=1_000_000)
    assert box.ssh("head -c 900000 /dev/zero > /root/fits").returncode == 0
    box.fill_disk()
    assert box.ssh("head -c 100000 /dev/zero > /root/no").returncode == 1
    box.relieve_disk()
    assert box.ssh("head -c 100000 /dev/zero > /root/no").returncode == 0


@pytest.mark.parametrize("disk", ["tmpfs:16m:600", "ext4:20:600"])
def test_inodes_run_out_while_bytes_are_free(box_factory, disk):
    box = box_factory(disk=disk)
    box.exhaust_inodes()
    done = box.ssh("touch /root/one-more")
    assert done.returncode == 1 and "No space left on device" in done.stderr
    assert box.free_bytes() > 8_000_000


def test_memory_over_the_limit_is_killed_and_counted(box_factory):
    box = box_factory(memory_mb=96)
    assert box.oom_kills() == 0
    done = box.ssh("""setsid sh -c 'python3 -c "b = bytearray(400 << 20)"; echo $? > /root/rc'; cat /root/rc""")
    assert done.stdout.strip() == "137"
    assert box.oom_kills() == 1
    assert box.ssh("true").returncode == 0  # the box itself lives on


def test_cpu_quota_is_visible_and_real(box_factory):
    box = box_factory(cpu_percent=20)
    burn = "import time\nt = time.time()\nc = time.process_time\nwhile time.time() < t + 1: pass\nprint(c())"
    spent_s = float(box.ssh("python3 -", input=burn, check=True).stdout)
    assert spent_s < 0.5


def test_pids_limit_stops_a_fork_bomb(box_factory):
    box = box_factory(pids=40)
    done = box.ssh("for i in $(seq 80); do sleep 2 & done")
    assert "Resource temporarily unavailable" in done.stderr


# --- boxes: life and death ---


def test_restart_keeps_the_disk_and_the_boot_id_but_no_process(ssh_box):
    about = "cat /proc/sys/kernel/random/boot_id; cut -d' ' -f22 /proc/1/stat; readlink /proc/1/ns/pid"
    boot, born, space = ssh_box.ssh(about, check=True).stdout.split()
    ssh_box.ssh("echo kept > /root/file; setsid sleep 1000 >/dev/null 2>&1 </dev/null &", check=True)
    first = ssh_box.pid1
    ssh_box.restart()
    boot_2, born_2, space_2 = ssh_box.ssh(about, check=True).stdout.split()
    assert ssh_box.ssh("cat /root/file").stdout == "kept\n"
    assert boot_2 == boot and born_2 != born and ssh_box.pid1 != first
    assert ssh_box.ssh("pgrep sleep").stdout == ""


def test_kill_ends_everything_at_once_and_start_brings_the_disk_back(ssh_box):
    ssh_box.ssh("echo kept > /root/file; setsid sleep 1000 >/dev/null 2>&1 </dev/null &", check=True)
    ssh_box.kill()
    assert "Connection refused" in ssh_box.ssh("true").stderr
    assert not any(each.exists() for each in ssh_box.cgroup.values())
    assert (ssh_box.root / "root/file").read_text() == "kept\n"
    ssh_box.start()
    assert ssh_box.ssh("cat /root/file").stdout == "kept\n"


def test_empty_comes_back_without_files_and_with_another_host_key_but_with_its_volume(box_factory):
    box = box_factory(volume="/workspace=tmpfs:4m:100")
    key = box.known_hosts.read_text()
    box.ssh("touch /root/file /workspace/file", check=True)
    box.empty()
    assert box.ssh("ls /root /workspace", check=True).stdout.split() == ["/root:", "/workspace:", "file"]
    assert box.known_hosts.read_text() != key


def test_frozen_connections_hang_while_work_goes_on(ssh_box):
    ticking = "while :; do date +%s%N >> /root/ticks; sleep 0.05; done"
    ssh_box.ssh(f"setsid sh -c '{ticking}' >/dev/null 2>&1 </dev/null &", check=True)
    ssh_box.freeze()
    before = (ssh_box.root / "root/ticks").stat().st_size
    assert "timed out" in ssh_box.ssh("true", options=["-o", "ConnectTimeout=1"]).stderr
    assert (ssh_box.root / "root/ticks").stat().st_size > before
    ssh_box.thaw()
    assert ssh_box.ssh("true").returncode == 0


def test_down_leaves_nothing(box_factory):
    box = box_factory(disk="ext4:20:500", volume="/workspace=ext4:8:100")
    box.down()
    assert not box.directory.exists()
    assert str(box.directory) not in pathlib.Path("/proc/self/mounts").read_text()
    assert not any(each.exists() for each in box.cgroup.values())
    assert str(box.directory) not in subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout


@pytest.mark.box
def test_boxes_of_a_killed_test_process_are_ended_by_the_next(tmp_path):
    from servers import boxes

    leave = "import os, sys; sys.path.insert(0, sys.argv[1]); from servers.boxes import Bed; bed = Bed(); "
    leave += "bed.up('left'); print(bed.boxes_dir, flush=True); os.kill(os.getpid(), 9)"
    argv = [sys.executable, "-c", leave, str(pathlib.Path(__file__).parents[1])]
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    left = pathlib.Path(subprocess.run(argv, env=environment, capture_output=True, text=True).stdout.strip())
    assert left.parent == tmp_path and (left / "left/pid1").exists()
    pid = (left / "left/pid1").read_text().strip()
    boxes.end_abandoned(tmp_path)
    assert not left.exists() and not pathlib.Path("/proc", pid).exists()


def test_a_box_that_cannot_start_says_why_and_leaves_nothing(box_factory):
    from servers.boxes import BedError

    name = f"never-{os.getpid()}"  # mounts are the whole machine's
    with pytest.raises(BedError, match="Cannot assign requested address"):
        box_factory(name, address="192.0.2.1", port=2200)
    with pytest.raises(BedError, match="unknown option '--colour'"):
        box_factory(name, colour="red")
    assert name not in pathlib.Path("/proc/self/mounts").read_text()


def test_without_overlay_the_base_is_copied_and_the_free_space_is_the_same(box_factory, monkeypatch):
    monkeypatch.setenv("OUTLIVE_TESTBED_COPY", "1")
    box = box_factory(disk="tmpfs:32m:1000")
    assert box.layers == "copy"
    assert box.ssh("hostname").stdout.strip() == box.name
    # 10 % of the base is added for what file systems need themselves
    assert 30_000_000 < box.free_bytes() < 80_000_000
    assert 900 < box.free_inodes() < 1300


# --- boxes: what a rental lacks ---


def test_missing_tools_are_missing(box_factory):
    box = box_factory(no_rsync=True, no_tmux=True)
    assert box.ssh("command -v rsync tmux").stdout == ""
    assert box.ssh("command -v python3 tar").stdout.split() == ["/usr/bin/python3", "/usr/bin/tar"]


def test_without_sftp_only_the_exec_channel_is_left(box_factory, tmp_path):
    box = box_factory(no_sftp=True)
    copy = ["scp", "-F", str(box.ssh_config), "/etc/hostname", f"{box.name}:/root/h"]
    assert subprocess.run(copy, capture_output=True).returncode != 0
    assert box.ssh("cat > /root/h; wc -c < /root/h", input="12345").stdout.strip() == "5"


def test_one_session_per_connection(box_factory, tmp_path):
    box = box_factory(no_multiplex=True)
    control = ["-S", str(tmp_path / "c")]
    master = subprocess.Popen(box.ssh_argv("-M", *control, box.name, "echo ready; sleep 20"), stdout=subprocess.PIPE)
    try:
        assert master.stdout.readline() == b"ready\n"
        # A client whose session is refused opens its own connection; forbid that, to see the refusal.
        second = box.ssh("echo hi", options=[*control, "-o", "ProxyCommand=false"])
        assert second.returncode == 255 and "Session open refused by peer" in second.stderr + second.stdout
        assert box.ssh("echo hi").stdout == "hi\n"
    finally:
        master.kill()
        master.wait()
        master.stdout.close()


@pytest.mark.box_python("3.8")
def test_a_box_with_python_3_8_only(box_factory):
    box = box_factory(python="3.8")
    assert box.ssh("python3.8 -V").stdout == box.ssh("python -V").stdout and "3.8." in box.ssh("python -V").stdout
    assert box.ssh("command -v python3").returncode != 0
    assert box.ssh("python -c 'import ssl, sqlite3, lzma, bz2, ctypes, zlib, http.server'").returncode == 0
    assert "Read-only" in box.ssh("touch /opt/python3.8/x").stderr


def test_a_user_who_is_not_root(box_factory):
    box = box_factory(user="me")
    assert box.ssh("id -u; pwd; touch file; stat -c %U file", check=True).stdout.split() == ["1000", "/home/me", "me"]
    assert (box.home / "file").exists()
    assert box.ssh("touch /root/x; touch /usr/x").stderr.count("Permission denied") == 2


def test_a_noisy_box_talks_before_the_answer(box_factory):
    done = box_factory(noisy=True).ssh("echo answer", check=True)
    assert done.stdout.endswith("activating environment ...\nanswer\n")
    assert "GPU quota" in done.stderr


def test_environment_of_pid_1_is_not_that_of_a_session(box_factory):
    box = box_factory(env=["POD_ID=pod-7", "WORDS=two words"])
    assert (
        box.ssh("tr '\\0' '\\n' < /proc/1/environ | grep -e POD -e WORDS").stdout == "POD_ID=pod-7\nWORDS=two words\n"
    )
    assert box.ssh("echo [$POD_ID]").stdout == "[]\n"


# --- links ---


class Peer:
    """A TCP server that sends `payload` to each client, then counts what it gets until the client closes."""

    def __init__(self, payload: bytes = b"") -> None:
        self.payload, self.got, self.done = payload, 0, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self.listener:
            client, _ = self.listener.accept()
            with client:
                try:
                    client.sendall(self.payload)
                    while data := client.recv(65536):
                        self.got += len(data)
                except OSError:
                    pass
            self.done.set()


def read_all(connection: socket.socket) -> int:
    got = 0
    while data := connection.recv(65536):
        got += len(data)
    return got


def test_cutproxy_cuts_after_exactly_n_bytes_down(cut_link):
    peer = Peer(os.urandom(300_000))
    link = cut_link("127.0.0.1", peer.port, cut_down=123_457)
    with socket.create_connection((link.address, link.port), timeout=10) as connection:
        assert read_all(connection) == 123_457
    assert link.stats()["down"] == 123_457
    assert peer.done.wait(5)


def test_cutproxy_cuts_after_exactly_n_bytes_up(cut_link):
    peer = Peer()
    link = cut_link("127.0.0.1", peer.port, cut_up=10_001)
    with socket.create_connection((link.address, link.port), timeout=10) as connection:
        with pytest.raises(OSError):
            for _ in range(1000):
                connection.sendall(b"x" * 1000)
                time.sleep(0.001)
    assert peer.done.wait(5) and peer.got == 10_001


def test_a_stall_is_silent_and_loses_nothing(cut_link):
    peer = Peer(b"y" * 500_000)
    link = cut_link("127.0.0.1", peer.port, stall_down=1000)
    with socket.create_connection((link.address, link.port), timeout=10) as connection:
        assert len(connection.recv(1000, socket.MSG_WAITALL)) == 1000
        connection.settimeout(0.3)
        with pytest.raises(socket.timeout):
            connection.recv(1)
        connection.settimeout(10)
        link.set(stall_down=0)
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == 499_000


def test_one_direction_is_dropped(cut_link):
    peer = Peer(b"hello")
    link = cut_link("127.0.0.1", peer.port, drop_up=1)
    with socket.create_connection((link.address, link.port), timeout=10) as connection:
        assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
        connection.sendall(b"z" * 5000)
        connection.shutdown(socket.SHUT_WR)
        assert peer.done.wait(5)
    assert peer.got == 0 and link.stats()["up"] == 5000


def test_the_rate_is_limited(cut_link):
    peer = Peer(b"r" * 60_000)
    link = cut_link("127.0.0.1", peer.port, rate_kbyte=200)
    begin_s = time.monotonic()
    with socket.create_connection((link.address, link.port), timeout=10) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == 60_000
    assert 0.2 < time.monotonic() - begin_s < 3


def test_a_link_can_refuse_and_cut_on_command_and_rejects_nonsense(cut_link):
    from servers.boxes import BedError

    peer = Peer()
    link = cut_link("127.0.0.1", peer.port)
    with socket.create_connection((link.address, link.port), timeout=10) as connection:
        connection.sendall(b"1")
        while link.stats()["up"] < 1:
            time.sleep(0.01)
        link.cut()
        assert connection.recv(1) == b""
    link.set(refuse=1)
    with socket.create_connection((link.address, link.port), timeout=10) as connection:
        assert connection.recv(1) == b""
    with pytest.raises(BedError, match="colour"):
        link.set(colour=1)


def test_an_ssh_session_through_a_link_that_is_cut_ends_255(ssh_box, cut_link):
    link = cut_link(ssh_box.address, ssh_box.port)
    through = [
        "-o",
        f"HostName={link.address}",
        "-p",
        str(link.port),
        "-o",
        f"HostKeyAlias=[{ssh_box.address}]:{ssh_box.port}",
    ]
    assert ssh_box.ssh("echo through", options=through).stdout == "through\n"
    link.set(cut_down=20_000)
    done = ssh_box.ssh("head -c 200000 /dev/zero", options=through)
    assert done.returncode == 255 and len(done.stdout) < 20_000


def test_a_line_delays_parts_and_heals(wan, box_factory):
    box = box_factory(netns=wan.netns, address=wan.far_ip, port=22)
    wan.set(delay_ms=40)
    begin_s = time.monotonic()
    socket.create_connection((wan.far_ip, 22), timeout=5).close()
    assert 0.08 <= time.monotonic() - begin_s < 0.5
    wan.set(delay_ms=0, down=1)
    with pytest.raises(OSError):
        socket.create_connection((wan.far_ip, 22), timeout=0.3)
    wan.set(down=0)
    assert box.ssh("hostname").stdout.strip() == box.name


# --- webhooks and remotes ---


def test_the_sink_records_and_answers_as_told(sink):
    sink.answers(500)
    request = urllib.request.Request(sink.url + "?a=1", b'{"x": 1}', {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    refused.value.close()
    urllib.request.urlopen(request, timeout=5).close()
    first, second = sink.wait(2)
    assert (first.method, first.path, first.json()) == ("POST", "/hook?a=1", {"x": 1})
    assert second.headers["content-type"] == "application/json"
    with pytest.raises(AssertionError, match="2 of 3"):
        sink.wait(3, timeout_s=0.05)


def test_remotes_store_and_the_served_one_answers_hashes(rclone_remote, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"weights" * 1000)
    for remote, folder in (("plain:", rclone_remote.plain_dir), ("served:", rclone_remote.served_dir)):
        rclone_remote.run("copy", str(source), remote + "a/b")
        assert (folder / "a/b/file").read_bytes() == source.read_bytes()
    md5 = hashlib.md5(source.read_bytes()).hexdigest()
    assert rclone_remote.run("md5sum", "served:a/b/file").stdout.split()[0] == md5
    rclone_remote.stop()
    assert rclone_remote.run("lsf", "served:", "--retries=1", "--low-level-retries=1", check=False).returncode != 0
    rclone_remote.start()
    assert rclone_remote.run("lsf", "served:").stdout == "a/\n"
