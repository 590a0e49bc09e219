"""Three jobs are rehearsed for real: one that is right, one that forgets its schedule, one that begins again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

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
