"""The ssh transport against real servers that misbehave the way rented ones do."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outlive.errors import BoxLacks, HostKeyChanged, LoginRefused, PlaceError, TimeOver, Unreachable
from outlive.testing import transport as suite
from outlive.transport import control
from outlive.transport.address import parse
from outlive.transport.base import Exec, Files
from outlive.transport.files import ExecFiles
from outlive.transport.ssh import SshExec


def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"servers_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sshd = _beside("sshd")


class Bench:
    """A server and executors towards it, all ended with the test."""

    def __init__(self, where: Path) -> None:
        self._where, self._ends = where, contextlib.ExitStack()

    def serve(self, extra: str = "") -> Any:
        return self._ends.enter_context(sshd.serving(self._where / "server", extra))

    def exec(self, server: Any, **settings: Any) -> SshExec:
        settings.setdefault("identity", "box1")
        settings.setdefault("accept_new", True)
        address = settings.pop("address", server.address)
        made = SshExec(address, state_dir=self._where / "state", config_path=server.config, **settings)
        self._ends.callback(made.close)
        self._ends.callback(made.disconnect)
        return made

    def end(self) -> None:
        self._ends.close()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    runtime = Path(f"/tmp/o-{os.getpid()}-{os.urandom(3).hex()}")  # short: a socket's path has a limit
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made = Bench(tmp_path)
    yield made
    made.end()
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def shared_exec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshExec]:
    where = tmp_path_factory.mktemp("s")
    with sshd.serving(where / "server") as server:
        made = SshExec(
            server.address, state_dir=where / "state", identity="box1", accept_new=True, config_path=server.config
        )
        yield made
        made.disconnect()


# ---- the contract ----


@pytest.mark.parametrize("check", suite.EXEC_CHECKS, ids=lambda check: check.__name__)
def test_exec_contract(shared_exec: SshExec, check: Callable[[Exec], None]) -> None:
    check(shared_exec)


@pytest.mark.parametrize("check", suite.FILES_CHECKS, ids=lambda check: check.__name__)
def test_files_contract(shared_exec: SshExec, check: Callable[[Files, str], None], tmp_path: Path) -> None:
    check(ExecFiles(shared_exec), f"{tmp_path}/a root")


@pytest.mark.parametrize(
    "check", [suite.check_words_stay_words, suite.check_status_is_the_commands, suite.check_stdin_is_bytes]
)
def test_contract_without_sharing(bench: Bench, check: Callable[[Exec], None]) -> None:
    check(bench.exec(bench.serve(), multiplex="no"))


# ---- logins that talk, and shells that are none ----

NOISE = """echo 'Welcome to your rented GPU!'; printf 'no newline'; echo 'mesg: ttyname failed' >&2
cd /; alias cat=false; set -x
"""


def test_noisy_bashrc_and_banner_do_not_reach_us(bench: Bench, tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("=== Authorized users only ===\n" * 20)
    server = bench.serve(f"Banner {banner}")
    (server.home / ".bashrc").write_text(NOISE)
    for multiplex in ("auto", "no"):
        ssh = bench.exec(server, multiplex=multiplex)
        suite.check_outputs_are_separate(ssh)
        suite.check_words_stay_words(ssh)
        suite.check_stream_round_trip(ssh)
        suite.check_stream_status_and_stderr(ssh)


@pytest.mark.parametrize("shell", ["fish", "tcsh", "dash", "bash --posix"])
def test_other_login_shells(bench: Bench, shell: str) -> None:
    program = shutil.which(shell.split()[0])
    if not program:
        pytest.fail(f"{shell} is missing: apt-get install fish tcsh")
    command = " ".join([program, *shell.split()[1:]])
    ssh = bench.exec(bench.serve(f'ForceCommand exec {command} -c "$SSH_ORIGINAL_COMMAND"'))
    suite.check_words_stay_words(ssh)
    suite.check_status_is_the_commands(ssh)
    suite.check_nothing_is_looked_up_in_a_shell(ssh)


def test_gateway_that_only_gives_terminals(bench: Bench) -> None:
    server = bench.serve('ForceCommand echo "Error: Your SSH client doesn\'t support PTY" >&2; exit 1')
    with pytest.raises(BoxLacks, match="terminals only"):
        bench.exec(server).run(["true"], timeout_s=20)


def test_account_that_runs_nothing(bench: Bench) -> None:
    with pytest.raises(BoxLacks, match="does not run commands") as caught:
        bench.exec(bench.serve("ForceCommand echo maintenance until noon")).run(["true"], timeout_s=20)
    assert "maintenance until noon" in caught.value.sentence()


# ---- sharing, and its absence ----


def test_one_connection_serves_many_commands_and_processes(bench: Bench) -> None:
    server = bench.serve()
    for _ in range(3):
        bench.exec(server).run(["true"])
    assert server.log.read_text().count("Accepted publickey") == 1


def test_socket_is_private_and_short(bench: Bench) -> None:
    bench.exec(bench.serve()).run(["true"])
    place = control.directory()
    assert place.stat().st_mode & 0o777 == 0o700
    sockets = [p for p in place.iterdir() if p.is_socket()]
    assert len(sockets) == 1 and len(os.fsencode(sockets[0])) < 100


def test_one_session_at_a_time(bench: Bench) -> None:
    """MaxSessions 1: while a stream is open a second command finds its own way, and it is remembered."""
    server = bench.serve("MaxSessions 1")
    ssh = bench.exec(server)
    with ssh.stream(["cat"]) as stream:
        assert ssh.run(["printf", "%s", "beside"]).stdout == b"beside"
        assert ssh.run(["printf", "%s", "again"]).stdout == b"again"
        stream.stdin.write(b"still here")
        assert stream.finish(20).stdout == b"still here"
    other = bench.exec(server)
    before = server.log.read_text().count("Accepted publickey")
    other.run(["true"])
    assert server.log.read_text().count("Accepted publickey") == before + 1, "the next process did not remember"


def test_no_shared_session_at_all(bench: Bench, tmp_path: Path) -> None:
    """A way that cuts connections used again after a pause: commands still get through, and sharing is given up."""
    server = bench.serve()
    gate = _first_command_must_come_with_login(server.port)
    address = dataclasses.replace(server.address, port=gate.port)
    ssh = bench.exec(server, address=address)
    try:
        for _ in range(3):
            assert ssh.run(["printf", "ok"], timeout_s=20).stdout == b"ok"
            time.sleep(0.5)
        assert gate.cut >= 1
        count = gate.connections
        assert ssh.run(["printf", "ok"], timeout_s=20).stdout == b"ok"
        assert gate.connections == count + 1, "sharing is tried again and again"
    finally:
        gate.close()


class _Gate:
    """A relay in front of a server that kills a connection as soon as its client speaks after a pause."""

    def __init__(self, target: int, pause_s: float = 0.4) -> None:
        self._target, self._pause_s = target, pause_s
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.connections = self.cut = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self.connections += 1
                threading.Thread(target=self._relay, args=(near,), daemon=True).start()

    def _relay(self, near: socket.socket) -> None:
        import select

        far = socket.create_connection(("127.0.0.1", self._target))
        last = time.monotonic()
        with near, far, contextlib.suppress(OSError):
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(65536)
                    if not data or (ready is near and time.monotonic() - last > self._pause_s):
                        self.cut += bool(data)
                        return
                    last = time.monotonic()
                    (far if ready is near else near).sendall(data)

    def close(self) -> None:
        self._server.close()


def _first_command_must_come_with_login(port: int) -> _Gate:
    return _Gate(port)


def test_stale_master_is_replaced(bench: Bench) -> None:
    """The far end of the shared connection is frozen; its master still says it is well."""
    server = bench.serve()
    ssh = bench.exec(server, stale_s=1.0)
    ssh.run(["true"])
    server.signal_sessions(signal.SIGSTOP)
    began = time.monotonic()
    assert ssh.run(["printf", "here"], timeout_s=20).stdout == b"here"
    assert time.monotonic() - began < 10


def test_stale_master_under_a_stream(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server, stale_s=1.0)
    ssh.run(["true"])
    server.signal_sessions(signal.SIGSTOP)
    suite.check_stream_round_trip(ssh)


def test_dead_master_is_replaced(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    ssh.run(["true"])
    server.signal_sessions(signal.SIGKILL)
    assert ssh.run(["printf", "here"], timeout_s=20).stdout == b"here"


# ---- endings ----


def test_server_killed_in_the_middle_is_no_status(bench: Bench) -> None:
    server = bench.serve()
    for multiplex in ("auto", "no"):
        ssh = bench.exec(server, multiplex=multiplex)
        ssh.run(["true"])
        threading.Timer(0.7, server.signal_sessions, [signal.SIGKILL]).start()
        began = time.monotonic()
        with pytest.raises(Unreachable):
            ssh.run(["sleep", "20"], timeout_s=15)
        assert time.monotonic() - began < 8


def test_a_command_that_began_is_not_sent_twice(bench: Bench, tmp_path: Path) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    ssh.run(["true"])
    threading.Timer(0.7, server.signal_sessions, [signal.SIGKILL]).start()
    with pytest.raises(Unreachable):
        ssh.run(["sh", "-c", f"echo once >> {tmp_path}/ran; sleep 20"], timeout_s=15)
    assert (tmp_path / "ran").read_text() == "once\n"


def test_stream_that_dies_is_no_status(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    with ssh.stream(["sleep", "20"]) as stream:
        server.signal_sessions(signal.SIGKILL)
        with pytest.raises(Unreachable):
            stream.finish(10)


def test_frozen_server_is_bounded(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server, stale_s=1.0)
    ssh.run(["true"])
    assert server.process
    os.kill(server.process.pid, signal.SIGSTOP)
    server.signal_sessions(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="did not answer|not"):
        ssh.run(["true"], timeout_s=3)
    assert time.monotonic() - began < 6


def test_frozen_while_a_command_runs_is_time_over(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    threading.Timer(1.0, server.signal_sessions, [signal.SIGSTOP]).start()
    with pytest.raises(TimeOver):
        ssh.run(["sleep", "20"], timeout_s=3)


def test_fifty_megabytes_through_a_stream(bench: Bench) -> None:
    ssh = bench.exec(bench.serve())
    block, blocks = os.urandom(1 << 20), 50
    got = bytearray()
    with ssh.stream(["cat"]) as stream:

        def write() -> None:
            for _ in range(blocks):
                stream.stdin.write(block)
            stream.stdin.close()

        writer = threading.Thread(target=write)
        writer.start()
        while data := stream.stdout.read(1 << 18):
            got += data
        writer.join(30)
        assert stream.finish(20).returncode == 0
    assert len(got) == blocks << 20 and got == block * blocks


# ---- who answers there ----


def test_changed_host_key_shows_both(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    ssh.run(["true"])
    old = _fingerprint(server.where / "host_key.pub")
    ssh.disconnect()
    server.stop()
    server.new_host_key()
    server.start()
    new = _fingerprint(server.where / "host_key.pub")
    for accept_new in (True, False):  # `up` does not accept a changed key either
        with pytest.raises(HostKeyChanged) as caught:
            bench.exec(server, accept_new=accept_new).run(["true"], timeout_s=20)
        assert old in caught.value.recorded and new in caught.value.shown
        assert old in caught.value.sentence() and new in caught.value.sentence()


def test_unknown_host_key_is_refused_after_up(bench: Bench) -> None:
    with pytest.raises(HostKeyChanged, match="no host key is recorded"):
        bench.exec(bench.serve(), accept_new=False).run(["true"], timeout_s=20)


def test_first_contact_settles_on_the_box_id(bench: Bench) -> None:
    server = bench.serve()
    first = bench.exec(server, identity=None)
    first.run(["true"])
    assert not first.known_hosts.exists(), "nothing is recorded under an address that another box may get"
    first.settle("box7")
    assert first.known_hosts.read_text().startswith("outlive-box7 ")
    first.run(["true"])
    bench.exec(server, identity="box7", accept_new=False).run(["true"])
    server.stop()
    server.new_host_key()
    server.start()
    again = bench.exec(server, identity=None)
    again.run(["true"])  # another box at the old address is a first contact like any other
    with pytest.raises(HostKeyChanged, match="calls itself box7"):
        again.settle("box7")


def test_alias_reads_the_users_files_and_writes_ours(bench: Bench) -> None:
    server = bench.serve()
    theirs = server.where / "user_known_hosts"
    theirs.write_text("other.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH\n")
    before = theirs.read_text(), server.config.read_text()
    ssh = bench.exec(server, address=parse("testbox"), identity=None)
    ssh.run(["true"])
    assert (theirs.read_text(), server.config.read_text()) == before
    assert "127.0.0.1" in ssh.known_hosts.read_text()
    bench.exec(server, address=parse("testbox"), accept_new=False).run(["true"])
    # And a key that only the user knows is enough.
    theirs.write_text(ssh.known_hosts.read_text())
    ssh.known_hosts.unlink()
    bench.exec(server, address=parse("testbox"), accept_new=False, multiplex="no").run(["true"])


def test_login_lost(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    ssh.prove_fresh()
    ssh.run(["true"])
    server.authorized.write_text("")
    assert ssh.run(["printf", "still"]).stdout == b"still", "the shared connection lives on"
    with pytest.raises(LoginRefused) as caught:
        ssh.prove_fresh()
    assert caught.value.login_lost and ["outlive", "pull"] in caught.value.next
    ssh.disconnect()
    with pytest.raises(LoginRefused) as caught:
        ssh.prove_fresh()
    assert not caught.value.login_lost


def test_our_own_key_is_offered_once_and_then_tried(bench: Bench) -> None:
    server = bench.serve()
    server.authorized.write_text("")
    ssh = bench.exec(server)
    with pytest.raises(LoginRefused):
        ssh.run(["true"], timeout_s=20)
    offered = ssh.offer_key()
    assert offered.public_line.startswith("ssh-ed25519 ") and "\n" not in offered.public_line
    assert offered.path.stat().st_mode & 0o777 == 0o600
    assert ssh.offer_key() == offered
    assert server.authorized.read_text() == "", "nobody asked us to place it"
    server.authorized.write_text(offered.public_line + "\n")
    ssh.run(["true"], timeout_s=20)
    server.allow(server.client_key)
    ssh.disconnect()
    ssh.run(["true"], timeout_s=20)  # the user's own keys are still tried


@pytest.mark.parametrize(
    ("extra", "kind", "match"),
    [("", Unreachable, "nothing listens"), ("name", Unreachable, "does not resolve")],
)
def test_nobody_there(bench: Bench, extra: str, kind: type[PlaceError], match: str) -> None:
    server = bench.serve()
    server.stop()
    address = parse("root@no-such-host.invalid") if extra else server.address
    ssh = bench.exec(server, address=address)
    with pytest.raises(kind, match=match) as caught:
        ssh.run(["true"], timeout_s=20)
    assert caught.value.exit_code == 4 and caught.value.why


@pytest.mark.parametrize(
    ("greeting", "match"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3, "not an ssh server|closed the connection"),
        (b"", "closed the connection"),
    ],
)
def test_something_else_answers(bench: Bench, greeting: bytes, match: str) -> None:
    server = bench.serve()
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = other.accept()
                    near.sendall(greeting)
                    near.close()

        threading.Thread(target=answer, daemon=True).start()
        address = dataclasses.replace(server.address, port=other.getsockname()[1])
        with pytest.raises(Unreachable, match=match):
            bench.exec(server, address=address).run(["true"], timeout_s=20)
        other.shutdown(socket.SHUT_RDWR)


def test_silent_port_is_bounded(bench: Bench) -> None:
    server = bench.serve()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = dataclasses.replace(server.address, port=mute.getsockname()[1])
        began = time.monotonic()
        with pytest.raises(Unreachable):
            bench.exec(server, address=address).run(["true"], timeout_s=2)
        assert time.monotonic() - began < 4


# ---- what a person gets ----


def test_argv_for_user_really_logs_in(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    ssh.run(["true"])
    argv = ssh.argv_for_user(tty=False)
    done = subprocess.run([*argv, "echo", "hello"], capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    assert done.stdout == b"hello\n"
    assert "BatchMode=yes" not in argv


def test_tunnel_carries_bytes(bench: Bench) -> None:
    server = bench.serve()
    ssh = bench.exec(server)
    ssh.run(["true"])
    with socket.create_server(("127.0.0.1", 0)) as far, socket.create_server(("127.0.0.1", 0)) as probe:
        near_port, far_port = probe.getsockname()[1], far.getsockname()[1]
        probe.close()
        argv = ssh.argv_for_user(forwards=[f"{near_port}:127.0.0.1:{far_port}"])
        tunnel = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            until = time.monotonic() + 15
            while True:
                try:
                    near = socket.create_connection(("127.0.0.1", near_port), 1)
                    break
                except OSError:
                    assert time.monotonic() < until, tunnel.stderr
                    time.sleep(0.05)
            far.settimeout(10)
            end, _ = far.accept()
            with near, end:
                near.sendall(b"through")
                assert end.recv(7) == b"through"
        finally:
            tunnel.kill()
            tunnel.communicate()
    with pytest.raises(ValueError, match="not a forward"):
        ssh.argv_for_user(forwards=["8888"])


def test_works_without_sftp(bench: Bench, tmp_path: Path) -> None:
    """The servers above have no sftp subsystem at all; files go through commands."""
    server = bench.serve()
    assert "Subsystem" not in (server.where / "sshd_config").read_text()
    files = ExecFiles(bench.exec(server))
    files.write(f"{tmp_path}/x/名", b"\x00\xff")
    assert files.read(f"{tmp_path}/x/名") == b"\x00\xff"


def test_a_cut_write_publishes_nothing(bench: Bench, tmp_path: Path) -> None:
    server = bench.serve()
    files = ExecFiles(bench.exec(server), timeout_s=15)
    target = tmp_path / "d" / "f"
    files.write(str(target), b"the old one")
    threading.Timer(0.15, server.signal_sessions, [signal.SIGKILL]).start()
    with contextlib.suppress(PlaceError):
        for _ in range(50):
            files.write(str(target), os.urandom(1 << 20) * 20)
    content = target.read_bytes()
    assert content == b"the old one" or len(content) == 20 << 20


def test_a_full_disk_is_named_and_keeps_the_old_file(bench: Bench, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        files = ExecFiles(bench.exec(bench.serve()))
        files.write(f"{small}/f", b"old")
        with pytest.raises(OSError, match="no space left"):
            files.write(f"{small}/f", os.urandom(200_000))
        assert files.list(str(small)) == ["f"] and files.read(f"{small}/f") == b"old"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _fingerprint(public_key: Path) -> str:
    done = subprocess.run(["ssh-keygen", "-l", "-f", str(public_key)], capture_output=True, check=True)
    return done.stdout.decode().split()[1]
