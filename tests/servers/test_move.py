"""``run --from``: another box continues from the newest proved checkpoint, and the old box does not go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client, pids_of

from outlive import errors
from outlive.runs.move import move

ENV = {"LAST": "60", "STEP_S": "0.1"}


@pytest.fixture
def two(box_factory: Any, client: Client) -> Iterator[tuple[Any, Any]]:
    """Two boxes that the client knows as `one` and `two`."""
    boxes = box_factory(), box_factory()
    for box, name in zip(boxes, ("one", "two"), strict=True):
        client.up(box, box.url, name=name)
    yield boxes


def begun(client: Client, **changes: Any) -> str:
    run = client.run(client.job(env=changes.pop("env", ENV), **changes), "one").run
    client.until(run, lambda s: (s["checkpoint"] or {}).get("step", 0) >= 10)
    return run


def saved_here(client: Client, box: Any, run: str, until: Callable[[dict[str, Any]], Any]) -> int:
    """Bring the run's checkpoints to this machine as `pull --mirror` does; the step of the newest."""
    from outlive.runs.pull import pull

    client.until(run, until)
    pull(client.home, run, to=str(client.directory / "here" / run), mirror=True)
    return max(int(p.stem[5:]) for p in (client.directory / "here").rglob("step-*.json"))


def test_a_stopped_run_goes_on_elsewhere(two: tuple[Any, Any], client: Client) -> None:
    run = begun(client, env={**ENV, "LAST": "600"})
    with pytest.raises(errors.RunAlive) as caught:
        move(client.home, client.job(env=ENV), run, client.place("two"))
    assert caught.value.exit_code == 3 and client.status(run)["state"] == "running"
    client.stop(run)
    old = client.until(run, lambda s: s["ended"])
    done = move(client.home, client.job(env=ENV), run, client.place("two"))
    assert done.how == "moved" and done.box == "two" and done.run != run
    assert done.lineage is not None and done.lineage["run"] == run and done.lineage["attempt"] == old["attempt"]
    newest = old["checkpoint"]["step"]
    assert done.lineage["step"] == newest
    lost = [w for w in done.warnings if "starts from" in w][0]
    missing = old["step"] - newest
    told = f"{missing} step(s) after it are lost" if missing else "nothing after it is lost"
    assert lost.endswith(f"(step {newest}, from box); {told}")
    final = client.until(done.run, lambda s: s["ended"])
    assert final["state"] == "succeeded" and final["step"] == 60
    log = client.home.mirror(done.run) / client.box("two").box_id[:12] / "log"
    assert log.read_text().startswith(f"begins at {newest}\n")
    assert client.status(run)["fenced"]["box"] == "two"


def test_attempts_are_numbered_on(two: tuple[Any, Any], client: Client) -> None:
    run = begun(client)
    client.stop(run)
    done = move(client.home, client.job(env=ENV), run, client.place("two"))
    assert client.status(done.run)["attempt"] == 2


def test_the_old_box_died_and_comes_back_later(two: tuple[Any, Any], client: Client) -> None:
    first, _ = two
    run = begun(client)
    step = saved_here(client, first, run, lambda s: True)
    first.kill()
    done = move(client.home, client.job(env=ENV), run, client.place("two"))
    assert done.lineage is not None and done.lineage["step"] == step >= 5
    sentence = next(w for w in done.warnings if "starts from" in w)
    assert f"step {step}, from here" in sentence
    assert "were seen and are lost, and what one did since the last look" in sentence, sentence
    final = client.until(done.run, lambda s: s["ended"])
    assert final["state"] == "succeeded" and final["step"] == 60 and final["attempt"] == 2
    first.start()
    seen = client.once(run)  # the first contact: it would have been woken, and is fenced instead
    assert seen.status is not None
    ended = client.until(run, lambda s: s["ended"], wake_it=True)
    assert ended["state"] == "stopped" and ended["fenced"]["run"] == done.run
    assert pids_of(first, "train.py") == []
    # and it cannot be asked to go on: the same job there is a new run
    client.stop(run)
    assert pids_of(first, "train.py") == []


def test_another_client_meets_the_old_box_first(
    two: tuple[Any, Any], new_client: Callable[..., Client], client: Client
) -> None:
    """The fence is on the old box where it could be reached: any client finds it there."""
    first, _ = two
    run = begun(client)
    client.stop(run)
    done = move(client.home, client.job(env=ENV), run, client.place("two"))
    stranger = new_client("stranger")
    from outlive.runs.adopt import adopt

    stranger.use_key(first.key)
    adopt(stranger.home, [first.url])
    status = stranger.status(run)
    assert status["fenced"] and status["fenced"]["run"] == done.run
    shutil.rmtree(stranger.project)
    shutil.copytree(client.project, stranger.project)
    again = stranger.run(stranger.job(env=ENV))
    assert again.run != run and again.how == "created"
    stranger.stop(again.run)


def test_without_any_checkpoint_it_starts_from_zero_and_says_so(two: tuple[Any, Any], client: Client) -> None:
    first, _ = two
    run = client.run(client.job(env={"LAST": "60", "STEP_S": "2"}), "one").run
    first.kill()
    done = move(client.home, client.job(env={"LAST": "5"}), run, client.place("two"))
    assert any("starts from zero" in w for w in done.warnings)
    assert client.until(done.run, lambda s: s["ended"])["state"] == "succeeded"


def test_a_damaged_copy_here_is_not_taken(two: tuple[Any, Any], client: Client) -> None:
    first, _ = two
    run = begun(client)
    step = saved_here(client, first, run, lambda s: True)
    first.kill()
    bad = next(Path(client.directory / "here").rglob(f"step-{step}.json"))
    bad.write_text('{"step": 99}')
    done = move(client.home, client.job(env=ENV), run, client.place("two"))
    assert done.lineage is not None and (done.lineage["step"] is None or done.lineage["step"] < step)
    client.stop(done.run)


def test_secrets_that_are_missing_refuse_before_anything(two: tuple[Any, Any], client: Client) -> None:
    run = begun(client)
    client.stop(run)
    before = client.look("two").runs
    with pytest.raises(errors.UsageError, match="NOT_SET_ANYWHERE"):
        move(client.home, client.job(env=ENV, secrets={"A": "NOT_SET_ANYWHERE"}), run, client.place("two"))
    assert client.look("two").runs == before == []
    assert not client.status(run)["fenced"]
