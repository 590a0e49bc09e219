"""Times of approvals, and standing ones with a real box."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from servers import ran

from outlive import errors
from outlive.runs.approve import listed, standing, until_s
from outlive.runs.down import down
from outlive.runs.forget import forget
from outlive.runs.up import up

NOON = datetime.datetime(2026, 8, 1, 12, 0).timestamp()


@pytest.mark.parametrize(
    ("text", "hours"),
    [("13:30", 1.5), ("08:00", 20.0), ("12:00", 24.0), ("+6h", 6.0), ("+90m", 1.5), ("2026-08-01T14:00", 2.0)],
)
def test_times_are_the_next_ones_here(text: str, hours: float) -> None:
    assert until_s(text, NOON) == pytest.approx(NOON + hours * 3600)


@pytest.mark.parametrize("text", ["", "25:00", "08:61", "soon", "+6x", "2026-07-31T08:00"])
def test_what_is_no_time_ahead_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError):
        until_s(text, NOON)


def test_a_standing_approval_waits_for_the_end_and_is_used_by_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ran.local(tmp_path)
    home, name = place.home, place.name
    go = tmp_path / "go"
    run = ran.start(place, ran.TRAIN + f"while not os.path.exists({str(go)!r}): time.sleep(0.1)")
    with pytest.raises(errors.UsageError, match="when-proved"):
        standing(home, name, until="+6h", when_proved=False, terminal=ran.Person(name), purge=True)
    with pytest.raises(errors.ApprovalNeeded):
        standing(home, name, until="+6h", when_proved=True, terminal=None, purge=True)
    with pytest.raises(errors.UsageError, match="days"):
        standing(home, name, until="+30d", when_proved=True, terminal=ran.Person(name), purge=True)
    with pytest.raises(errors.UsageError, match="detaches"):
        standing(home, name, until="+6h", when_proved=True, terminal=ran.Person(name))
    person = ran.Person(name)
    given = standing(home, name, until="+6h", when_proved=True, terminal=person, purge=True)
    assert run in person.asked[0] and [a.id for a in listed(home).approvals] == [given.id]
    live = down(home, name, purge=True)
    assert live.exit_code == 3 and isinstance(live.refusal, errors.RunAlive)
    go.touch()
    ran.ended(place, run)
    result = down(home, name, purge=True)
    assert (result.exit_code, result.approval) == (0, given.id)
    assert listed(home).approvals == []
    place.close()


def test_forgetting_a_box_takes_a_person_and_more_words_while_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = ran.local(tmp_path)
    home, name = place.home, place.name
    with pytest.raises(errors.ApprovalNeeded):
        forget(home, name, None)
    person = ran.Person(name)
    with pytest.raises(errors.GateRefused, match="answers"):
        forget(home, name, person)
    assert "STILL ANSWERS" in person.asked[0] and not home.state().boxes[name].gone
    done = forget(home, name, ran.Person(f"{name} answers"))
    assert done.answered and home.state().boxes[name].forgotten and home.state().boxes[name].state != "gone"
    place.close()
    assert up(home, ["local:"]).place.box.box_id == place.box.box_id


def test_a_box_that_does_not_answer_is_gone_by_the_users_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.chdir(tmp_path)
    place = ran.local(tmp_path)
    home, name = place.home, place.name
    home.ledger.append("price", box=name, per_h=2.0, currency="USD", source="test")
    shutil.rmtree(place.box.root)
    with pytest.raises(errors.ApprovalNeeded, match="not typed"):
        forget(home, name, ran.Person("no"))
    done = forget(home, name, ran.Person(name))
    assert not done.answered and done.currency == "USD" and done.cost is not None
    assert home.state().boxes[name].state == "gone"
    place.close()
