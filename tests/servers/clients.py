"""A client for tests on real boxes: its own state directory, ssh configuration and project, driven as a library."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlive.ledger import Box, Run
from outlive.runs import demo_work
from outlive.runs.ask import stop
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage
from outlive.runs.look import BoxLook, look
from outlive.runs.place import Place, open_place
from outlive.runs.run import Started, run
from outlive.runs.up import UpResult, up
from outlive.runs.watch import Seen, once
from outlive.wire.names import BoxFiles

QUICK = {"scan_s": 0.2, "sample_s": 0.3, "grace_s": 2.0}
"""Limits of a job that make a test short."""

COUNTER = """\
import json, os, time
os.makedirs("ckpt", exist_ok=True)
done = sorted(os.listdir("ckpt"), key=lambda n: int(n[5:-5]) if n.endswith(".json") else -1)
step = json.load(open("ckpt/" + done[-1]))["step"] if done and done[-1].endswith(".json") else 0
print("begins at", step, flush=True)
last = int(os.environ.get("LAST", "30"))
while step < last:
    step += 1
    time.sleep(float(os.environ.get("STEP_S", "0.1")))
    print("step %d loss %.3f" % (step, 3 / step), flush=True)
    if step % 5 == 0:
        with open("ckpt/.aside", "w") as out:
            json.dump({"step": step}, out)
        os.rename("ckpt/.aside", "ckpt/step-%d.json" % step)
with open("result.json", "w") as out:
    json.dump({"step": step}, out)
"""
"""Counts to LAST, saves at every fifth step, goes on from the newest save. Python 3.8 and later."""


class Client:
    """One client. ``home`` is its state, ``project`` the directory that it pushes."""

    def __init__(self, directory: Path, key: Path | None = None) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.config = directory / "ssh_config"
        self.config.write_text("")
        self.home = Home(directory / "state", self.config)
        self.project = directory / "project"
        self.project.mkdir(exist_ok=True)
        if key is not None:
            self.use_key(key)

    def use_key(self, key: Path) -> None:
        self.config.write_text(f"Host *\n  IdentityFile {key}\n  IdentitiesOnly yes\n")

    def know(self, box: Any, alias: str = "") -> None:
        """Put the box into this client's ssh configuration, under its name or an alias."""
        text = box.ssh_config.read_text().replace(f"Host {box.name}\n", f"Host {alias or box.name}\n")
        self.config.write_text(text + self.config.read_text())

    def up(self, box: Any, *words: str, **options: Any) -> UpResult:
        """``up`` with these words, or the box's url."""
        if not self.config.read_text():
            self.use_key(box.key)
        return up(self.home, list(words) or [box.url], **options)

    def place(self, name: str = "") -> Place:
        return open_place(self.home, self.home.box_of(name))

    def job(self, name: str = "count", *command: str, **changes: Any) -> Job:
        """A job that runs COUNTER from the project, unless a command says otherwise."""
        if not command:
            (self.project / "train.py").write_text(COUNTER)
        limits = {**QUICK, **changes.pop("limits", {})}
        job = Job(
            name=name,
            stages=(Stage("main", command or ("python", "train.py")),),
            project=self.project,
            limits=limits,
            retry_wait_s=0.2,
            checkpoints="ckpt",
        )
        return replace(job, **changes)

    def run(self, job: Job, name: str = "", **options: Any) -> Started:
        return run(self.home, job, self.place(name), **options)

    def record(self, run_: str) -> Run:
        return self.home.run_of(run_)

    def box(self, name: str = "") -> Box:
        return self.home.box_of(name)

    def once(self, run_: str, **options: Any) -> Seen:
        return once(self.home, self.record(run_), **options)

    def look(self, name: str = "", **options: Any) -> BoxLook:
        return look(self.home, self.box(name), **options)

    def status(self, run_: str, wake_it: bool = False) -> dict[str, Any]:
        found = self.once(run_, wake_it=wake_it).status
        assert found is not None
        return found

    def until(
        self, run_: str, test: Callable[[dict[str, Any]], Any], timeout_s: float = 120.0, wake_it: bool = False
    ) -> dict[str, Any]:
        """Look until the test is true of the status, and return it; AssertionError with the last one after the time."""
        end = time.monotonic() + timeout_s
        while True:
            status = self.status(run_, wake_it=wake_it)
            if test(status):
                return status
            assert time.monotonic() < end, f"after {timeout_s} s: {status}"
            time.sleep(0.1)

    def stop(self, run_: str) -> Any:
        return stop(self.home, self.record(run_), grace_s=1.0, wait_s=15.0)


def work_of(box: Any, client: Client, run_: str) -> Path:
    """The run's work directory, as this machine sees it."""
    return Path(box.root) / client.box().root.lstrip("/") / ".outlive" / "runs" / run_ / "work"


def pids_of(box: Any, word: str = "") -> list[int]:
    """Pids (of this machine) of the box's processes that have the word in their command line."""
    found = []
    for text in (box.cgroup["pids"] / "cgroup.procs").read_text().split():
        try:
            line = Path(f"/proc/{text}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if word in line:
            found.append(int(text))
    return found


def end_sessions(box: Any) -> int:
    """Kill every ssh session of the box, not its listener; how many."""
    listener = box.pid1
    count = 0
    for pid in pids_of(box, "sshd"):
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if pid != listener and "listener" not in Path(f"/proc/{pid}/cmdline").read_text() and parent:
                os.kill(pid, 9)
                count += 1
        except (OSError, ProcessLookupError):
            continue
    return count


def on_this_machine(tmp_path: Path) -> Iterator[Client]:
    """Yield a client whose one box is a directory here; what runs on it is ended afterwards."""
    made = Client(tmp_path / "client")
    up(made.home, ["local:"], root=str(tmp_path / "box"), budget_s=2.0)
    yield made
    demo_work.end_processes(BoxFiles(str(tmp_path / "box")))
