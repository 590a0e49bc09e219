"""A secret reaches the work and nothing else: no argument list, no other environment, no file here or there."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client

from outlive import errors

WORK = (
    "sh",
    "-c",
    'mkdir -p ckpt; printf %s "$API_KEY" | wc -c > length.txt; while [ ! -e ../go ]; do echo tick; sleep 0.1; done',
)


@contextmanager
def every_process_read_for(needle: bytes, box: Any) -> Iterator[dict[str, set[str]]]:
    """Read processes again and again: who has the needle in its arguments (all of this machine), who in its
    environment (those of the box: a client's own shell has it)."""
    found: dict[str, set[str]] = {"cmdline": set(), "environ": set()}
    over = threading.Event()
    inside = box.cgroup["pids"] / "cgroup.procs"

    def read(pid: str, part: str) -> None:
        try:
            if needle in Path(f"/proc/{pid}/{part}").read_bytes():
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                found[part].add(line[:160] or "(a process that was ending)")
        except OSError:
            pass

    def sample() -> None:
        while not over.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                read(pid, "cmdline")
            for pid in inside.read_text().split():
                read(pid, "environ")
            time.sleep(0.002)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def files_with(needle: bytes, *roots: Path) -> list[str]:
    found = []
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24:
                if needle in path.read_bytes() or needle in os.fsencode(path.name):
                    found.append(str(path))
    return found


def canary() -> str:
    """A word that stands nowhere. Put into the environment after the box was started: a box inherits ours."""
    return "canary" + secrets.token_hex(12)


def test_a_secret_is_only_in_the_works_environment(
    box_factory: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_factory()
    client.up(box)
    word = canary()
    monkeypatch.setenv("MY_KEY", word)
    (client.project / "data.txt").write_text("x" * 1000)
    needle = word.encode()
    with every_process_read_for(needle, box) as seen:
        started = client.run(client.job("keyed", *WORK, secrets={"API_KEY": "MY_KEY"}))
        client.until(started.run, lambda s: s["state"] == "running" and s["log_bytes"])
        client.once(started.run)
        time.sleep(0.3)
    assert seen["cmdline"] == set()
    strangers = {line for line in seen["environ"] if not _is_work(line)}
    assert strangers == set()
    assert any("length.txt" in line for line in seen["environ"])  # the work has it, so the search can find
    work = box.home / ".outlive/runs" / started.run / "work"
    assert (work / "length.txt").read_text().strip() == str(len(word))
    where = [box.disk, client.directory]
    assert files_with(needle, *where) == []
    (work.parent / "go").touch()
    assert client.until(started.run, lambda s: s["ended"])["state"] == "succeeded"
    client.once(started.run)
    assert files_with(needle, *where) == []


def _is_work(line: str) -> bool:
    return "length.txt" in line or line.startswith(("sleep 0.1", "wc -c", "mkdir -p ckpt"))


def test_a_notice_address_is_a_secret_too(
    box_factory: Any, client: Client, sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_factory()
    client.up(box)
    token = "tok" + secrets.token_hex(12)
    monkeypatch.setenv("HOOK", f"{sink.url}?token={token}")
    with every_process_read_for(token.encode(), box) as seen:
        started = client.run(client.job("told", "sh", "-c", "echo hi > out.txt", notify=("env:HOOK",)))
        sink.wait(1, timeout_s=15)
    assert seen["cmdline"] == set() and seen["environ"] == set()
    assert files_with(token.encode(), box.disk, client.directory) == []
    assert client.until(started.run, lambda s: s["ended"])["state"] == "succeeded"


def test_a_missing_secret_stops_before_the_push(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.up(box)
    before = sorted(p.name for p in (box.home / ".outlive").iterdir())
    with pytest.raises(errors.UsageError, match="NOT_SET_ANYWHERE") as caught:
        client.run(client.job(secrets={"A": "NOT_SET_ANYWHERE"}))
    assert caught.value.exit_code == 2 and caught.value.safe == "Nothing was pushed or started."
    assert sorted(p.name for p in (box.home / ".outlive").iterdir()) == before


def test_after_a_restart_the_run_waits_for_its_secrets(
    box_factory: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_factory()
    client.up(box)
    word = canary()
    monkeypatch.setenv("MY_KEY", word)
    # no outlive.toml here: after the start only the work's own name of the secret is known
    run = client.run(client.job(env={"LAST": "40"}, secrets={"API_KEY": "MY_KEY"})).run
    client.until(run, lambda s: s["checkpoint"])
    monkeypatch.delenv("MY_KEY")
    box.restart()
    seen = client.once(run)
    assert seen.woke
    waiting = client.until(run, lambda s: s["state"] == "waiting")
    assert "API_KEY" in waiting["why"] and "watch" in waiting["why"]
    assert client.once(run).state == "waiting"
    assert client.status(run)["attempt"] == 1
    monkeypatch.setenv("API_KEY", word)
    client.once(run)
    final = client.until(run, lambda s: s["ended"])
    assert final["state"] == "succeeded" and final["attempt"] == 2
    client.once(run)
    assert files_with(word.encode(), box.disk, client.directory) == []


def test_kept_on_the_box_it_survives_a_restart(
    box_factory: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_factory()
    client.up(box)
    word = canary()
    monkeypatch.setenv("MY_KEY", word)
    job = client.job(env={"LAST": "40"}, secrets={"API_KEY": "MY_KEY"}, secrets_keep="box")
    run = client.run(job).run
    client.until(run, lambda s: s["checkpoint"])
    monkeypatch.delenv("MY_KEY")
    (kept,) = files_with(word.encode(), box.root / "root", client.directory)
    assert os.stat(kept).st_mode & 0o777 == 0o600
    box.restart()
    final = client.until(run, lambda s: s["ended"], wake_it=True)
    assert final["state"] == "succeeded" and final["attempt"] == 2
    # it goes with the end of the run, which is said a moment before
    until = time.monotonic() + 15
    while files_with(word.encode(), box.root / "root/.outlive") and time.monotonic() < until:
        time.sleep(0.2)
    assert files_with(word.encode(), box.disk, client.directory) == []
