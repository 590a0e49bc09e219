"""down on one's own machine: detach, purge, and the gate between them, with real runs and real files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import ran

from outlive import errors
from outlive.runs.approve import approve_request, listed, revoke
from outlive.runs.down import DownResult, down, loss_lines
from outlive.runs.place import Place
from outlive.runs.pull import pull
from outlive.wire import clock


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    made = ran.local(tmp_path)
    yield made
    made.close()


def states(result: DownResult) -> dict[int, str]:
    """Clauses that are not green. What they say is printed, for whoever reads a failure."""
    assert result.decision is not None
    print("\n".join(loss_lines(result.decision)))
    return {c.number: c.state for c in result.decision.clauses if c.state != "green"}


def done(place: Place, code: str = ran.TRAIN) -> str:
    run = ran.start(place, code)
    ran.ended(place, run)
    return run


def own(place: Place) -> Path:
    return Path(place.box.root) / ".outlive"


def test_detaching_deletes_nothing_and_is_refused_while_a_run_lives(place: Place) -> None:
    run = ran.start(place, ran.TRAIN + "time.sleep(60)")
    result = down(place.home, place.name)
    assert (result.action, result.exit_code) == ("detach", 3)
    assert isinstance(result.refusal, errors.RunAlive) and result.refusal.runs == [run]
    purge = down(place.home, place.name, purge=True, terminal=ran.Person(place.name))
    assert purge.exit_code == 3 and isinstance(purge.refusal, errors.RunAlive)
    place.call("run_ask", {"run": run, "ask": {"id": "s1", "kind": "stop"}, "wait_s": 5})
    ran.ended(place, run)
    before = sorted(p for p in own(place).rglob("*"))
    result = down(place.home, place.name)
    assert (result.exit_code, result.meter) == (0, "not metered")
    assert sorted(p for p in own(place).rglob("*")) == before


def test_a_purge_is_refused_before_the_pull_and_deletes_exactly_what_it_listed_after(
    place: Place, tmp_path: Path
) -> None:
    run = done(place)
    beside = Path(place.box.root) / "mine.txt"
    beside.write_text("the user's")
    refused = down(place.home, place.name, purge=True, pull_first=False, terminal=None)
    assert refused.exit_code == 3 and states(refused).keys() >= {2, 4}
    assert isinstance(refused.refusal, errors.GateRefused) and refused.refusal.why
    assert own(place).exists()
    pull(place.home, run)
    needs = down(place.home, place.name, purge=True, pull_first=False)
    assert needs.exit_code == 5 and states(needs) == {8: "red"}
    person = ran.Person(place.name)
    result = down(place.home, place.name, purge=True, pull_first=False, terminal=person)
    assert result.exit_code == 0
    assert result.deletes == result.removed == [str(own(place))]
    assert str(own(place)) in person.asked[-1]
    assert not own(place).exists() and beside.read_text() == "the user's"
    assert sorted(p.name for p in Path(place.box.root).iterdir()) == ["mine.txt"]
    receipt = result.receipt
    assert receipt is not None and receipt.meter == "not metered" and receipt.same_machine
    assert receipt.runs[0].delivery == "proved"
    beside_result = Path("outlive-runs") / run / ".outlive" / f"receipt-purge-{place.name}.json"
    assert json.loads(beside_result.read_bytes())["decision_digest"] == receipt.decision_digest
    assert place.home.state().boxes[place.name].gone
    with pytest.raises(errors.PlaceError) as caught:
        pull(place.home, run)
    assert any("are here" in line for line in caught.value.why)


def test_down_pulls_first_by_itself(place: Place) -> None:
    run = done(place)
    dry = down(place.home, place.name, purge=True, dry_run=True)
    assert dry.exit_code == 5 and [w.run for w in dry.would_pull] == [run]
    assert not Path("outlive-runs").exists()
    result = down(place.home, place.name, purge=True, terminal=ran.Person(place.name))
    assert result.exit_code == 0 and [p.delivery for p in result.pulled] == ["proved"]
    assert (Path("outlive-runs") / run / "out/best.json").exists()
    json.dumps(result.to_json())


def test_a_dry_run_without_the_pull_ends_as_down_would(place: Place) -> None:
    done(place)
    dry = down(place.home, place.name, purge=True, dry_run=True, pull_first=False)
    real = down(place.home, place.name, purge=True, pull_first=False)
    assert dry.exit_code == real.exit_code == 3
    assert states(dry) == states(real)
    assert listed(place.home).requests == []  # a red gate stores no request


def test_the_wrong_name_typed_deletes_nothing(place: Place) -> None:
    done(place)
    result = down(place.home, place.name, purge=True, terminal=ran.Person("local-7"))
    assert result.exit_code == 5 and own(place).exists()


def test_a_change_on_the_box_after_the_pull_reddens(place: Place) -> None:
    run = done(place)
    pull(place.home, run)
    (ran.work_of(place, run) / "out/best.json").write_text('{"loss": 0.1}')
    result = down(place.home, place.name, purge=True, pull_first=False, terminal=ran.Person())
    assert result.exit_code == 3 and states(result)[2] == "red"
    assert result.decision is not None and "changed" in result.decision.clause(2).items[0].why
    # pulling again does not help: it is not what the run left
    again = down(place.home, place.name, purge=True)
    assert again.exit_code == 3 and own(place).exists()


def test_a_corrupted_copy_here_reddens(place: Place) -> None:
    run = done(place)
    result = pull(place.home, run)
    spoilt = result.dir / "out/ckpt/step-1.json"
    spoilt.write_bytes(spoilt.read_bytes().replace(b"1", b"2"))
    shut = down(place.home, place.name, purge=True, pull_first=False)
    assert shut.exit_code == 3 and states(shut)[2] == "red"
    assert shut.lost_here == [str(spoilt)]
    assert down(place.home, place.name, purge=True).exit_code == 5  # brought again, then only a person is missing


def test_an_unclaimed_file_reddens_a_glob_saves_it_and_a_typed_waiver_gives_it_up(place: Place) -> None:
    run = done(
        place, ran.TRAIN + "open('out/notes.txt','w').write('by hand')\nopen('out/big.bin','wb').write(b'x'*999)"
    )
    stray = own(place) / "dropped.txt"
    stray.write_text("put here by somebody")
    result = down(place.home, place.name, purge=True)
    assert states(result) == {6: "red", 8: "red"}
    assert result.decision is not None
    assert [Path(i.path).name for i in result.decision.clause(6).items] == ["big.bin", "dropped.txt", "notes.txt"]
    pull(place.home, run, globs=["out/notes.txt"])
    person = ran.Person("", "")
    kept = down(place.home, place.name, purge=True, terminal=person)
    assert kept.exit_code == 3 and own(place).exists()
    assert "big.bin" in person.asked[0] and "999 bytes" in person.asked[0] and "notes.txt" not in person.asked[0]
    with pytest.raises(errors.GateRefused, match="green"):
        down(place.home, place.name, purge=True, terminal=ran.Person(f"{place.name} lose 2"))
    assert own(place).exists()
    gone = down(place.home, place.name, purge=True, terminal=ran.Person(f"{place.name} lose 6", place.name))
    assert gone.exit_code == 0 and not own(place).exists()
    assert gone.receipt is not None and len(gone.receipt.given_up) == 2
    assert gone.receipt.waivers[0].typed == f"{place.name} lose 6"


def test_a_request_of_a_program_is_approved_by_a_person_and_used_once(place: Place) -> None:
    done(place)
    asked = down(place.home, place.name, purge=True)
    assert states(asked) == {8: "red"}
    assert asked.exit_code == 5 and asked.request
    assert down(place.home, place.name, purge=True).request == asked.request
    with pytest.raises(errors.ApprovalNeeded):
        approve_request(place.home, asked.request, None)
    with pytest.raises(errors.ApprovalNeeded, match="not typed"):
        approve_request(place.home, asked.request, ran.Person("yes"))
    given = approve_request(place.home, asked.request, ran.Person(place.name))
    revoke(place.home, given.id)
    refused = down(place.home, place.name, purge=True, approval_id=given.id)
    assert refused.exit_code == 5 and isinstance(refused.refusal, errors.ApprovalInvalid)
    given = approve_request(place.home, asked.request, ran.Person(place.name))
    result = down(place.home, place.name, purge=True)
    assert (result.exit_code, result.approval) == (0, given.id)


def test_an_approval_is_void_after_any_change(place: Place) -> None:
    run = done(place)
    asked = down(place.home, place.name, purge=True)
    approve_request(place.home, asked.request, ran.Person(place.name))
    ran.ended(place, ran.start(place, job="other"))
    result = down(place.home, place.name, purge=True)
    assert result.exit_code == 5 and own(place).exists()
    assert result.refusal is not None and any("runs on the box are others" in w for w in result.refusal.why)
    assert run


def test_the_demo_may_approve_for_the_box_that_its_process_made_and_for_no_other(place: Place) -> None:
    done(place)
    assert down(place.home, place.name, purge=True, created_here=["0" * 32]).exit_code == 5
    result = down(place.home, place.name, purge=True, created_here=[place.box.box_id])
    assert result.exit_code == 0
    assert result.receipt is not None and result.receipt.approval is not None and result.receipt.approval.by == "demo"


def test_a_refuted_result_keeps_the_gate_shut(place: Place) -> None:
    done(place, ran.TRAIN + "open('out/best.json','w').write('{\"loss\": 0.')")
    result = down(place.home, place.name, purge=True)
    assert result.exit_code == 3 and states(result)[3] == "red"


def test_nothing_bills_here_so_there_is_nothing_to_stop(place: Place) -> None:
    with pytest.raises(errors.UsageError, match="nothing"):
        down(place.home, place.name, action="stop")


def test_an_approval_ends_after_a_quarter_of_an_hour(place: Place) -> None:
    done(place)
    asked = down(place.home, place.name, purge=True)
    given = approve_request(place.home, asked.request, ran.Person(place.name))
    try:
        clock.set_clock(wall=lambda: time.time() + 16 * 60)
        late = down(place.home, place.name, purge=True, approval_id=given.id)
    finally:
        clock.set_clock()
    assert late.exit_code == 5 and isinstance(late.refusal, errors.ApprovalInvalid)
    assert "time is over" in late.refusal.what and own(place).exists()
