"""A private sshd on 127.0.0.1 for one test: own host key, own authorized_keys, own home; nothing of the user's."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from outlive.transport.address import Address, parse


class Sshd:
    """One server. ``extra`` are lines of sshd_config; ``home`` is what HOME is after a login."""

    def __init__(self, where: Path, extra: str = "") -> None:
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        if not os.path.exists(program):
            raise FileNotFoundError("sshd is missing: apt-get install openssh-server")
        self._program, self.where, self.extra = program, where, extra
        self.home = where / "home"
        self.home.mkdir(parents=True)
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.client_key = where / "client_key"
        self.authorized = where / "authorized_keys"
        self.log = where / "sshd.log"
        keygen(self.client_key)
        self.allow(self.client_key)
        self.new_host_key()
        # The client's configuration: the tests' key only, nothing from the machine they run on.
        self.config = where / "ssh_config"
        self.config.write_text(
            f"Host *\n  IdentityFile {self.client_key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {where}/user_known_hosts\n"
            f"Host testbox\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
        )

    @property
    def address(self) -> Address:
        return parse(f"{getpass.getuser()}@127.0.0.1:{self.port}")

    def allow(self, *private_keys: Path) -> None:
        self.authorized.write_text("".join(k.with_name(k.name + ".pub").read_text() for k in private_keys))

    def new_host_key(self) -> None:
        for old in self.where.glob("host_key*"):
            old.unlink()
        keygen(self.where / "host_key")

    def start(self) -> None:
        if os.getuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        config = self.where / "sshd_config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.where}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.authorized}\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"PrintMotd no\nSetEnv HOME={self.home}\nUseDNS no\n{self.extra}\n"
        )
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self._program, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError(f"sshd did not start: {self.log.read_text()[-500:]}")
            time.sleep(0.02)

    def sessions(self) -> list[int]:
        """Return the processes below the listener: one tree per connection."""
        assert self.process
        return _descendants(self.process.pid)

    def signal_sessions(self, number: int) -> None:
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """End the server and every session, frozen or not."""
        if self.process is None:
            return
        below = self.sessions()
        self.process.kill()
        self.process.wait()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process = None


@contextlib.contextmanager
def serving(where: Path, extra: str = "") -> Iterator[Sshd]:
    """Give a running server that ends with the block."""
    server = Sshd(where, extra)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def keygen(path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, stdin=subprocess.DEVNULL
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found, queue = [], [root]
    while queue:
        parent = queue.pop()
        children = [pid for pid, its in parents.items() if its == parent]
        found += children
        queue += children
    return found
