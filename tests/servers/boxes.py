"""Real sshd boxes for tests, started by testbed/box.sh. Fixtures: tests/conftest.py. Guide: docs/guides/testbed.md.

Each test process keeps its boxes in a directory of its own, so parallel workers and parallel checkouts never meet, and
ends only what stands in there. What a killed test process left behind is ended by the next one on the machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

TESTBED = pathlib.Path(__file__).resolve().parents[2] / "testbed"
PREFIX = "outlive-boxes-"


class BedError(AssertionError):
    """The bed itself failed: the message is what box.sh said."""


class Box:
    """One running box. Attributes that may be relied on:

    name, address, port, user; key (private key file), ssh_config (defines a host called `name`), known_hosts;
    root (the box's / as this machine sees it), home (its user's, likewise), disk (where its own disk is mounted here);
    cgroup (controller -> directory; with cgroup v2 all name the same one).
    """

    def __init__(self, name: str, boxes_dir: pathlib.Path) -> None:
        self.name = name
        self._boxes_dir = boxes_dir
        facts = dict(line.split("=", 1) for line in self._box_sh("show").splitlines())
        self.address = facts["address"]
        self.port = int(facts["port"])
        self.user = facts["user"]
        self.key = pathlib.Path(facts["key"])
        self.directory = pathlib.Path(facts["dir"])
        self.ssh_config = pathlib.Path(facts["ssh_config"])
        self.known_hosts = self.directory / "known_hosts"
        self.root = self.directory / "root"
        self.disk = self.directory / "disk"
        self.layers = facts["layers"]
        self.home = self.root / ("root" if self.user == "root" else "home/" + self.user)
        directories = [pathlib.Path(each) for each in facts["cgroup_dirs"].split()]
        self.cgroup: dict[str, pathlib.Path] = {}
        for controller in ("memory", "cpu", "pids"):
            named = [each for each in directories if controller in each.parent.name.split(",")]
            self.cgroup[controller] = (named or directories)[0]

    def __repr__(self) -> str:
        return f"Box({self.name}, {self.address}:{self.port})"

    def _box_sh(self, verb: str, *words: str) -> str:
        return box_sh(self._boxes_dir, verb, self.name, *words)

    @property
    def url(self) -> str:
        return f"ssh://{self.user}@{self.address}:{self.port}"

    @property
    def pid1(self) -> int:
        """The box's first process, as a pid of this machine."""
        return int((self.directory / "pid1").read_text())

    def ssh_argv(self, *words: str) -> list[str]:
        """`ssh` to this box with the given options and command, without touching the user's configuration."""
        # ssh takes the first value it sees: the defaults come after what the caller wants.
        return ["ssh", "-F", str(self.ssh_config), *words]

    def ssh(
        self,
        command: str,
        *,
        check: bool = False,
        input: Any | None = None,
        options: Sequence[str] = (),
        timeout_s: float = 30,
        text: bool = True,
    ) -> subprocess.CompletedProcess[Any]:
        """Run `command` in the box's shell. `check`: a status other than 0 is an error that shows what was printed."""
        argv = self.ssh_argv(*options, "-o", "ConnectTimeout=10", self.name, command)
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        done = subprocess.run(argv, capture_output=True, text=text, timeout=timeout_s, check=False, **stdin)
        if check and done.returncode:
            raise BedError(f"{self.name}: {command!r} ended {done.returncode}: {done.stdout}{done.stderr}")
        return done

    # life and death

    def kill(self) -> None:
        """Everything in the box dies at once, as in a preemption. The disk stays."""
        self._box_sh("kill")

    def start(self) -> None:
        """Start a killed box: same disk and host key, new pid 1."""
        self._box_sh("start")

    def restart(self) -> None:
        """What a container restart is: kill, then start. The boot id is the host's and does not change."""
        self._box_sh("restart")

    def empty(self) -> None:
        """The box comes back from its image: new host key, nothing on its disk; volumes stay."""
        self._box_sh("empty")

    def freeze(self) -> None:
        """Connections hang (SIGSTOP to every sshd), the work goes on."""
        self._box_sh("freeze")

    def thaw(self) -> None:
        self._box_sh("thaw")

    def down(self) -> None:
        self._box_sh("down")

    # the disk

    def free_bytes(self) -> int:
        """Bytes that are free on the box's own disk."""
        at = os.statvfs(str(self.disk))
        return at.f_bavail * at.f_frsize

    def free_inodes(self) -> int:
        return os.statvfs(str(self.disk)).f_favail

    def fill_disk(self, leave_bytes: int = 0) -> None:
        """Fill the disk from outside (not charged to the box's memory) until at most `leave_bytes` can be written."""
        filler = self.root / "var/tmp/.filler"
        with open(str(filler), "ab") as out:
            step = 1 << 20
            while step >= 512:
                try:
                    room = self.free_bytes() - leave_bytes
                    if room < step:
                        step //= 2
                        continue
                    out.write(b"\1" * step)
                    out.flush()
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
        if leave_bytes == 0 and self.free_bytes():
            raise BedError(f"{self.name} still has {self.free_bytes()} free bytes")

    def exhaust_inodes(self, leave: int = 0) -> None:
        """Create empty files until at most `leave` more can be made."""
        crowd = self.root / "var/tmp/.crowd"
        crowd.mkdir(exist_ok=True)
        number = 0
        while self.free_inodes() > leave:
            try:
                os.close(os.open(str(crowd / str(number)), os.O_CREAT | os.O_WRONLY))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
            number += 1

    def relieve_disk(self) -> None:
        """Undo `fill_disk` and `exhaust_inodes`."""
        filler = self.root / "var/tmp/.filler"
        if filler.exists():
            filler.unlink()
        shutil.rmtree(str(self.root / "var/tmp/.crowd"), ignore_errors=True)

    def turn_read_only(self) -> None:
        """What ext4 does after an error of its disk: every write is refused from now on, also to files that are open.

        The disk must be ext4. As on a real machine nothing but `repair` brings it back.
        """
        self._box_sh("read-only")

    def power_cut(self) -> None:
        """What was not synced to its ext4 disk is lost, and everything ends at once; then the box starts again."""
        self._box_sh("power-cut")

    def repair(self) -> None:
        """The owner's remedy: everything ends, the disk is checked and mounted anew, the box starts."""
        self._box_sh("repair")

    # what the kernel counted

    def oom_kills(self) -> int:
        """How many processes of this box the kernel has killed for memory."""
        for name in ("memory.oom_control", "memory.events"):
            path = self.cgroup["memory"] / name
            if path.exists():
                return int(dict(line.split() for line in path.read_text().splitlines())["oom_kill"])
        raise BedError("no oom_kill counter under {}".format(self.cgroup["memory"]))


class PowerDisk:
    """A small ext4 file system at ``place`` that can lose its power: what was not synced is gone when it is back."""

    def __init__(self, image: pathlib.Path, place: pathlib.Path, size_mb: int = 64) -> None:
        self.image, self.place = image, place
        place.mkdir()
        with open(str(image), "wb") as out:
            out.truncate(size_mb << 20)
        self._run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        self._run("mount", "-o", "loop", str(image), str(place))

    @staticmethod
    def _run(*words: str) -> None:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        if done.returncode:
            raise BedError("{}: {}".format(" ".join(words), done.stdout.decode("utf-8", "replace")))

    def cut(self) -> None:
        """No byte reaches the disk from now on; every write and sync is refused. Then `boot`."""
        fd = os.open(str(self.place), os.O_RDONLY)
        try:
            fcntl.ioctl(fd, 0x8004587D, struct.pack("I", 2))  # EXT4_IOC_SHUTDOWN without a flush of the journal
        finally:
            os.close(fd)

    def users(self) -> list[int]:
        """Processes, other than this one, that have a file of it open or stand in it."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                names = [process / "cwd", process / "exe", *(process / "fd").iterdir()]
                held = any(os.readlink(str(each)).startswith(str(self.place) + "/") for each in names)
            except OSError:
                continue  # it has ended
            if held and int(process.name) != os.getpid():
                found.append(int(process.name))
        return found

    def boot(self) -> None:
        """End what is left on it and mount it again: the file system repairs itself from its own journal."""
        for _ in range(300):
            for pid in self.users():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it has ended since
            done = subprocess.run(["umount", str(self.place)], stderr=subprocess.PIPE, timeout=60)
            if done.returncode == 0:
                break
            time.sleep(0.1)  # a process that was killed lets go of its files a moment later
        else:
            raise BedError(done.stderr.decode("utf-8", "replace"))
        self._run("mount", "-o", "loop", str(self.image), str(self.place))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.place)], timeout=60)


def box_sh(boxes_dir: pathlib.Path, *words: str) -> str:
    """Run testbed/box.sh with its state in `boxes_dir`; its stdout. BedError says what it said."""
    environment = dict(os.environ, OUTLIVE_TESTBED_BOXES=str(boxes_dir))
    done = subprocess.run(
        [str(TESTBED / "box.sh"), *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,  # the first `up` on a machine builds the base
        check=False,
    )
    if done.returncode:
        raise BedError("box.sh {}: {}".format(" ".join(words), done.stderr.strip() or done.stdout.strip()))
    return done.stdout


class Bed:
    """The boxes of one test process."""

    def __init__(self) -> None:
        end_abandoned()
        self.boxes_dir = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
        (self.boxes_dir / "owner").write_text(_identity("self"))
        self._made = 0

    def up(self, name: str | None = None, **options: Any) -> Box:
        """Start a box. Options are those of box.sh with underscores: `memory_mb=256, no_rsync=True, python="3.8"`.

        `env` and `volume` take a value or a list. The address (127.0.3.x) and a free port are chosen if not given.
        """
        self._made += 1
        name = name or f"box-{os.getpid()}-{self._made}"
        options.setdefault("address", f"127.0.3.{random.randrange(10, 250)}")
        if "netns" not in options and "port" not in options:
            options["port"] = free_port(options["address"])
        words: list[str] = []
        for key, value in options.items():
            option = "--" + key.replace("_", "-")
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                for each in value if isinstance(value, (list, tuple)) else [value]:
                    words += [option, str(each)]
        box_sh(self.boxes_dir, "up", name, *words)
        return Box(name, self.boxes_dir)

    def down(self, box: Box) -> None:
        """End this box; fine if the test has ended it already."""
        if box.directory.exists():
            box.down()

    def close(self) -> None:
        box_sh(self.boxes_dir, "down", "--all")
        shutil.rmtree(str(self.boxes_dir))


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def python_prefix(version: str) -> pathlib.Path | None:
    """Where a box's `python=` option would take this version from; None if this machine has none."""
    for place in (os.environ.get("PYENV_ROOT"), os.path.expanduser("~/.pyenv"), "/root/.pyenv"):
        for prefix in sorted(pathlib.Path(place or "/nonexistent").glob(f"versions/{version}.*")):
            if os.access(str(prefix / "bin" / ("python" + version)), os.X_OK):
                return prefix
    return None


def _identity(pid: str) -> str:
    """pid, start ticks and pid namespace: enough to tell a process from a later one with the same number."""
    with open(f"/proc/{pid}/stat") as stat:
        before, _, after = stat.read().rpartition(")")
    return "{} {} {}".format(before.split()[0], after.split()[19], os.readlink("/proc/self/ns/pid"))


def end_abandoned(below: pathlib.Path | None = None) -> None:
    """End the boxes of test processes that died without doing so (whose state is below the temporary directory)."""
    for owner in (below or pathlib.Path(tempfile.gettempdir())).glob(PREFIX + "*/owner"):
        try:
            pid, _, namespace = owner.read_text().split()
            if namespace != os.readlink("/proc/self/ns/pid"):
                continue  # not ours to judge: its pids mean nothing here
            if os.path.exists("/proc/" + pid) and _identity(pid) == owner.read_text():
                continue
            owner.rename(owner.with_name("abandoned"))  # the one who renames it cleans it
        except (FileNotFoundError, ProcessLookupError, ValueError):
            continue
        box_sh(owner.parent, "down", "--all")
        shutil.rmtree(str(owner.parent), ignore_errors=True)
