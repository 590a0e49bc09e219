"""A box on this machine with one run, for the benchmarks that look at our processes beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from outlive.runs import demo_work
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage
from outlive.runs.place import Place
from outlive.runs.run import run
from outlive.runs.up import up
from outlive.wire.names import BoxFiles, RunFiles

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class OneBox:
    """The box, who looks at it, and its run."""

    base: Path
    home: Home
    place: Place
    box: BoxFiles
    name: str
    link: Any = None
    """The line to it (`servers.links.CutLink`), where it is reached over ssh."""
    shape: Any = None
    """The box of the test bed (`servers.boxes.Box`), likewise."""

    @property
    def files(self) -> RunFiles:
        return self.box.run(self.name)


@contextmanager
def one_box(work: str, **job: Any) -> Iterator[OneBox]:
    """Yield a box that runs ``work``, a Python program; everything of it ends with the block."""
    with TemporaryDirectory(prefix="outlive-bench-") as text:
        base = Path(text)
        box = BoxFiles(text + "/box")
        project = base / "project"
        project.mkdir()
        (project / "work.py").write_text(work)
        home = Home(base / "client")
        try:
            place = up(home, ["local:"], root=str(base / "box"), python=sys.executable, budget_s=2.0).place
            name = run(home, Job("work", (Stage("main", ("python", "work.py")),), project, **job), place).run
            yield OneBox(base, home, place, box, name)
        finally:
            demo_work.end_processes(box)


def boxes_here() -> bool:
    """Whether this machine can have boxes with an sshd of their own; says so if not."""
    if sys.platform.startswith("linux") and os.geteuid() == 0:
        return True
    print("  not measured over ssh: boxes need root on Linux")
    return False


@contextmanager
def ssh_box(work: str, disk_mb: int = 96, **job: Any) -> Iterator[OneBox]:
    """Yield a box of the test bed that is reached over ssh through a line that can be cut."""
    sys.path.insert(0, str(ROOT / "tests"))
    from servers.boxes import Bed
    from servers.links import CutLink

    runtime = Path(mkdtemp(prefix="o-", dir="/tmp"))  # short: a socket's path has a limit
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    bed, link = Bed(), None
    try:
        with TemporaryDirectory(prefix="outlive-bench-") as text:
            base = Path(text)
            shape = bed.up(disk=f"ext4:{disk_mb}:6000", memory_mb=256)
            link = CutLink(shape.address, shape.port)
            project, config = base / "project", base / "ssh_config"
            project.mkdir()
            (project / "work.py").write_text(work)
            config.write_text(f"Host *\n  IdentityFile {shape.key}\n  IdentitiesOnly yes\n  IdentityAgent none\n")
            home = Home(base / "client", config)
            place = up(home, [f"ssh://{shape.user}@{link.address}:{link.port}"], budget_s=2.0).place
            name = run(home, Job("work", (Stage("main", ("python", "work.py")),), project, **job), place).run
            files = BoxFiles(str(shape.root) + place.box.root)
            yield OneBox(base, home, place, files, name, link, shape)
    finally:
        for socket in runtime.rglob("*"):
            if socket.is_socket():
                words = ["ssh", "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "exit", "any"]
                subprocess.run(words, capture_output=True, timeout=10, check=False)
        if link is not None:
            link.close()
        bed.close()
        os.environ.pop("XDG_RUNTIME_DIR")
        if before is not None:
            os.environ["XDG_RUNTIME_DIR"] = before
        shutil.rmtree(runtime, ignore_errors=True)


def load() -> str:
    """Return how busy this machine was in the last minute, for a figure's side."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
