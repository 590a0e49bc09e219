import random

import pytest

from outlive.checkpoints.cadence import (
    ASSUMED_MTBF_S,
    FIRST_S,
    LEAST_INTERVAL_S,
    MOST_INTERVAL_S,
    Cadence,
    auto_interval_s,
    budget,
    cadence_from_env,
    daly_interval_s,
    expected_waste,
    young_interval_s,
)
from outlive.checkpoints.grace import ASSUMED_GRACE_S, flush_decision, grace_from_env
from outlive.checkpoints.retention import Keep


def test_young_and_daly_by_hand():
    assert young_interval_s(60.0, 86400.0) == pytest.approx(3219.94, abs=0.01)
    # sqrt(2*60*86400) * (1 + sqrt(60/172800)/3 + 60/172800/9) - 60
    assert daly_interval_s(60.0, 86400.0) == pytest.approx(3180.06, abs=0.1)
    assert daly_interval_s(100.0, 40.0) == 40.0


@pytest.mark.parametrize("words", [(0.0, 1.0), (1.0, 0.0), (-1.0, 5.0)])
def test_nonsense_is_refused(words):
    for of in (young_interval_s, daly_interval_s):
        with pytest.raises(ValueError):
            of(*words)


def test_dalys_interval_wastes_least():
    for seed in range(200):
        rng = random.Random(seed)
        mtbf_s = 10 ** rng.uniform(2, 6)
        save_s = mtbf_s * 10 ** rng.uniform(-5, -1.2)
        at = daly_interval_s(save_s, mtbf_s)
        least = expected_waste(at, save_s, mtbf_s)
        for factor in (0.3, 0.6, 1.6, 3.0):
            assert least <= expected_waste(at * factor, save_s, mtbf_s) + 1e-9
        assert 0 < least < 1


def test_waste_grows_with_what_costs():
    assert expected_waste(100, 1, 1000) < expected_waste(100, 5, 1000) < expected_waste(100, 5, 1000, restart_s=60)
    assert expected_waste(0, 1, 1000) == 1.0
    assert expected_waste(1e9, 1, 10) == 1.0


def test_more_workers_save_more_often():
    one, eight = auto_interval_s(5, 36000, 1), auto_interval_s(5, 36000, 8)
    assert eight < one
    assert eight == pytest.approx(auto_interval_s(5, 36000 / 8, 1))
    assert auto_interval_s(1e-9, 1e9) >= LEAST_INTERVAL_S
    assert auto_interval_s(1000, 1e9) == MOST_INTERVAL_S


def drive(cadence, steps, step_s, cost_s=0.5):
    """Train on a made clock; return the steps at which a save was due, with the reasons."""
    now, due = 0.0, []
    cadence.start(0, now)
    for step in range(1, steps + 1):
        now += step_s
        cadence.step_done(step, now)
        why = cadence.due(step, now)
        if why:
            now += cost_s
            cadence.saved(step, now, cost_s)
            due.append((step, why))
    return due


def test_every_steps():
    assert drive(Cadence(every_steps=10), 35, 1.0) == [(10, "steps"), (20, "steps"), (30, "steps")]


def test_every_steps_after_a_resume_in_between():
    cadence = Cadence(every_steps=10)
    cadence.start(7, 0.0)
    assert not cadence.due(9, 1.0)
    assert cadence.due(12, 2.0) == "steps"  # the tenth was not looked at


def test_every_seconds():
    due = drive(Cadence(every_s=20.0), 60, 1.0)
    assert [why for _step, why in due] == ["time"] * len(due)
    gaps = [b - a for (a, _w), (b, _v) in zip(due, due[1:])]
    assert set(gaps) <= {19, 20, 21}


def test_milestones_come_on_top_and_are_not_missed():
    due = drive(Cadence(every_steps=100, milestones=[3, 50]), 60, 1.0)
    assert due == [(3, "milestone"), (50, "milestone")]
    cadence = Cadence(every_steps=100, milestones=[50])
    cadence.start(48, 0.0)
    assert cadence.due(52, 1.0) == "milestone"


def test_auto_saves_early_once_and_then_at_the_interval():
    cadence = Cadence(mtbf_s=3600.0)
    due = drive(cadence, 2000, 1.0, cost_s=2.0)
    assert due[0][0] <= FIRST_S
    chosen = cadence.interval()
    assert chosen.every_s == pytest.approx(daly_interval_s(2.0, 3600.0))
    gap = due[-1][0] - due[-2][0]
    assert chosen.every_s - 2 <= gap <= chosen.every_s  # rounded down to a step, never up
    assert chosen.every_steps == int(chosen.every_s)
    assert not chosen.assumed and 0 < chosen.waste < 0.1


def test_auto_with_long_steps_saves_at_each():
    assert [step for step, _why in drive(Cadence(mtbf_s=600.0), 20, 400.0)] == list(range(1, 21))


def test_nothing_is_due_twice():
    cadence = Cadence(every_steps=5)
    cadence.start(0, 0.0)
    assert cadence.due(5, 1.0)
    cadence.saved(5, 1.0)
    assert not cadence.due(5, 99.0)


def test_the_environment_speaks_for_the_platform():
    assert cadence_from_env({"OUTLIVE_MTBF_S": "7200"}).mtbf_s == 7200
    for text in ("", "x", "-1", "inf", "nan"):
        cadence = cadence_from_env({"OUTLIVE_MTBF_S": text})
        assert cadence.mtbf_s == ASSUMED_MTBF_S and cadence.assumed
    assert cadence_from_env({"OUTLIVE_MTBF_S": "7200"}, mtbf_s=5.0).mtbf_s == 5.0


@pytest.mark.parametrize("words", [{"every_steps": 0}, {"every_s": 0}, {"mtbf_s": -1}])
def test_a_cadence_of_nothing_is_refused(words):
    with pytest.raises(ValueError):
        Cadence(**words)


def test_the_budget_counts_the_one_being_written():
    found = budget(1000, 3, Keep(latest=2, best=1, every_steps=100), steps=1000, milestones=2)
    assert found.checkpoints == 2 + 1 + 10 + 2 + 1
    assert found.bytes == found.checkpoints * 1000
    assert found.inodes >= found.checkpoints * 5


def test_a_flush_is_tried_unless_it_cannot_fit():
    assert grace_from_env({"OUTLIVE_GRACE_S": "30"}) == 30 and grace_from_env({}) is None
    assert flush_decision(30.0, 5.0).save
    assert flush_decision(30.0, 29.0).save and "just" in flush_decision(30.0, 29.0).why
    assert not flush_decision(30.0, 31.0).save
    assert not flush_decision(30.0, 5.0, since_signal_s=26.0).save
    assert not flush_decision(5.0, 1.0, since_signal_s=6.0).save
    assert flush_decision(None, None).left_s == ASSUMED_GRACE_S and flush_decision(None, None).save


def test_a_request_is_answered_by_the_next_save(tmp_path):
    request = tmp_path / "checkpoint"
    cadence = cadence_from_env({"OUTLIVE_CONTROL_DIR": str(tmp_path)}, every_steps=1000)
    cadence.start(0, 0.0)
    assert not cadence.due(1, 1.0)
    request.write_text("one")
    assert not cadence.due(2, 1.5), "it is not looked for at every step"
    assert cadence.due(3, 2.5) == "asked"
    assert cadence.due(4, 2.6) == "asked", "until it was saved"
    request.write_text("two")
    cadence.saved(4, 3.0)
    assert request.read_text() == "two", "what came meanwhile stays"
    assert cadence.due(5, 4.0) == "asked"
    cadence.saved(5, 4.5)
    assert not request.exists() and not cadence.due(6, 6.0)


def test_nothing_is_asked_where_nobody_can_ask(tmp_path):
    cadence = cadence_from_env({"OUTLIVE_CONTROL_DIR": str(tmp_path / "gone")}, every_steps=10)
    assert drive(cadence, 25, 1.0) == [(10, "steps"), (20, "steps")]
    assert type(cadence_from_env({})) is Cadence
