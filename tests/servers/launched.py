"""Launch files written into a directory and started as a person would, with this interpreter's launchers on PATH."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from outlive.launch.description import Launch
from outlive.launch.kinds import render

LIMIT_S = 240

TRAIN = """
import json, os, pathlib, signal, sys, time
import torch, torch.distributed as dist

steps, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
crash_at = int(sys.argv[3]) if len(sys.argv) > 3 else -1
pause_s = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
dist.init_process_group("gloo")
state = folder / "state.json"
done = json.loads(state.read_text()) if state.exists() else {"step": 0, "starts": [], "worlds": []}
if dist.get_rank() == 0:
    done["starts"].append(done["step"])
    done["worlds"].append(dist.get_world_size())
dist_last = dist.get_rank() == dist.get_world_size() - 1
dist.barrier()
while done["step"] < steps:
    if done["step"] == crash_at and dist.get_rank() == dist.get_world_size() - 1 and not (folder / "crashed").exists():
        (folder / "crashed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    asked = torch.tensor(float(bool(stop)))
    dist.all_reduce(asked)
    if asked:
        break
    done["step"] += 1
    time.sleep(pause_s)
    if dist.get_rank() == 0:
        (folder / "aside").write_text(json.dumps(done))
        (folder / "aside").replace(state)
    dist.barrier()
dist.destroy_process_group()
if stop and dist_last:  # still writing its part when the others are gone
    time.sleep(3)
    (folder / "last").touch()
os._exit(0)  # the end of the interpreter is not what is tested
"""


def need(*modules: str) -> None:
    """Fail, with the line that installs them, where a package is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.fail(f"not installed: {', '.join(missing)}; run: make venv-test")


def put(launch: Launch, kind: str, directory: Path) -> Path:
    """Write the files of a rendering and return the main one."""
    files = render(launch, kind).files
    for file in files:
        (directory / file.name).write_text(file.text)
    return directory / files[0].name


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which the launchers beside this interpreter are found."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
    return {**kept, "PATH": path, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", **more}


class Started:
    """Processes in sessions of their own, whose output goes to files; none is left when the test ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, words: list[str], cwd: Path, env: Mapping[str, str] | None = None) -> int:
        """Start a command; return its number."""
        log = self.directory / f"output-{len(self.processes)}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                words, cwd=cwd, env=dict(env or environment()), stdin=subprocess.DEVNULL, stdout=sink,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.processes.append((process, log))
        return len(self.processes) - 1

    def end(self, number: int) -> tuple[int, str]:
        """Wait for it; return its status and what it printed."""
        process, log = self.processes[number]
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {LIMIT_S} s:\n{log.read_text(errors='replace')[-4000:]}")
        return status, log.read_text(errors="replace")

    def good(self, number: int) -> str:
        """Wait for it; fail unless its status is 0; return what it printed."""
        status, said = self.end(number)
        assert status == 0, said[-6000:]
        return said

    def close(self) -> None:
        """Ask what is left to end, with its workers: torchrun passes the signal on; then kill."""
        for process, _ in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process, _ in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
