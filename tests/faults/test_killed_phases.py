"""kill -9 in the middle of a durable copy, a pruning, an `adopt`, a push: of each who takes part, and in pairs.

The moment is seen from outside, by a file that shows that the phase has begun; there are no sleeps to hit it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client, end_sessions, on_this_machine, pids_of, work_of

from outlive.runs.adopt import adopt
from outlive.runs.pull import pull
from outlive.wire.journal import read_all
from outlive.wire.names import BoxFiles

ACTORS = ("supervisor", "keeper", "work", "supervisor+keeper", "supervisor+work")

SAVES = """
import json, os, time
os.makedirs("ckpt", exist_ok=True)
step = max([int(n[5:-4]) for n in os.listdir("ckpt") if n.startswith("step-")] or [0])
print("begins at", step, flush=True)
while step < 4:
    step += 1
    with open("ckpt/.aside", "wb") as out:
        out.write(b"%d" % step * 12000000)
    os.rename("ckpt/.aside", "ckpt/step-%d.bin" % step)
    print("step", step, flush=True)
    time.sleep(0.5)
json.dump({"step": step}, open("result.json", "w"))
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    yield from on_this_machine(tmp_path)


def kill(root: Path, run: str, actors: str) -> None:
    """kill -9 of each actor of the run, found by its command line and its environment."""
    words = {"supervisor": b"supervise\0", "keeper": b"/keeper-", "work": b"OUTLIVE_RUN=" + run.encode()}
    for actor in actors.split("+"):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                found = (process / ("environ" if actor == "work" else "cmdline")).read_bytes()
            except OSError:
                continue
            if words[actor] in found and str(root).encode() in found:
                try:
                    os.kill(int(process.name), signal.SIGKILL)
                except ProcessLookupError:
                    continue


def wait_for(test: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 120
    while not test():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def whole(client: Client, run: str, target: Path) -> dict[str, Any]:
    """Bring the run to its end; what it left is proved, and the journal's word about copies and checkpoints is true."""
    final = client.until(run, lambda s: s["ended"] and not s["supervised"], 180, wake_it=True)
    assert final["state"] == "succeeded", final["why"]
    got = pull(client.home, run, to=target)
    assert got.delivery == "proved" and not got.wrong and not got.refuted
    return final


@pytest.mark.parametrize("actors", ACTORS)
def test_in_a_durable_copy(client: Client, tmp_path: Path, actors: str) -> None:
    durable = tmp_path / "durable"
    durable.mkdir()
    command = ("python", "-c", SAVES)
    run = client.run(client.job("saves", *command, roster=("result.json",), durable_to=str(durable))).run
    copies = durable / run
    wait_for(lambda: list(copies.rglob(".outlive-part-*")), "no copy began")
    kill(Path(client.box().root), run, actors)
    whole(client, run, tmp_path / "result")
    journal = read_all(BoxFiles(client.box().root).run(run).journal)
    told = [r["copy"] for r in journal if r["k"] == "copy"]
    assert told
    for copy in told:
        data = (copies / copy["path"].split(f"{run}/")[-1]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == copy["sha256"], copy["path"]
    assert not list(copies.rglob(".outlive-part-*")), "half a copy is left"


@pytest.mark.parametrize("actors", ("supervisor", "supervisor+keeper"))
def test_in_a_pruning(client: Client, tmp_path: Path, actors: str) -> None:
    """The tombstone is written first: what is half removed is neither called lost nor kept."""
    command = ("python", "-c", SAVES.replace("while step < 4", "while step < 8").replace("12000000", "20000"))
    run = client.run(client.job("saves", *command, roster=("result.json",), keep={"latest": 1})).run
    files = BoxFiles(client.box().root).run(run)
    wait_for(lambda: '"k":"pruned"' in Path(files.journal).read_text(), "nothing was pruned")
    kill(Path(client.box().root), run, actors)
    whole(client, run, tmp_path / "result")
    journal = read_all(files.journal)
    pruned = [p for r in journal if r["k"] == "pruned" for p in r["paths"]]
    assert not [r for r in journal if r["k"] == "checkpoint_gone" and r["path"] in pruned]
    left = sorted(os.listdir(os.path.join(files.work, "ckpt")))
    assert left[-1] == "step-8.bin" and not [n for n in left if n.startswith(".outlive-pruned")]


@pytest.mark.parametrize("actors", ("client", "sessions", "client+sessions"))
def test_in_a_push_over_ssh(ssh_box: Any, new_client: Callable[..., Client], tmp_path: Path, actors: str) -> None:
    """Of the client, of the box's end of every connection (the shared one's master with it), and of both."""
    client = new_client()
    client.up(ssh_box)
    for number in range(6):
        (client.project / f"data-{number}.bin").write_bytes(os.urandom(1 << 20))
    job = client.job(env={"LAST": "5", "STEP_S": "0.02"})
    code = Path(ssh_box.root) / client.box().root.lstrip("/") / ".outlive/code"
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            client.run(job)
        finally:
            os._exit(0)
    began = lambda: code.exists() and any(p.stat().st_size for p in code.iterdir())  # noqa: E731
    wait_for(began, "no push began")
    if "client" in actors:
        os.kill(pid, signal.SIGKILL)
    if "sessions" in actors:
        end_sessions(ssh_box)
    os.waitpid(pid, 0)
    started = client.run(job)
    final = client.until(started.run, lambda s: s["ended"])
    assert final["state"] == "succeeded"
    assert len(client.look().runs) == 1, "however often it was typed"
    work = work_of(ssh_box, client, started.run)
    for number in range(6):
        assert (work / f"data-{number}.bin").read_bytes() == (client.project / f"data-{number}.bin").read_bytes()


@pytest.mark.parametrize("actors", ("supervisor", "sessions", "supervisor+sessions"))
def test_in_an_adopt_over_ssh(ssh_box: Any, new_client: Callable[..., Client], actors: str) -> None:
    """The run's own half, or the connection, dies while another client takes the box over."""
    first, second = new_client(), new_client()
    first.up(ssh_box)
    run = first.run(first.job(env={"LAST": "100000", "STEP_S": "0.1"})).run
    first.until(run, lambda s: (s["checkpoint"] or {}).get("step", 0) >= 5)
    second.use_key(ssh_box.key)
    done: list[Any] = []

    def take() -> None:
        try:
            done.append(adopt(second.home, [ssh_box.url], budget_s=2.0))
        except Exception as error:  # what it says is looked at below
            done.append(error)

    old = set(pids_of(ssh_box, "sshd: root"))
    thread = threading.Thread(target=take)
    thread.start()
    wait_for(lambda: set(pids_of(ssh_box, "sshd: root")) - old or done, "nobody logged in")
    if "supervisor" in actors:
        for pid in pids_of(ssh_box, "pyz supervise"):
            os.kill(pid, signal.SIGKILL)
    if "sessions" in actors:
        end_sessions(ssh_box)
    thread.join(120)
    assert done
    if isinstance(done[0], Exception):
        assert getattr(done[0], "exit_code", None) == 4, repr(done[0])
        assert run not in str(done[0]) and "connection" in str(done[0]), "a line that broke says nothing about the run"
    taken = adopt(second.home, [ssh_box.url], budget_s=2.0)
    assert [s["run"] for s in taken.runs] == [run] and list(second.home.state().boxes) == [taken.place.name]
    status = second.until(run, lambda s: s["supervised"], wake_it=True)
    assert status["attempt"] == 1 and status["work_alive"], "the work never noticed"
    second.stop(run)
