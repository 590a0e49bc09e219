"""Boxes that are not what they seem: copied, shared, come back."""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from servers import onbox, ran
from servers.clients import Client

from outlive import errors
from outlive.runs import demo_work
from outlive.runs.adopt import adopt
from outlive.runs.ask import stop
from outlive.runs.home import Home
from outlive.runs.look import look
from outlive.runs.up import up
from outlive.transport import pack, packed
from outlive.wire.names import BoxFiles

COUNTS = """
import time
for step in range(1, 1000):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


def test_a_copied_box_is_not_taken_for_the_one_it_was_copied_from(tmp_path: Path) -> None:
    """A snapshot of the disk was rented again: both machines run and bill, and both have the same id."""
    home = Home(tmp_path / "state")
    one, copy = tmp_path / "one", tmp_path / "copy"
    place = up(home, ["local:"], root=str(one), budget_s=2.0).place
    try:
        run = ran.start(place, COUNTS)
        shutil.copytree(one, copy, ignore=shutil.ignore_patterns("payload"))
        before = (home.dir / "ledger.jsonl").read_bytes()
        with pytest.raises(errors.PlaceError, match="is a copy of") as caught:
            up(home, [f"local:{copy}"], root=str(copy), budget_s=2.0)
        assert place.name in caught.value.safe
        assert (home.dir / "ledger.jsonl").read_bytes() == before
        (status,) = look(home, home.box_of("")).runs
        assert status["run"] == run and status["work_alive"], (
            "the first one goes on, and is still the one that is known"
        )
        # under a directory of its own the copy is a box like any other
        other = up(home, [f"local:{copy}/own"], root=str(copy / "own"), budget_s=2.0)
        assert other.new and other.place.box.box_id != place.box.box_id
        assert len(home.state().boxes) == 2
    finally:
        for root in (one, copy):
            demo_work.end_processes(BoxFiles(str(root)))


def test_a_box_whose_directory_was_moved_is_the_same_box(tmp_path: Path) -> None:
    home = Home(tmp_path / "state")
    place = up(home, ["local:"], root=str(tmp_path / "one"), budget_s=2.0).place
    (tmp_path / "one").rename(tmp_path / "two")
    again = up(home, [f"local:{tmp_path}/two"], root=str(tmp_path / "two"), budget_s=2.0)
    assert not again.new and again.place.name == place.name
    assert again.place.box.root == str(tmp_path / "two")


def test_a_supervisor_of_another_version_is_read_and_asked(tmp_path: Path) -> None:
    """The client was updated while the run was going: the program beside the run stays what it was."""
    program = onbox.pack(tmp_path / "supervisor-0000.pyz")
    box = onbox.Box(program, tmp_path / "box")
    try:
        run = box.python(COUNTS)
        run.until_journal("first_line", 120)
        home = Home(tmp_path / "state")
        taken = adopt(home, [f"local:{tmp_path}/box"], root=str(tmp_path / "box"), budget_s=2.0)
        (status,) = taken.runs
        assert status["run"] == run.id and status["work_alive"] and taken.woke == []
        answer = stop(home, home.run_of(run.id), grace_s=1.0, wait_s=60.0)
        assert answer.answered and answer.ok
        run.until_journal("ended", 120)
        assert len(run.journal("supervisor")) == 1, "no second supervisor took it over"
    finally:
        box.end()


def test_our_own_program_was_changed_between_up_and_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client was updated after `up`: what the box lacks of the new version is brought by whatever is typed next."""
    client = Client(tmp_path / "client")
    up(client.home, ["local:"], root=str(tmp_path / "box"), budget_s=2.0)
    data = io.BytesIO(pack.supervisor_pyz()[1])
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr("outlive/news.txt", "another version")
    digest = hashlib.sha256(data.getvalue()).hexdigest()[:12]
    monkeypatch.setattr(packed, "program", lambda: (digest, data.getvalue()))
    monkeypatch.setattr(packed, "program_digest", lambda: digest)
    try:
        run = client.run(client.job(env={"LAST": "5", "STEP_S": "0.02"})).run
        assert client.until(run, lambda s: s["ended"], 120)["state"] == "succeeded"
        assert (tmp_path / "box/.outlive" / f"supervisor-{digest}.pyz").exists()
    finally:
        demo_work.end_processes(BoxFiles(str(tmp_path / "box")))


def test_an_interpreter_behind_a_shim_is_asked_once(tmp_path: Path) -> None:
    """A shim of pyenv starts a shell for each call, which took longer than the call."""
    shim, calls = tmp_path / "shims" / "python3", tmp_path / "calls"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\necho called >>{calls}\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    home = Home(tmp_path / "state")
    place = up(home, ["local:"], root=str(tmp_path / "box"), python=str(shim), budget_s=2.0).place
    assert place.box.facts["python"] == place.agent.python == sys.executable
    before = calls.read_text()
    assert look(home, home.box_of("")).state == "idle"
    assert calls.read_text() == before
