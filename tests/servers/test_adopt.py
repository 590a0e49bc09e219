"""Taking over from an empty client, and two clients at once: the box remembers, and there is one run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from servers.clients import Client

from outlive import errors
from outlive.runs.adopt import adopt

NewClient = Callable[..., Client]


def both(*calls: Callable[[], Any]) -> list[Any]:
    """The results of calls that begin at the same moment; an exception is a result."""
    gate, found = threading.Barrier(len(calls)), {}

    def one(number: int, call: Callable[[], Any]) -> None:
        gate.wait()
        try:
            found[number] = call()
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=one, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[number] for number in range(len(calls))]


def test_an_empty_client_takes_a_live_run_over(box_factory: Any, new_client: NewClient) -> None:
    box = box_factory()
    old, new = new_client("laptop"), new_client("desktop")
    old.up(box)
    run = old.run(old.job(env={"LAST": "600"})).run
    new.use_key(box.key)
    found = adopt(new.home, [box.url])
    assert [r["run"] for r in found.runs] == [run] and found.runs[0]["state"] in ("starting", "running")
    assert found.woke == [] and found.waiting == [] and found.up.new
    assert new.record(run).box == new.box().name
    assert new.status(run)["work_alive"]
    assert (new.home.mirror(run) / new.box().box_id[:12] / "log").read_bytes().startswith(b"begins at 0")
    assert new.stop(run).status["state"] == "stopped"
    assert old.status(run)["state"] == "stopped"


def test_adopting_wakes_what_a_restart_left(box_factory: Any, new_client: NewClient) -> None:
    box = box_factory()
    old, new = new_client(), new_client()
    old.up(box)
    run = old.run(old.job(env={"LAST": "40"})).run
    old.until(run, lambda s: s["checkpoint"])
    box.restart()
    new.use_key(box.key)
    found = adopt(new.home, [box.url])
    assert found.woke == [run] and found.waiting == []
    final = new.until(run, lambda s: s["ended"])
    assert final["state"] == "succeeded" and final["attempt"] == 2
    again = adopt(new.home, [box.url])
    assert again.woke == [] and not again.up.new
    assert new.record(run).state == "succeeded"


def test_adopting_names_what_waits_for_secrets(
    box_factory: Any, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_factory()
    old, new = new_client(), new_client()
    old.up(box)
    monkeypatch.setenv("TOKEN", "s3cr3t-of-adopt")
    run = old.run(old.job(env={"LAST": "400"}, secrets={"TOKEN": "TOKEN"})).run
    old.until(run, lambda s: s["step"])
    box.restart()
    monkeypatch.delenv("TOKEN")
    new.use_key(box.key)
    found = adopt(new.home, [box.url])
    assert found.waiting == [run]
    assert "TOKEN" in next(r for r in found.runs if r["run"] == run)["why"]
    assert new.record(run).state == "waiting"
    new.stop(run)


def test_two_clients_stop_one_run(box_factory: Any, new_client: NewClient) -> None:
    box = box_factory()
    one, two = new_client(), new_client()
    one.up(box)
    run = one.run(one.job(env={"LAST": "600"})).run
    two.use_key(box.key)
    adopt(two.home, [box.url])
    answers = both(lambda: one.stop(run), lambda: two.stop(run))
    assert [a.status["state"] for a in answers] == ["stopped", "stopped"], answers
    assert one.status(run)["attempt"] == 1


def test_two_clients_start_one_job(box_factory: Any, new_client: NewClient) -> None:
    box = box_factory()
    one, two = new_client(), new_client()
    one.up(box)
    two.use_key(box.key)
    adopt(two.home, [box.url])
    env = {"LAST": "600"}
    first, second = both(lambda: one.run(one.job(env=env)), lambda: two.run(two.job(env=env)))
    assert first.run == second.run, (first, second)
    assert sorted([first.how, second.how]) == ["attached", "created"]
    assert [r["run"] for r in one.look().runs] == [first.run]
    with pytest.raises(errors.SpecDiffers) as caught:
        two.run(two.job(env={"LAST": "601"}))
    assert any("LAST" in line for line in caught.value.why) and caught.value.exit_code == 3
    one.stop(first.run)


def test_two_first_contacts_make_one_box(box_factory: Any, new_client: NewClient) -> None:
    box = box_factory()
    clients = [new_client(), new_client()]
    found = both(*[lambda c=c: c.up(box) for c in clients])  # type: ignore[misc]
    ids = {f.place.box.box_id for f in found}
    assert len(ids) == 1 and ids == {(box.home / ".outlive/box-id").read_text().strip()}


def test_one_client_in_two_processes_keeps_one_ledger(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.up(box)
    again = Client(client.directory)
    again.use_key(box.key)
    env = {"LAST": "600"}
    first, second = both(lambda: client.run(client.job(env=env)), lambda: again.run(again.job(env=env)))
    assert first.run == second.run
    assert list(client.home.state().runs) == [first.run]
    client.stop(first.run)


def test_the_mirror_of_a_second_client_is_whole(box_factory: Any, new_client: NewClient) -> None:
    box = box_factory()
    one, two = new_client(), new_client()
    one.up(box)
    run = one.run(one.job(env={"LAST": "20", "STEP_S": "0.05"})).run
    two.use_key(box.key)
    adopt(two.home, [box.url])
    for each in (one, two, one, two):
        each.once(run)
    one.until(run, lambda s: s["ended"])
    two.once(run)
    logs = [(c.home.mirror(run) / c.box().box_id[:12] / "log").read_bytes() for c in (one, two)]
    assert logs[0] == logs[1] and logs[0].count(b"step ") == 20
