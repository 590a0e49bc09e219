"""Boxes of the test bed for the soak: real sshd, a root and a disk of their own, reached through a line that can fail.

Linux and root are needed. What a killed soak left behind is ended by the next one (``servers.boxes.end_abandoned``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rounds import END_S, Bench, Case

from outlive import errors
from outlive.runs.adopt import adopt
from outlive.runs.home import Home
from outlive.runs.place import Place
from outlive.runs.pull import pull
from outlive.runs.up import up
from outlive.runs.watch import once
from outlive.wire.names import BoxFiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

SHAPE: dict[str, Any] = {"disk": "ext4:96:6000", "memory_mb": 256, "cpu_percent": 200}
GONE = (1 << 31) - 1
"""A pid that nobody has."""
BAD_WORDS = re.compile(
    r"\b(run|box|machine|work)( that)? (is|was|has|has been) (gone|lost|failed|dead|ended)\b|preempted"
)
"""What must not be said of a run whose box does not answer."""


class Site:
    """One box with its line and what a client knows of it."""

    def __init__(self, bed: Any, home: Home, config: Path, name: str) -> None:
        from servers.links import CutLink

        self.box = bed.up(**SHAPE)
        self.link = CutLink(self.box.address, self.box.port)
        self.url = f"ssh://{self.box.user}@{self.link.address}:{self.link.port}"
        config.write_text(f"Host *\n  IdentityFile {self.box.key}\n  IdentitiesOnly yes\n  IdentityAgent none\n")
        self.place: Place = up(home, [self.url], name=name, budget_s=2.0).place
        self.files = BoxFiles(str(self.box.root) + self.place.box.root)

    def pid(self, pid: int) -> int:
        """Return the pid on this machine of a process that the box knows by ``pid``."""
        for text in (self.box.cgroup["pids"] / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{text}/status").read_text()
                if re.search(rf"^NSpid:.*\t{pid}$", status, re.MULTILINE):
                    return int(text)
        return GONE

    def heal(self) -> None:
        """Let the line carry everything again. What was in it is lost: its connections end."""
        self.link.set(cut_up=0, cut_down=0, stall=0, drop_up=0, drop_down=0, rate_kbyte=0)
        self.link.cut()

    def end(self) -> None:
        self.place.close()
        self.link.close()
        if self.box.directory.exists():
            self.box.down()


class Boxes(Bench):
    """A bench whose box is reached over ssh."""

    kind = "boxes"
    pauses_s = (0.3, 0.9, 2.0)
    step_s = 0.1

    def begin(self) -> None:
        """Make the box and reach it."""
        from servers.boxes import Bed

        self.runtime = Path(f"/tmp/soak-{os.getpid()}")  # short: a socket's path has a limit
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        os.environ["XDG_RUNTIME_DIR"] = str(self.runtime)
        self.config = self.base / "ssh_config"
        self.home = Home(self.home.dir, self.config)
        self.sites: list[Site] = []
        self.bed = Bed()
        self.use(self.another("one"))

    def another(self, name: str) -> Site:
        """Make one more box that this client knows."""
        self.sites.append(Site(self.bed, self.home, self.config, name))
        return self.sites[-1]

    def use(self, site: Site) -> None:
        """Let the rounds look at this box from here on."""
        self.site, self.place, self.files = site, site.place, site.files

    def pid(self, pid: int) -> int:
        return self.site.pid(pid)

    def adopt(self, home: Home) -> Place:
        return adopt(home, [self.site.url], budget_s=2.0).place

    def masters(self) -> list[int]:
        """Return the pids of this client's shared connections."""
        found = []
        for socket in (self.runtime / "outlive").glob("*"):
            if socket.is_socket():
                argv = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "check", "any"]
                with contextlib.suppress(subprocess.TimeoutExpired):
                    said = subprocess.run(argv, capture_output=True, text=True, timeout=5).stderr
                    found += [int(pid) for pid in re.findall(r"pid=(\d+)", said)]
        return found

    def end(self) -> None:
        for pid in self.masters():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for site in self.sites:
            site.end()
        self.bed.close()
        shutil.rmtree(self.runtime, ignore_errors=True)
        shutil.rmtree(self.base, ignore_errors=True)


class Reach:
    """What the faults of a line do with a round: verbs that may fail, and what must hold when they do."""

    def __init__(self, case: Case) -> None:
        assert isinstance(case.bench, Boxes)
        self.case, self.bench = case, case.bench
        self.began = time.monotonic()

    @property
    def site(self) -> Site:
        return self.bench.site

    def attempt(self, verb: Any) -> bool:
        """Do something over a line that may fail; whether it came through. Words about the run are checked."""
        known = self.case.record.state if self.case.run else ""
        try:
            verb()
            return True
        except (errors.PlaceError, errors.TimeOver) as error:
            if self.case.found.detect_s is None:
                self.case.found.detect_s = round(time.monotonic() - self.began, 3)
            said = " ".join([error.sentence(), error.safe])
            if BAD_WORDS.search(said):
                self.case.found.false_words.append(f"said over a broken line: {said}")
            if known and self.case.record.state != known:
                self.case.found.false_words.append(f"no answer turned {known} into {self.case.record.state}")
            return False

    def look(self, limit_s: float = 3.0) -> bool:
        """Look at the run; whether there was an answer."""
        return self.attempt(lambda: once(self.case.home, self.case.record, timeout_s=limit_s))

    def pull(self, target: Path) -> bool:
        """Pull; whether it came through. Nothing half may have its name."""
        through = self.attempt(lambda: pull(self.case.home, self.case.run, to=target))
        if not through:
            import work

            for path in target.glob("ckpt/step-*.json"):
                if work.load(str(path)) is None:
                    self.case.found.false_words.append(f"{path.name} is half here after a pull that was cut")
        return through

    def settle(self) -> None:
        """After the fault the box has to answer again; how long that took."""
        began = time.monotonic()
        while not self.look(20.0):
            if time.monotonic() - began > END_S:
                raise errors.CheckFailed("the box does not answer although nothing is in its way")
            time.sleep(0.2)
        self.case.found.recover_s = round(time.monotonic() - began, 3)


__all__ = ["Boxes", "Reach", "Site"]
