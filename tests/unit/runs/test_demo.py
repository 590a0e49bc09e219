"""The demo for real, in its short form, and what it does when a promise is broken or somebody presses Ctrl-C."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlive import errors
from outlive.runs import demo, demo_work

pytestmark = pytest.mark.slow

SRC = str(Path(__file__).parents[3] / "src")


def left_running(word: Path) -> list[str]:
    """Command lines of processes that name a directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(word) in line and int(pid) != os.getpid():
            found.append(line.replace(b"\0", b" ").decode())
    return found


def environment(home: Path) -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=SRC, HOME=str(home), OUTLIVE_HOME=str(home / "state"), COLUMNS="100")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[demo.Told, list[demo.Moment], Path]:
    base = tmp_path_factory.mktemp("demo")
    moments: list[demo.Moment] = []
    return demo.play(base, moments.append, fast=True), moments, base


def test_every_step_is_checked_in_order(told: tuple[demo.Told, list[demo.Moment], Path]) -> None:
    story, moments, _ = told
    ids = [s.id for s in demo.STEPS]
    assert [m.id for m in moments if m.kind == "done"] == ids == list(story.checks)
    assert not [m for m in moments if m.kind == "failed"]


def test_the_save_was_really_cut_short(told: tuple[demo.Told, list[demo.Moment], Path]) -> None:
    story, _, base = told
    cut = (base / "cut-short.json").read_text("ascii")
    assert 0 < len(cut) == story.facts["half_bytes"] < story.facts["whole_bytes"]
    with pytest.raises(ValueError):
        json.loads(cut)
    assert story.facts["resume_from"] < story.facts["killed_at_step"]
    assert story.facts["attempts"] >= 2 and story.facts["outcome"] == "killed_unexplained"


def test_the_result_outlives_its_box(told: tuple[demo.Told, list[demo.Moment], Path]) -> None:
    story, _, base = told
    assert not (base / "box" / ".outlive").exists()
    assert hashlib.sha256((story.result / "out/model.json").read_bytes()).hexdigest() == story.facts["sha256"]
    others = [p for p in story.result.parent.iterdir() if p != story.result and p.is_dir()]
    assert [(p / "out/model.json").read_bytes() == (story.result / "out/model.json").read_bytes() for p in others] == [
        True
    ]
    receipt = story.result / story.facts["receipt"]
    assert receipt.stat().st_size and story.facts["approved_by"] == "demo"


def test_both_curves_were_shown_and_fell(told: tuple[demo.Told, list[demo.Moment], Path]) -> None:
    for series in ("killed", "undisturbed"):
        losses = [m.facts["loss"] for m in told[1] if m.kind == "point" and m.facts["series"] == series]
        assert losses[-1] < losses[0] - 0.3


def test_nothing_runs_afterwards(told: tuple[demo.Told, list[demo.Moment], Path]) -> None:
    assert left_running(told[2]) == []


def test_a_broken_promise_is_named_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[demo.Moment] = []
    monkeypatch.setattr(demo_work, "is_child_of_ours", lambda run: True)
    with pytest.raises(errors.CheckFailed) as raised:
        demo.play(tmp_path, shown.append, fast=True)
    assert raised.value.exit_code == 1
    assert "step 2" in raised.value.what and demo.STEPS[1].promise in raised.value.why[0]
    assert [m.id for m in shown if m.kind == "failed"] == ["run"]
    assert left_running(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_clears_up(tmp_path: Path, number: int) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "outlive", "demo", "--fast", "--plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(environment(tmp_path), TMPDIR=str(temporary)),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting for a save" in line:  # in the middle of it, past the imports
            break
    assert left_running(temporary) != []
    process.send_signal(number)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130, said
    end = time.monotonic() + 2
    while left_running(temporary) and time.monotonic() < end:
        time.sleep(0.1)
    assert left_running(temporary) == []
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "state").exists(), "the user's own state was touched"
