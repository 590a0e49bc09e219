"""pull, with real runs on an embedded box: what comes home, how far it is proved, and what is said of the rest."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import ran

from outlive import errors
from outlive.runs.place import Place
from outlive.runs.pull import mirror_once, pull


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    here = tmp_path / "项目"
    here.mkdir()
    monkeypatch.chdir(here)
    made = ran.local(tmp_path)
    yield made
    made.close()


def test_everything_that_a_run_left_is_here_and_proved(place: Place) -> None:
    run = ran.start(place)
    ran.ended(place, run)
    result = pull(place.home, run)
    assert result.dir == Path.cwd() / "outlive-runs" / run
    assert (result.delivery, result.exit_code, result.wrong, result.missing) == ("proved", 0, {}, [])
    assert {e["path"] for e in result.entries} == {"out/best.json", "out/ckpt/step-0.json", "out/ckpt/step-1.json"}
    assert json.loads((result.dir / "out/best.json").read_bytes()) == {"loss": 0.5}
    own = result.dir / ".outlive"
    assert (own / "log").read_bytes() == b"step 0\nstep 1\n"
    for name in ("journal.jsonl", "metrics.jsonl", "samples.jsonl", "spec.json", "attempts/1/exit", "manifest.json"):
        assert (own / name).exists(), name
    receipt = json.loads(result.receipt_path.read_bytes())
    assert (receipt["schema"], receipt["delivery"]) == ("outlive/pull-receipt/1", "proved")
    assert receipt["same_machine"] is True
    assert {p["sha256"] for p in json.loads((own / "proofs.json").read_bytes())} == {
        e["sha256"] for e in result.entries
    }
    assert place.home.state().runs[run].delivery == "proved"
    assert [p.name for p in result.dir.parent.iterdir()] == [run]


def test_a_second_pull_brings_no_byte(place: Place) -> None:
    run = ran.start(place)
    ran.ended(place, run)
    first = pull(place.home, run)
    records = len(list(place.home.ledger.records()))
    again = pull(place.home, run)
    assert first.bytes_fetched > 0
    assert (again.bytes_fetched, again.delivery, again.kept) == (0, "proved", {})
    # of the run itself one record, and none about copies that were recorded before
    assert len(list(place.home.ledger.records())) == records + 1


def test_a_corrupted_copy_is_brought_again_and_what_stood_there_is_kept(place: Place) -> None:
    run = ran.start(place)
    ran.ended(place, run)
    first = pull(place.home, run)
    spoilt = first.dir / "out/best.json"
    good = spoilt.read_bytes()
    spoilt.write_bytes(b"[" + good[1:])
    again = pull(place.home, run)
    assert spoilt.read_bytes() == good
    assert again.delivery == "proved"
    assert (again.dir / again.kept["out/best.json"]).read_bytes() == b"[" + good[1:]


def test_a_refuted_artifact_comes_home_by_name_and_never_as_proved(place: Place) -> None:
    run = ran.start(place, ran.TRAIN + "open('out/best.json','w').write('{\"loss\": 0.')")
    assert ran.ended(place, run)["state"] == "suspect"
    result = pull(place.home, run)
    assert (result.dir / "out/best.json").read_bytes() == b'{"loss": 0.'
    assert list(result.refuted) == ["out/best.json"]
    assert (result.delivery, result.exit_code) == ("complete", 1)


def test_a_file_changed_on_the_box_is_named_wrong_and_the_others_come(place: Place) -> None:
    run = ran.start(place)
    ran.ended(place, run)
    (ran.work_of(place, run) / "out/best.json").write_text('{"loss": 9.9}')
    result = pull(place.home, run)
    assert list(result.wrong) == ["out/best.json"]
    assert not (result.dir / "out/best.json").exists()
    assert (result.dir / "out/ckpt/step-1.json").exists()
    assert (result.delivery, result.exit_code) == ("partial", 1)


def test_a_live_run_gives_what_stands_and_globs_give_anything(place: Place) -> None:
    run = ran.start(place, ran.TRAIN + "open('out/扩展.csv','w').write('a,b\\n1,2\\n')\ntime.sleep(60)")
    ran.until(place, run, lambda s: s["checkpoints"] == 2)
    part = pull(place.home, run)
    assert part.live and (part.delivery, part.exit_code) == ("partial", 0)
    assert (part.dir / "out/best.json").exists() and (part.dir / "out/ckpt/step-1.json").exists()
    asked = pull(place.home, run, globs=["out/*.csv"])
    assert [e["path"] for e in asked.entries] == ["out/扩展.csv"]
    assert (asked.dir / "out/扩展.csv").read_text() == "a,b\n1,2\n"
    with pytest.raises(errors.CheckFailed, match="matches"):
        pull(place.home, run, globs=["nothing/*"])
    # the log grows, the next pull continues it
    place.call("run_ask", {"run": run, "ask": {"id": "s1", "kind": "stop"}, "wait_s": 5})
    assert ran.ended(place, run)["state"] == "stopped"
    assert pull(place.home, run).delivery == "proved"


def test_mirror_brings_committed_checkpoints_only(place: Place) -> None:
    run = ran.start(place, ran.TRAIN + "time.sleep(60)")
    ran.until(place, run, lambda s: s["checkpoints"] == 2)
    result = mirror_once(place.home, run)
    assert {e["path"] for e in result.entries} == {"out/ckpt/step-0.json", "out/ckpt/step-1.json"}
    assert not (result.dir / ".outlive" / "log").exists()
    assert mirror_once(place.home, run).bytes_fetched == 0
    place.call("run_ask", {"run": run, "ask": {"id": "s1", "kind": "stop"}, "wait_s": 5})
    ran.ended(place, run)


def test_a_pull_holds_what_it_saw_until_it_has_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from outlive.runs import pull as verb

    run = ran.start(place)
    ran.ended(place, run)
    leases = Path(place.box.root) / ".outlive" / "runs" / run / "leases"
    during: list[list[str]] = []
    bring = verb._Pull.bring

    def watched(self: object, wanted: object) -> None:
        during.append([json.loads(p.read_text())["paths"] for p in leases.iterdir()])
        bring(self, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(verb._Pull, "bring", watched)
    pull(place.home, run)
    assert during == [[["out/ckpt/step-0.json", "out/ckpt/step-1.json"]]]
    assert list(leases.iterdir()) == []


def test_an_inferred_roster_of_a_live_run_holds_what_is_new(place: Place) -> None:
    code = "open('made.txt','w').write('x');print('up',flush=True);import time;time.sleep(60)"
    run = ran.start(place, code, artifacts={"roster": [], "checkpoints": ""})
    ran.until(place, run, lambda s: s["log_bytes"])
    result = pull(place.home, run)
    assert [e["path"] for e in result.entries] == ["made.txt"]
    place.call("run_ask", {"run": run, "ask": {"id": "s1", "kind": "stop"}, "wait_s": 5})
    ran.ended(place, run)


def test_a_box_that_is_away_says_what_is_here(place: Place) -> None:
    run = ran.start(place)
    ran.ended(place, run)
    result = pull(place.home, run)
    (result.dir / "out/best.json").unlink()
    os.rename(place.box.root, place.box.root + ".away")
    try:
        with pytest.raises(errors.PlaceError) as caught:
            pull(place.home, run)
    finally:
        shutil.rmtree(place.box.root, ignore_errors=True)
        os.rename(place.box.root + ".away", place.box.root)
    assert caught.value.exit_code == 4
    assert any(str(result.dir) in line for line in caught.value.why)
    assert any("out/best.json" in line for line in caught.value.why)


def test_a_target_that_cannot_be_written_is_a_usage_error(place: Place, tmp_path: Path) -> None:
    run = ran.start(place)
    ran.ended(place, run)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(errors.UsageError, match="cannot be written"):
        pull(place.home, run, to=tmp_path / "file" / "below")
    with pytest.raises(errors.UsageError):
        pull(place.home, run, to=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.root
def test_a_full_disk_here_refuses_before_a_byte(place: Place, tmp_path: Path) -> None:
    import subprocess

    run = ran.start(place, ran.TRAIN + "open('out/best.json','w').write('\"'+'x'*4000000+'\"')")
    ran.ended(place, run)
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)], check=True)
    try:
        with pytest.raises(errors.NoSpace) as caught:
            pull(place.home, run, to=small / "result")
        assert caught.value.exit_code == 3 and caught.value.bytes_needed
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert pull(place.home, run).delivery == "proved"


def test_two_pulls_into_one_target_do_not_meet(place: Place) -> None:
    from outlive.runs.pull import _alone, target_of

    run = ran.start(place)
    ran.ended(place, run)
    with _alone(place.home, target_of(run, None), run), pytest.raises(errors.Refused, match="another pull"):
        pull(place.home, run)


def test_what_nobody_changed_is_known_by_one_question(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from outlive.runs import pull as verb
    from outlive.transport.talk import Talk

    run = ran.start(place)
    ran.ended(place, run)
    ran.until(place, run, lambda s: not s["supervised"])
    time.sleep(0.2)  # what was just written is not trusted by its times
    first = pull(place.home, run)
    asked: list[str] = []
    exchange = Talk._exchange

    def counted(self: Talk, name: str, *args: object, **options: object) -> object:
        asked.append(name)
        return exchange(self, name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Talk, "_exchange", counted)
    again = pull(place.home, run)
    assert asked == ["run_manifest"]
    assert (again.entries, again.delivery, again.bytes, again.levels) == (
        first.entries,
        "proved",
        first.bytes,
        first.levels,
    )
    assert place.home.state().runs[run].delivery == "proved"

    # other bytes with the old size and the old time, here: found, kept aside, and brought again
    mine = first.dir / "out/best.json"
    good, info = mine.read_bytes(), mine.stat()
    mine.write_bytes(b"[" + good[1:])
    os.utime(mine, ns=(info.st_atime_ns, info.st_mtime_ns))
    mended = pull(place.home, run)
    assert mine.read_bytes() == good and list(mended.kept) == ["out/best.json"]

    # and there: its time of change differs, so that the box gives its whole answer
    theirs = ran.work_of(place, run) / "out/best.json"
    info = theirs.stat()
    theirs.write_bytes(b"[" + good[1:])
    os.utime(theirs, ns=(info.st_atime_ns, info.st_mtime_ns))
    looks: list[bool] = []
    read = verb.read_changed

    def looked(*args: object, **options: object) -> object:
        left = read(*args, **options)  # type: ignore[arg-type]
        looks.append(left is not None)
        return left

    monkeypatch.setattr(verb, "read_changed", looked)
    pull(place.home, run)
    assert looks == [True]
