"""The guard: what stops a run, from where it goes on, and that going back is one recorded step."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest


def checkpoint(folder: Path, step: int) -> None:
    path = folder / f"step-{step:09d}"
    path.mkdir(parents=True)
    (path / "checkpoint.json").write_text(json.dumps({"step": step}))


def guard(template: Any) -> Any:
    template("common/runlog.py")
    return template("common/guard.py")


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_at_once(template: Any, loss: float) -> None:
    module = guard(template)
    with pytest.raises(module.Diverged) as raised:
        module.Guard().look(7, loss, 1.0)
    assert raised.value.onset == 7


def test_a_scaler_may_skip_steps_but_not_for_ever(template: Any) -> None:
    module = guard(template)
    watch = module.Guard(max_skipped=3)
    watch.look(1, 2.0, math.inf, scaled=True)
    watch.look(2, 2.0, 1.0, scaled=True)
    watch.look(3, 2.0, math.inf, scaled=True)
    watch.look(4, 2.0, math.inf, scaled=True)
    with pytest.raises(module.Diverged, match="3 steps in a row"):
        watch.look(5, 2.0, math.inf, scaled=True)
    with pytest.raises(module.Diverged, match="gradient norm"):
        module.Guard().look(1, 2.0, math.inf)


def test_an_exploding_loss_stops_and_names_its_onset_also_across_a_resume(template: Any) -> None:
    module = guard(template)
    watch = module.Guard(factor=2.0, patience=4)
    for step in range(1, 30):
        watch.look(step, 2.0, 1.0)
    watch.look(30, 9.0, 1.0)
    again = module.Guard(factor=2.0, patience=4)
    with pytest.raises(module.Diverged) as raised:
        for step in range(31, 60):
            if step == 40:
                again.load_state_dict(watch.state_dict())
                watch = again
            watch.look(step, 9.0, 1.0)
    assert 31 <= raised.value.onset <= 35


def test_one_bad_batch_is_not_a_divergence(template: Any) -> None:
    watch = guard(template).Guard(factor=2.0, patience=4)
    for step in range(200):
        watch.look(step, 20.0 if step % 50 == 49 else 2.0, 1.0)
    assert watch.best == pytest.approx(2.0)


def test_going_back_sets_later_checkpoints_aside_and_is_recorded(template: Any, tmp_path: Path) -> None:
    module = guard(template)
    kept = tmp_path / "ckpt"
    for step in (10, 20, 30):
        checkpoint(kept, step)
    (kept / "checkpoints_index.json").write_text("{}")
    aside = module.roll_back(str(tmp_path), str(kept), 10, 15)
    assert sorted(module.steps_kept(str(kept))) == [10]
    assert sorted(path.name for path in Path(aside).iterdir()) == ["step-000000020", "step-000000030"]
    assert not (kept / "checkpoints_index.json").exists()
    done = module.interventions(str(tmp_path))
    assert [(one["step"], one["skip_steps"]) for one in done] == [(10, 15)]
    assert [module.data_step(step, done) for step in (0, 9, 10, 11)] == [0, 9, 25, 26]
    with pytest.raises(SystemExit, match="no checkpoint of step 20"):
        module.roll_back(str(tmp_path), str(kept), 20, 1)


def test_the_proposal_names_the_checkpoint_before_the_event(template: Any, tmp_path: Path) -> None:
    module = guard(template)
    runlog = template("common/runlog.py")
    config = template("common/config.py")
    plan = config.Phases(config._phases([{"name": "a", "data": "x", "steps": 50}], "c"), 10)
    for step in (10, 20, 30):
        checkpoint(tmp_path / "ckpt", step)
    log = runlog.RunLog(str(tmp_path), "t", {}, plan)
    code = module.stop(log, str(tmp_path), str(tmp_path / "ckpt"), 31, "the loss is nan", 25, "halve lr.peak")
    log.close()
    assert code == module.STOPPED
    proposal = json.loads((tmp_path / "divergence.json").read_text())
    assert proposal["resume_step"] == 20
    assert proposal["command"] == "python train.py --roll-back 20 --skip-window 11"
    status = (tmp_path / "training_status.md").read_text("utf-8")
    assert "waits for a person" in status and "the loss is nan" in status
