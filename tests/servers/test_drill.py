"""Three jobs are rehearsed for real: one that is right, one that forgets its schedule, one that begins again.

Here, and on a box that is reached over ssh.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client, pids_of

from outlive import errors
from outlive.cli.main import main
from outlive.runs.drill import Settings, drill
from outlive.runs.drill_verdict import FROM_ZERO, RESUMES
from outlive.runs.job import Job, Stage
from outlive.views import drill_view

TRAIN = """
import json, os, random, sys, time
forgets = sys.argv[1]
os.makedirs("ckpt", exist_ok=True)
rng = random.Random(7)
state = {"step": 0, "w": 4.0, "momentum": 0.0, "schedule": 0, "rng": None}
saved = sorted(n for n in os.listdir("ckpt") if n.endswith(".json"))
if saved and forgets != "everything":
    with open("ckpt/" + saved[-1]) as f:
        state = json.load(f)
    version, words, gauss = state["rng"]
    rng.setstate((version, tuple(words), gauss))
    if forgets == "schedule":
        state["schedule"] = 0
while True:
    state["step"] += 1
    lr = 0.2 * 0.97 ** state["schedule"]
    state["schedule"] += 1
    state["momentum"] = 0.8 * state["momentum"] + 0.2 * (state["w"] + rng.uniform(-0.5, 0.5))
    state["w"] -= lr * state["momentum"]
    print("step %d loss %.6f lr %.6f" % (state["step"], state["w"] ** 2 + 1, lr), flush=True)
    time.sleep(0.05)
    if state["step"] % 10 == 0:
        state["rng"] = rng.getstate()
        with open("ckpt/.aside", "w") as f:
            json.dump(state, f)
            f.flush()
            time.sleep(0.02)
        os.rename("ckpt/.aside", "ckpt/step-%06d.json" % state["step"])
"""
"""Without an end: a machine may be busy, and the drill stops it when it has seen enough."""


def job(tmp_path: Path, forgets: str) -> Job:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    return Job("tiny", (Stage("main", ("python", "train.py", forgets)),), project, checkpoints="ckpt")


def rehearse(tmp_path: Path, job: Job, kills: int) -> dict[str, object]:
    said: list[str] = []
    base = tmp_path / "drill"
    base.mkdir()
    found = drill(job, base, Settings(kills=kills), said.append)
    assert any(line.startswith("kill -9 at step") for line in said)
    assert drill_view.rows(found)
    return drill_view.data(found)


def test_a_job_that_is_right(tmp_path: Path) -> None:
    found = rehearse(tmp_path, job(tmp_path, "nothing"), kills=2)
    assert found["passed"] and found["forgotten"] == [], found
    kills = found["kills"]
    assert isinstance(kills, list) and [k["word"] for k in kills] == [RESUMES, RESUMES]
    assert [k["when"] for k in kills] == ["after_save", "in_save"]
    assert found["compared"] == found["equal"] and found["same_state_steps"], "state and random numbers, bit for bit"


def test_a_job_that_forgets_its_schedule(tmp_path: Path) -> None:
    found = rehearse(tmp_path, job(tmp_path, "schedule"), kills=1)
    assert not found["passed"]
    assert [item["what"] for item in found["forgotten"]] == ["schedule"], found  # type: ignore[attr-defined]
    assert found["kills"][0]["word"] == RESUMES  # type: ignore[index]


def test_a_job_that_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(job(tmp_path, "").project)
    words = ["drill", "--json", "--checkpoints", "ckpt", "--dir", str(tmp_path), "--", "python", "train.py"]
    assert main([*words, "everything"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "outlive/drill/1" and not found["passed"]
    assert [k["word"] for k in found["kills"]] == [FROM_ZERO], found
    assert found["snapshot"] in (tmp_path / "home/ledger.jsonl").read_text()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("outlive-drill-")], "all removed again"


def test_a_job_that_names_no_step_or_fails_is_no_verdict(tmp_path: Path) -> None:
    given = job(tmp_path, "")
    quiet = replace(given, stages=(Stage("main", ("python", "-c", "open('x.txt', 'w').write('x')")),))
    base = tmp_path / "drill"
    base.mkdir()
    with pytest.raises(errors.Unknown, match="names a step"):
        drill(quiet, base, Settings(), lambda text: None)
    broken = replace(given, name="other", stages=(Stage("main", ("python", "-c", "raise SystemExit('no data')")),))
    other = tmp_path / "drill2"
    other.mkdir()
    with pytest.raises(errors.WorkFailed) as caught:
        drill(broken, other, Settings(), lambda text: None)
    assert any("no data" in line for line in caught.value.why)


# ---- on a box -------------------------------------------------------------------------------------


def there(box: Any) -> list[str]:
    """What drills have on the box: directories and processes."""
    found = [str(p) for p in box.home.glob("outlive-drill-*")]
    return found + [f"pid {pid}" for pid in pids_of(box, "train.py")]


def on_box(client: Client, given: Job, tmp_path: Path, kills: int = 1) -> dict[str, object]:
    base = tmp_path / "drill"
    base.mkdir()
    box = client.box()
    return drill_view.data(drill(given, base, Settings(kills=kills), print, owner=client.home, box=box))


def test_on_a_box_a_job_that_is_right(box_factory: Any, client: Client, tmp_path: Path) -> None:
    box = box_factory()
    name = client.up(box).place.name
    found = on_box(client, job(tmp_path, "nothing"), tmp_path, kills=2)
    assert found["passed"] and found["box"] == name, found
    kills = found["kills"]
    assert isinstance(kills, list) and [k["word"] for k in kills] == [RESUMES, RESUMES], found
    assert [k["when"] for k in kills] == ["after_save", "in_save"]
    assert found["compared"] == found["equal"] and found["same_state_steps"]
    assert there(box) == [], "all removed again"
    assert client.look().runs == [], "the box's own runs are none of the rehearsal's"


def test_on_a_box_a_job_that_begins_again(
    box_factory: Any,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    box = box_factory()
    name = client.up(box).place.name
    monkeypatch.setenv("OUTLIVE_HOME", str(client.home.dir))
    monkeypatch.setenv("OUTLIVE_SSH_CONFIG", str(client.config))
    monkeypatch.chdir(job(tmp_path, "").project)
    assert main(["drill", "--json", "--on", name, "--keep", "--", "true"]) == 2
    assert "--keep" in capsys.readouterr().out
    words = ["drill", "--json", "--on", name, "--checkpoints", "ckpt", "--", "python", "train.py", "everything"]
    assert main(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert [k["word"] for k in found["kills"]] == [FROM_ZERO], found
    assert found["box"] == name and found["sentence"].startswith(f"drill on {name}: ")
    note = client.home.state().notes[-1]
    assert note["drill"] == found["snapshot"] and note["box"] == name and note["passed"] is False
    assert there(box) == []


def begun(box: Any, client: Client, tmp_path: Path) -> subprocess.Popen[str]:
    """A drill in a process of its own, whose job runs on the box."""
    environ = {**os.environ, "OUTLIVE_HOME": str(client.home.dir), "OUTLIVE_SSH_CONFIG": str(client.config)}
    environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    words = [sys.executable, "-m", "outlive", "drill", "--json", "--on", client.box().name, "--checkpoints", "ckpt"]
    process = subprocess.Popen(
        [*words, "--", "python", "train.py", "nothing"],
        cwd=job(tmp_path, "").project,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 120
    while not pids_of(box, "train.py"):
        assert time.monotonic() < end and process.poll() is None, process.communicate()
        time.sleep(0.1)
    return process


def test_on_a_box_ctrl_c_leaves_nothing(box_factory: Any, client: Client, tmp_path: Path) -> None:
    box = box_factory()
    client.up(box)
    process = begun(box, client, tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert "nothing of yours was touched" in json.loads(out)["safe"]
    assert there(box) == [], err


def test_a_box_that_vanishes_says_what_is_left_and_the_next_drill_removes_it(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlive.runs.drill_stand.PATIENCE_S", 2.0)
    box = box_factory()
    client.up(box)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("kill -9"):
            box.kill()

    base, given = tmp_path / "drill", job(tmp_path, "nothing")
    base.mkdir()
    with pytest.raises(errors.PlaceError) as caught:
        drill(given, base, Settings(), say, owner=client.home, box=client.box())
    assert "nothing was found out" in caught.value.safe
    assert any("outlive-drill-" in why and "ends by itself" in why for why in caught.value.why), caught.value.why
    box.start()
    (left,) = box.home.glob("outlive-drill-*")
    found = on_box(
        client, replace(given, stages=(Stage("main", ("python", "train.py", "everything")),)), left_over(base)
    )
    assert not found["passed"] and there(box) == []


def left_over(base: Path) -> Path:
    """A directory for another drill."""
    (base / "again").mkdir()
    return base / "again"
