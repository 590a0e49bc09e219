"""Two boxes have one directory from a shared volume: neither takes the other's run for its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import ran
from servers.clients import Client, pids_of

from outlive import errors
from outlive.runs.adopt import adopt
from outlive.runs.down import down
from outlive.runs.pull import pull

NewClient = Callable[..., Client]


def test_a_run_of_one_box_is_not_started_again_on_the_other(
    box_factory: Any, new_client: NewClient, tmp_path: Path
) -> None:
    shared = tmp_path / "volume"
    shared.mkdir()
    one, two = (box_factory(volume=f"/shared=bind:{shared}") for _ in range(2))
    mine, other = new_client(), new_client()
    mine.up(one, one.url, root="/shared", name="one")
    run = mine.run(mine.job(env={"LAST": "100000", "STEP_S": "0.1"}), "one").run
    mine.until(run, lambda s: (s["checkpoint"] or {}).get("step", 0) >= 5)

    # one client would forget one of them: it is told, and nothing changes
    with pytest.raises(errors.PlaceError, match="both answer with the id") as caught:
        mine.up(two, two.url, root="/shared", name="two")
    assert any("shared volume" in why for why in caught.value.why) and mine.status(run)["state"] == "running"

    # another client knows only the second one
    other.up(two, two.url, root="/shared", name="two")
    assert [s["run"] for s in adopt(other.home, ["two"]).runs] == [run]
    status = other.status(run)
    assert status["state"] == "unknown" and "restarted" not in status["why"] and not status["needs_wake"]
    assert one.name in status["why"] and two.name in status["why"]

    # the supervisor dies, and the second box is asked before the keeper has started the next
    journal = shared / ".outlive/runs" / run / "journal.jsonl"
    for pid in pids_of(one, "pyz supervise"):
        os.kill(pid, signal.SIGKILL)
    other.once(run)
    end = time.monotonic() + 120
    while pids_of(two, "pyz supervise"):
        assert time.monotonic() < end, "a supervisor stays on a box where the work is not"
        assert not pids_of(two, "train.py")
        time.sleep(0.1)
    status = mine.until(run, lambda s: s["supervised"])
    assert status["state"] == "running" and status["attempt"] == 1
    assert journal.read_text().count('"k":"attempt"') == 1 and "attempt_ended" not in journal.read_text()
    assert pids_of(one, "train.py") and not pids_of(two, "train.py")
    gate = down(other.home, "two", dry_run=True, purge=True)
    assert gate.exit_code == 3 and isinstance(gate.refusal, errors.RunAlive)

    # the first box goes away for good: then the second one does go on
    one.kill()
    status = other.until(run, lambda s: s["attempt"] == 2 and s["work_alive"], wake_it=True)
    assert pids_of(two, "train.py")
    other.stop(run)


def test_two_roots_on_one_volume_and_one_is_purged(
    box_factory: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = tmp_path / "volume"
    shared.mkdir()
    runs = {}
    for name in ("one", "two"):
        box = box_factory(volume=f"/shared=bind:{shared}")
        client.use_key(box.key)
        place = client.up(box, "local", box.url, root=f"/shared/{name}", name=name).place
        runs[name] = ran.start(place)
        ran.ended(place, runs[name])
        place.close()
    assert down(client.home, "two").exit_code == 0
    result = down(client.home, "two", purge=True, terminal=ran.Person("two"))
    assert result.exit_code == 0 and result.removed == ["/shared/two/.outlive"]
    assert sorted(p.name for p in (shared / "one/.outlive/runs").iterdir()) == [runs["one"]]
    assert pull(client.home, runs["one"], to=tmp_path / "kept").delivery == "proved"
