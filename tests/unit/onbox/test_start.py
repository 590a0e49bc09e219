"""Which run a start means: one intent one run, the same spec goes on, another one is refused while the first lives."""

import os
import threading

import pytest
from servers.onbox import Refused

from outlive.onbox import calls

QUICK = "import time; print('ready', flush=True); time.sleep(%s); open('x.txt', 'w').write('x')"


def test_the_same_intent_is_the_same_run(box):
    first = box.python(QUICK % 1, token="t1")
    again = box.python(QUICK % 1, token="t1")
    assert (again.id, again.how) == (first.id, "attached")
    first.ended()
    late = box.python(QUICK % 1, token="t1")
    assert (late.id, late.how) == (first.id, "attached")
    assert box.files.run_ids() == [first.id]
    assert len(first.journal("attempt")) == 1


def test_an_intent_that_failed_is_not_tried_again_by_its_own_repetition(box):
    run = box.python("raise SystemExit(3)", token="t1")
    run.ended()
    box.python("raise SystemExit(3)", token="t1")
    assert len(run.journal("attempt")) == 1


def test_the_same_spec_attaches_then_is_finished(box):
    first = box.python(QUICK % 2)
    attached = box.python(QUICK % 2)
    assert (attached.id, attached.how) == (first.id, "attached")
    first.ended()
    finished = box.python(QUICK % 2)
    assert (finished.id, finished.how) == (first.id, "finished")


def test_the_same_spec_resumes_after_a_failure(box):
    code = "import os, sys; n = os.path.exists('once'); open('once', 'w').write('x'); sys.exit(0 if n else 3)"
    first = box.python(code)
    assert first.ended()["state"] == "failed"
    again = box.python(code)
    assert (again.id, again.how) == (first.id, "resumed")
    first.until(lambda s: s["state"] == "succeeded")
    assert [a["attempt"] for a in first.journal("attempt")] == [1, 2]


def test_a_suspect_run_is_run_again_not_only_looked_at_again(box):
    code = "import os; n = os.path.exists('r.json'); open('r.json', 'w').write('{}' if n else '{')"
    first = box.python(code)
    assert first.ended()["state"] == "suspect"
    box.python(code)
    first.until(lambda s: s["state"] == "succeeded")


def test_another_spec_is_refused_while_the_run_lives_with_the_differences(box):
    run = box.python(QUICK % 300, env={"LR": "1"})
    with pytest.raises(Refused) as caught:
        box.python(QUICK % 300, env={"LR": "2"})
    assert caught.value.code == "run_alive"
    assert caught.value.facts["run"] == run.id
    assert caught.value.facts["differences"] == ['env.LR: "1" -> "2"']
    run.ask("stop")
    run.ended()
    other = box.python(QUICK % 0, env={"LR": "2"})
    assert other.id != run.id and other.how == "created"


def test_starts_at_one_moment_are_one_run_and_no_secret_is_lost(box):
    """Each has its own token, as several clients would; only one of the supervisors can win."""
    keys = {"secrets": {"names": ["A", "B"]}}
    found = []

    def start(name):
        found.append(box.python(QUICK % 1, payload={"secrets": {name: "v"}}, **keys))

    threads = [threading.Thread(target=start, args=(n,)) for n in ("A", "B", "A", "B")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({r.id for r in found}) == 1
    assert sorted(r.how for r in found) == ["attached", "attached", "attached", "created"]
    run = found[0]
    assert run.ended()["state"] == "succeeded"
    assert len(run.journal("attempt")) == 1
    assert len(run.journal("supervisor")) == 1


def test_a_held_run_waits_for_its_start(box):
    answer = box.call("run_start", token="t", spec=box.spec(["python", "-c", QUICK % 0]), payload={}, hold=True)
    assert not answer["status"]["supervised"]
    again = box.call("run_start", token="t", spec=box.spec(["python", "-c", QUICK % 0]), payload={}, hold=True)
    assert again["run"] == answer["run"] and not again["status"]["supervised"]
    run = box.python(QUICK % 0, token="t")
    assert run.id == answer["run"]
    assert run.ended()["state"] == "succeeded"


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"pty": True}, "pty"),
        ({"job": "No Spaces"}, "job name"),
        ({"colour": "blue"}, "no key"),
        ({"secrets": {"keep": "cloud"}}, "keep"),
        ({"setup": {"run": "true", "digest": "../x"}}, "setup"),
    ],
)
def test_a_spec_that_cannot_be_executed_is_refused_in_words(box, keys, said):
    with pytest.raises(Refused) as caught:
        box.python("pass", **keys)
    assert caught.value.code == "bad_spec" and said in str(caught.value)
    assert box.files.run_ids() == []


def test_first_contacts_at_one_moment_give_one_box(program, tmp_path, box_at):
    found = []
    threads = [threading.Thread(target=lambda: found.append(box_at(tmp_path / "new"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {b.call("hello")["box_id"] for b in found}
    assert len(found) == 4 and len(ids) == 1 and len(ids.pop()) == 32


def test_looking_never_keeps_a_supervisor_from_starting(box):
    """Whoever asks whether a run is supervised touches its lock."""
    stop = threading.Event()

    def look():
        while not stop.is_set():
            box.call("hello")

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        run = box.python(QUICK % 1)
        run.ended()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert run.status()["state"] == "succeeded"


@pytest.mark.parametrize("name", ["supervisor-0123.cpython-311.code.77.part", "quick-0123.sh", "somebodys.txt"])
def test_a_file_that_comes_into_a_purge_stays_unless_a_program_of_ours_left_it_behind(tmp_path, monkeypatch, name):
    target = tmp_path / "box"
    (target / "runs").mkdir(parents=True)
    (target / "box-id").write_text("x")
    real, came = os.rmdir, []

    def rmdir(path, **keys):
        if os.path.basename(str(path)) == "box" and not came:
            came.append((target / name).write_text("late"))
        real(path, **keys)

    monkeypatch.setattr(os, "rmdir", rmdir)
    if name == "somebodys.txt":
        with pytest.raises(OSError, match="not empty"):
            calls._delete(str(target))
        assert (target / name).read_text() == "late"
    else:
        calls._delete(str(target))
        assert came and not target.exists()


def test_purge_refuses_live_runs_and_another_box(box):
    run = box.python("import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\nopen('x.txt', 'w').write('x')")
    box_id = box.call("hello")["box_id"]
    with pytest.raises(Refused) as caught:
        box.call("purge", box_id=box_id)
    assert caught.value.code == "run_alive" and caught.value.facts["runs"] == [run.id]
    open(run.path("go"), "w").close()
    run.ended()
    with pytest.raises(Refused) as caught:
        box.call("purge", box_id="0" * 32)
    assert caught.value.code == "other_box"
    assert box.call("purge", box_id=box_id, runs=[run.id])["removed"] == [run.files.dir]
    assert box.files.run_ids() == []
