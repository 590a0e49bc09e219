"""What a drill concludes from the numbers that a job printed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from outlive.runs.drill import passed, remember
from outlive.runs.drill_verdict import (
    FROM_ZERO,
    NEVER,
    NOTHING_SAVED,
    RESUMES,
    SKIPS,
    Kill,
    Point,
    Verdict,
    judge,
    points_of,
)
from outlive.runs.home import Home


def line(step: int, wall_s: float = 0.0, **values: float) -> Point:
    shown = {"loss": 1 + 3 * math.exp(-step / 20), "lr": 0.1 * 0.98**step}
    return Point(step, wall_s or 1000.0 + step, {**shown, **values})


REFERENCE = [line(step) for step in range(1, 61)]


def killed(*after: Point, when: str = "later", last: int = 30, checkpoint: int | None = 25) -> Kill:
    return Kill(when, 2000.0, last, checkpoint, checkpoint is not None, after)


def verdict(*after: Point, **changes: object) -> Verdict:
    return judge(REFERENCE, REFERENCE[:30], [killed(*after, **changes)])  # type: ignore[arg-type]


def test_a_job_that_prints_what_it_would_have_printed_has_forgotten_nothing() -> None:
    found = verdict(*[line(step, 2000.0 + step - 20) for step in range(26, 45)])
    assert not found.broken and found.forgotten == ()
    (back,) = found.returns
    assert (back.word, back.first_step, back.lost_steps) == (RESUMES, 26, 5)
    assert (back.restart_s, back.cost_s) == (6.0, 11.0)
    assert found.compared == found.equal == 19


@pytest.mark.parametrize(
    ("after", "changes", "word"),
    [
        ([line(step, 2001) for step in range(1, 20)], {}, FROM_ZERO),
        ([line(step, 2001) for step in range(1, 20)], {"checkpoint": None}, NOTHING_SAVED),
        ([line(step, 2001) for step in range(40, 50)], {}, SKIPS),
        ([], {}, NEVER),
    ],
)
def test_what_is_no_resume(after: list[Point], changes: dict[str, object], word: str) -> None:
    found = verdict(*after, **changes)
    assert found.broken
    assert found.returns[0].word == word


def test_a_schedule_that_begins_anew() -> None:
    found = verdict(*[line(step, 2001, lr=0.1 * 0.98 ** (step - 25), loss=2.0) for step in range(26, 45)])
    assert [item.what for item in found.forgotten] == ["schedule"]
    assert "begins anew" in found.forgotten[0].text
    assert found.returns[0].word == RESUMES and found.broken


def test_weights_that_never_reached_the_model() -> None:
    found = verdict(*[line(step, 2001, loss=3.9) for step in range(26, 45)])
    assert [item.what for item in found.forgotten] == ["weights"]


def test_a_loss_that_goes_another_way() -> None:
    found = verdict(*[line(step, 2001, loss=REFERENCE[step - 1].values["loss"] * 1.01) for step in range(26, 45)])
    assert [item.what for item in found.forgotten] == ["state"]
    assert "order of the data" in found.forgotten[0].text


def test_a_job_that_is_never_twice_the_same_is_measured_by_its_own_noise() -> None:
    before = [line(step, loss=p.values["loss"] * (1 + 0.01 * (-1) ** step)) for step, p in enumerate(REFERENCE[:30], 1)]
    after = [line(step, 2001, loss=REFERENCE[step - 1].values["loss"] * 1.01) for step in range(26, 45)]
    found = judge(REFERENCE, before, [killed(*after)])
    assert not found.broken and found.noise["loss"] == pytest.approx(0.01, rel=0.05)
    far = [line(step, 2001, loss=REFERENCE[step - 1].values["loss"] * 1.3) for step in range(26, 45)]
    assert judge(REFERENCE, before, [killed(*far)]).broken


def test_one_odd_line_is_no_finding() -> None:
    after = [line(step, 2001) for step in range(26, 45)]
    after[3] = line(29, 2001, loss=9.0)
    found = verdict(*after)
    assert not found.broken and found.equal == found.compared - 1


def test_a_job_that_prints_at_every_tenth_step() -> None:
    reference = [line(step) for step in range(10, 200, 10)]
    kill = Kill("later", 2000.0, 120, 100, True, tuple(line(step, 2001) for step in range(110, 190, 10)))
    found = judge(reference, reference[:12], [kill])
    assert not found.broken and found.returns[0].lost_steps == 20


def test_steps_within_an_epoch_are_no_steps_of_the_run() -> None:
    records = [{"step": 3, "loss": 1.0, "w": 5.0}, {"step": 4, "local": True}, {"step": 4, "loss": "nan"}, {"lr": 1}]
    assert [(p.step, len(p.values)) for p in points_of(records)] == [(3, 1), (4, 1)]


def test_a_drill_counts_for_the_code_that_it_was_made_with(tmp_path: Path) -> None:
    class Found:
        box = ""
        command, snapshot = "python train.py", "a" * 64
        verdict = judge(REFERENCE, REFERENCE[:30], [killed(*REFERENCE[25:45])])

    home = Home(tmp_path)
    assert not passed(home.state(), "a" * 64)
    remember(home, Found())  # type: ignore[arg-type]
    assert passed(home.state(), "a" * 64)
    assert not passed(home.state(), "b" * 64) and not passed(home.state(), None)
    Found.verdict = judge(REFERENCE, REFERENCE[:30], [killed()])
    remember(home, Found())  # type: ignore[arg-type]
    assert not passed(home.state(), "a" * 64), "the newest drill counts"


def test_a_box_that_can_be_taken_away_asks_for_a_drill_of_this_code(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from outlive.runs.run import _drilled

    class Found:
        box = ""
        command, snapshot = "python train.py", "a" * 64
        verdict = judge(REFERENCE, REFERENCE[:30], [killed(*REFERENCE[25:45])])

    home = Home(tmp_path)
    spot = SimpleNamespace(name="spot-1", box=SimpleNamespace(facts={"spot": True}))
    owned = SimpleNamespace(name="mine", box=SimpleNamespace(facts={}))
    assert _drilled(home, owned, "a" * 64) == []  # type: ignore[arg-type]
    (said,) = _drilled(home, spot, "a" * 64)  # type: ignore[arg-type]
    assert "outlive drill" in said
    remember(home, Found())  # type: ignore[arg-type]
    assert _drilled(home, spot, "a" * 64) == []  # type: ignore[arg-type]
    assert _drilled(home, spot, "b" * 64)  # type: ignore[arg-type]
