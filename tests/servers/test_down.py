"""down on rented boxes (real sshd): the gate, two boxes, and a meter that only a person can stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from servers import ran
from servers.clients import Client

from outlive import errors
from outlive.runs.approve import approve_request
from outlive.runs.down import STILL_RUNNING, DownResult, down, loss_lines
from outlive.runs.forget import forget
from outlive.runs.place import Place


def red(result: DownResult) -> set[int]:
    """Clauses that are not green. What they say is printed, for whoever reads a failure."""
    assert result.decision is not None
    print("\n".join(loss_lines(result.decision)))
    return {c.number for c in result.decision.clauses if c.state != "green"}


def with_a_run(client: Client, box: Any, **options: Any) -> tuple[Place, str]:
    place = client.up(box, price=(2.0, "USD"), **options).place
    run = ran.start(place)
    ran.ended(place, run)
    return place, run


def test_a_meter_that_only_a_person_stops(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box = box_factory()
    place, run = with_a_run(client, box)
    home, name = place.home, place.name
    refused = down(home, name, pull_first=False)
    assert refused.exit_code == 3 and red(refused) == {2, 4, 8}
    asked = down(home, name)
    assert red(asked) == {8} and asked.exit_code == 5 and asked.request
    assert [p.delivery for p in asked.pulled] == ["proved"]
    notes = Path(str(box.root) + place.box.root) / "notes.txt"
    notes.write_text("by hand")
    assert red(down(home, name)) == {6, 8}
    notes.unlink()
    result = down(home, name, terminal=ran.Person(name))
    assert result.exit_code == 6 and result.sentence.startswith(STILL_RUNNING)
    assert result.refusal is None and result.steps and result.seen
    assert result.receipt is not None and result.receipt.meter == "still running"
    assert result.receipt.costs is not None and result.receipt.costs.per_h == 2.0
    receipt = tmp_path / "outlive-runs" / run / ".outlive" / f"receipt-destroy-{name}.json"
    assert json.loads(receipt.read_bytes())["meter"] == "still running"
    assert home.state().boxes[name].state == "unconfirmed"
    # it answers still, so it is asked again and a person again
    assert down(home, name).exit_code == 5
    box.kill()
    again = down(home, name)
    assert again.exit_code == 6 and again.next == [["outlive", "forget", name]]
    with pytest.raises(errors.ApprovalNeeded):
        forget(home, name, None)
    forget(home, name, ran.Person(name))
    assert home.state().boxes[name].gone
    place.close()


def test_two_boxes_and_an_approval_for_the_other(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, _ = with_a_run(client, box_factory())
    two, run = with_a_run(client, box_factory())
    home = one.home
    asked = down(home, one.name)
    given = approve_request(home, asked.request, ran.Person(one.name))
    other = down(home, two.name, approval_id=given.id)
    assert other.exit_code == 5 and isinstance(other.refusal, errors.ApprovalInvalid)
    assert one.name in other.refusal.what and two.name in other.refusal.what
    assert home.state().boxes[two.name].state != "unconfirmed"
    used = down(home, one.name)
    assert (used.exit_code, used.approval) == (6, given.id)
    assert down(home, one.name, approval_id=given.id).exit_code == 5  # one use
    assert run
    one.close()
    two.close()


def test_a_live_run_and_a_silent_box_keep_the_gate_shut(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box = box_factory()
    place = client.up(box).place
    home, name = place.home, place.name
    run = ran.start(place, ran.TRAIN + "time.sleep(120)")
    for dry_run in (True, False):
        result = down(home, name, dry_run=dry_run)
        assert result.exit_code == 3 and isinstance(result.refusal, errors.RunAlive) and result.refusal.runs == [run]
    assert not (tmp_path / "outlive-runs").exists()
    box.kill()
    result = down(home, name)
    assert result.exit_code == 4 and isinstance(result.refusal, errors.Unreachable)
    assert {1, 5, 6} <= red(result)
    # only its owner can weigh that against the meter
    person = ran.Person(f"{name} lose 1,2,3,4,5,6", name)
    lost = down(home, name, terminal=person)
    assert lost.exit_code == 6 and lost.receipt is not None and lost.receipt.given_up
    assert run in person.asked[0]
    place.close()


def test_own_servers_over_ssh_are_detached_and_purged(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    box = box_factory(user="ana")
    client.use_key(box.key)
    place = client.up(box, "local", box.url).place
    home, name = place.home, place.name
    run = ran.start(place)
    ran.ended(place, run)
    root = Path(str(box.root) + place.box.root)
    (root / "thesis.tex").write_text("mine")
    before = {p for p in root.iterdir() if p.name != ".outlive"}
    assert down(home, name).exit_code == 0 and (root / ".outlive").is_dir()
    result = down(home, name, purge=True, terminal=ran.Person(name))
    assert red(result) == set() and result.exit_code == 0
    assert result.removed == result.deletes == [f"{place.box.root}/.outlive"]
    assert set(root.iterdir()) == before
    assert home.state().boxes[name].gone
    place.close()


def test_a_box_parks_itself_only_where_that_can_be_undone(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place, _ = with_a_run(client, box_factory())
    home, name = place.home, place.name
    with pytest.raises(errors.OutliveError) as caught:
        down(home, name, action="pause", terminal=ran.Person(name))
    assert caught.value.exit_code == 2
    place.close()


PARKS = {
    "self_stop": {
        "argv": ["touch", "/var/tmp/parked"], "verb": "park", "role": "pause", "reversible": "yes", "needs_env": [],
    },
    "verbs": [
        {
            "name": "park", "label": "park", "role": "pause", "reversible": "yes", "stops": ["box"], "lowers": [],
            "deletes": [], "keeps": ["home-disk"], "unsure": ["attached-volume"], "api": None, "api_when": None,
            "steps": ["Press park."], "confirm": {"by": "person", "seen": "the list says parked"}, "notes": [],
        }
    ],
}  # fmt: skip


def test_a_box_that_parks_itself_is_not_called_stopped(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    facts = tmp_path / "config" / "outlive" / "platforms"
    facts.mkdir(parents=True)
    (facts / "ssh.json").write_text(json.dumps(PARKS))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    box = box_factory()
    place, _ = with_a_run(client, box)
    parked = Path(str(box.root)) / "var/tmp/parked"
    assert down(place.home, place.name, action="pause").exit_code == 5 and not parked.exists()
    result = down(place.home, place.name, action="pause", terminal=ran.Person(place.name))
    assert (result.exit_code, result.action, result.meter) == (6, "stop", "unconfirmed")
    assert parked.exists() and "the list says parked" in result.sentence
    assert result.receipt is not None and "touch /var/tmp/parked" in result.receipt.stopped[0]
    assert place.home.state().boxes[place.name].state == "unconfirmed"
    place.close()
