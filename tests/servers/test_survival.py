"""A run on a real box outlives its client, its connections, its box; and nothing is said that is not known."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client, end_sessions, pids_of, work_of

from outlive import errors
from outlive.runs.look import look_all
from outlive.runs.run import IDLE_NOTICE_S
from outlive.runs.watch import Until, follow

NewClient = Callable[..., Client]

ONE_SHOT = """
import sys
from dataclasses import replace
from pathlib import Path
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage
from outlive.runs.place import open_place
from outlive.runs.run import run
home = Home(Path(sys.argv[1]), Path(sys.argv[2]))
job = Job("count", (Stage("main", ("python", "train.py")),), Path(sys.argv[3]), checkpoints="ckpt", retry_wait_s=0.2,
          limits={"scan_s": 0.2, "sample_s": 0.3, "grace_s": 2.0}, env={"LAST": "40"}, notify=tuple(sys.argv[4:]))
print(run(home, job, open_place(home, home.box_of(""))).run, flush=True)
import os
os.kill(os.getpid(), 9)
"""


def run_and_die(client: Client, *notify: str, **environ: str) -> str:
    """Start the job in a process of its own, which is killed as soon as `run` returned; the run."""
    client.job()
    argv = [sys.executable, "-c", ONE_SHOT, str(client.home.dir), str(client.config), str(client.project), *notify]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **environ}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == -9, done.stderr
    return done.stdout.split()[-1]


def test_the_run_outlives_its_client_and_every_connection(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.up(box)
    run = run_and_die(client)
    assert end_sessions(box) > 0
    status = client.until(run, lambda s: s["ended"])
    assert status["state"] == "succeeded" and status["attempt"] == 1
    assert status["step"] == 40
    assert (work_of(box, client, run) / "result.json").read_text() == '{"step": 40}'


def test_notice_arrives_with_the_client_dead(box_factory: Any, client: Client, sink: Any) -> None:
    box = box_factory()
    client.up(box)
    run = run_and_die(client, "env:HOOK", HOOK=sink.url)
    end_sessions(box)
    (told,) = sink.wait(1, timeout_s=20)
    assert run in told.body.decode() and "succeeded" in told.body.decode()
    (found,) = look_all(client.home, [])
    assert found.head["lease"]["idle_s"] == IDLE_NOTICE_S  # from here on the box itself says that it idles


def started(client: Client, **changes: Any) -> str:
    env = {"LAST": "40", "STEP_S": "0.1", **changes.pop("env", {})}
    run = client.run(client.job(env=env, **changes)).run
    client.until(run, lambda s: (s["checkpoint"] or {}).get("step", 0) >= 5)
    return run


def test_a_killed_box_is_unreachable_then_preempted_and_goes_on(box_factory: Any, client: Client) -> None:
    box = box_factory()
    name = client.up(box).place.name
    run = started(client)
    box.kill()
    seen = client.look()
    assert seen.state == "unreachable" and seen.error is not None and seen.error["exit_code"] == 4
    assert "lost" not in seen.why and "gone" not in seen.why
    assert client.record(run).state == "running"  # what was known of the run is not replaced by what is not known
    box.start()
    seen = client.look()
    (status,) = seen.runs
    assert seen.state == "ready"
    assert status["state"] == "preempted" and status["needs_wake"] and not status["machine_same"]
    assert "restarted" in status["why"] and status["work_alive"] in (False, None)
    steps = [s for s in follow(client.home, client.record(run), every_s=0.2, timeout_s=30)]
    assert steps[0].woke and steps[-1].status is not None
    final = steps[-1].status
    assert final["state"] == "succeeded" and final["attempt"] == 2 and final["step"] == 40
    log = (client.home.mirror(run) / client.box(name).box_id[:12] / "log").read_text()
    assert "begins at 0" in log
    resumed_at = int(log.rpartition("begins at ")[2].split()[0])
    assert resumed_at >= 5 and resumed_at % 5 == 0
    outcome = [e for s in steps for e in s.journal if e["k"] == "attempt_ended"][0]["outcome"]
    assert outcome["cls"] in ("reboot", "preempted") and outcome["remedy"] == "resume"


def test_run_again_after_a_restart_goes_on_too(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.up(box)
    run = started(client)
    box.restart()
    again = client.run(client.job(env={"LAST": "40", "STEP_S": "0.1"}))
    assert again.run == run and again.how == "attached"
    final = client.until(run, lambda s: s["ended"])
    assert final["state"] == "succeeded" and final["attempt"] == 2


def test_a_box_that_came_back_empty_is_another_box(box_factory: Any, client: Client) -> None:
    box = box_factory()
    name = client.up(box).place.name
    run = started(client)
    keys = {n: (box.root / "etc/ssh" / n).read_bytes() for n in ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub")}
    box.empty()
    # a new image has a new host key
    seen = client.look()
    assert seen.state == "unreachable" and seen.error is not None and seen.error["error"] == "host-key-changed"
    # and where it has the old one
    for each, data in keys.items():
        (box.root / "etc/ssh" / each).write_bytes(data)
    box.restart()
    with pytest.raises(errors.PlaceError, match="another machine answers") as caught:
        client.once(run)
    assert caught.value.exit_code == 4 and "Nothing was done" in caught.value.safe
    assert client.look().state == "unreachable"
    with pytest.raises(errors.PlaceError):
        client.run(client.job())
    with pytest.raises(errors.PlaceError, match="is not " + name):
        client.up(box, name)
    assert not (box.root / "root/.outlive/runs").exists()
    assert client.record(run).state == "running"
    looks = follow(client.home, client.record(run), every_s=0.1, timeout_s=2)
    first = next(looks)
    assert not first.reachable and first.state == "unknown" and "another machine" in first.trouble
    with pytest.raises(errors.TimeOver):
        list(looks)


def test_the_keeper_brings_a_killed_supervisor_back(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.up(box)
    run = started(client, env={"LAST": "60"})
    for pid in pids_of(box, "pyz supervise"):
        os.kill(pid, 9)
    status = client.status(run)
    assert status["state"] == "running" and status["work_alive"]
    final = client.until(run, lambda s: s["ended"], timeout_s=25, wake_it=True)
    assert final["state"] == "succeeded" and final["attempt"] == 1


# ---- silence ----


def test_a_silent_network_is_unknown_and_then_running_again(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.up(box)
    run = started(client, env={"LAST": "600"})
    box.freeze()
    began = time.monotonic()
    seen = client.look(timeout_s=4)
    assert seen.state == "unreachable" and time.monotonic() - began < 12
    said = []
    began = time.monotonic()
    with pytest.raises(errors.TimeOver) as caught:
        for look in follow(client.home, client.record(run), every_s=0.2, timeout_s=3, look_s=2):
            said.append((look.state, look.trouble))
    assert time.monotonic() - began < 30
    assert "The run goes on" not in caught.value.safe or said[-1][0] != "unknown"
    assert said and all(state == "unknown" for state, _ in said)
    assert not any(word in text for _, text in said for word in ("lost", "gone", "failed"))
    box.thaw()
    status = client.until(run, lambda s: s["state"] == "running")
    assert status["attempt"] == 1
    client.stop(run)


def test_login_lost_while_the_shared_connection_lives(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.up(box)
    run = started(client, env={"LAST": "600"})
    assert client.status(run)["state"] == "running"
    keys = box.home / ".ssh/authorized_keys"
    kept = keys.read_bytes()
    keys.write_bytes(b"")
    with pytest.raises(errors.LoginRefused) as caught:
        client.place().agent.exec.prove_fresh()
    assert caught.value.login_lost and ["outlive", "pull"] in caught.value.next and "pull now" in caught.value.safe
    looks = follow(client.home, client.record(run), every_s=0.1, timeout_s=10, fresh_s=0.3)
    first = next(seen for seen in looks if seen.login_lost)
    assert not first.reachable and "no longer accepts our key" in first.trouble
    # the old connection still carries: the run is watched on through it, and the finding stands
    second = next(looks)
    assert second.reachable and second.login_lost and second.state == "running"
    keys.write_bytes(kept)
    again = next(seen for seen in looks if not seen.login_lost)
    assert again.reachable and again.state == "running"
    looks.close()
    client.stop(run)


# ---- room ----


def test_too_few_inodes_refuse_a_push_with_numbers(box_factory: Any, client: Client) -> None:
    box = box_factory(disk="ext4:64:1500")
    client.up(box)
    for number in range(400):
        (client.project / f"f{number}.txt").write_text(str(number))
    box.exhaust_inodes(leave=100)
    before = sorted(p.name for p in (box.home / ".outlive").rglob("*"))
    with pytest.raises(errors.NoSpace) as caught:
        client.run(client.job())
    assert caught.value.exit_code == 3
    assert "inode" in caught.value.sentence() and any(ch.isdigit() for ch in caught.value.sentence())
    after = sorted(p.name for p in (box.home / ".outlive").rglob("*"))
    assert after == before
    box.relieve_disk()
    run = client.run(client.job(env={"LAST": "5"})).run
    assert client.until(run, lambda s: s["ended"])["state"] == "succeeded"


def test_no_room_for_our_own_program(box_factory: Any, client: Client) -> None:
    box = box_factory(disk="ext4:16:600")
    box.fill_disk()
    with pytest.raises(errors.NoSpace) as caught:
        client.up(box)
    assert "Nothing was changed" in caught.value.safe
    assert not client.home.state().boxes
    box.relieve_disk()
    assert client.up(box).new


def test_stop_is_answered_once_by_two_clients(box_factory: Any, new_client: NewClient) -> None:
    """Until.parse and stop over ssh: the watch ends with the run, and a second stop is harmless."""
    box = box_factory()
    one = new_client()
    one.up(box)
    run = started(one, env={"LAST": "600"})
    seen = list(follow(one.home, one.record(run), until=Until.parse("step=8"), every_s=0.1, timeout_s=20))
    assert seen[-1].step is not None and 8 <= seen[-1].step < 100
    assert one.stop(run).status["state"] == "stopped"
    again = one.stop(run)
    assert again.status["state"] == "stopped" and again.status["attempt"] == 1


def test_client_state_is_only_a_memory(box_factory: Any, new_client: NewClient) -> None:
    box = box_factory()
    one = new_client()
    one.up(box)
    run = started(one)
    (one.home.dir / "cache.sqlite").unlink(missing_ok=True)
    for path in Path(one.home.dir / "runs").rglob("*"):
        if path.is_file():
            path.unlink()
    assert one.until(run, lambda s: s["ended"])["state"] == "succeeded"
