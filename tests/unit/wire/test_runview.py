"""The fold of a journal: every reader of the same records sees the same run."""

from outlive.wire.runview import RunView


class Story:
    """Writes a journal in words."""

    def __init__(self):
        self.records = []
        self.say("created", run="job-260101-abcd", job="job", token="t", spec="d", lease_max_s=None)

    def say(self, kind, **fields):
        self.records.append(dict({"n": len(self.records), "k": kind, "b": 1.0, "w": 2.0}, **fields))
        return self

    def attempt(self, stage="main", machine="m"):
        number = 1 + sum(r["k"] == "attempt" for r in self.records)
        return self.say("attempt", attempt=number, stage=stage, uuid="u%d" % number, machine=machine)

    def over(self, cls="killed_unexplained", **fields):
        return self.say("attempt_ended", attempt=1, stage="main", outcome={"cls": cls}, **fields)

    def saved(self, path="ck-1", sha256="a", step=None):
        return self.say("checkpoint", path=path, sha256=sha256, step=step, files=[], mtime_ns=1)

    def view(self):
        return RunView().add_all(self.records)


def test_records_count_once_however_often_they_are_read():
    story = Story().attempt().over().attempt().over()
    twice = RunView().add_all(r for record in story.records for r in (record, record))
    again = story.view().add_all(story.records)
    assert twice.retries == again.retries == story.view().retries == 2
    assert len(again.attempts) == 2


def test_kinds_of_a_newer_writer_are_ignored():
    story = Story().say("from_the_future", what=1).attempt()
    assert story.view().attempt.number == 1


def test_the_budget_counts_attempts_without_progress():
    story = Story().attempt().over().attempt().over()
    assert story.view().retries == 2
    story.attempt().saved("ck-5", "s5", 5).over()
    assert story.view().retries == 0
    story.attempt().over()
    assert story.view().retries == 1
    story.attempt().over("succeeded")
    assert story.view().retries == 0


def test_a_save_proved_after_the_end_is_progress_too():
    story = Story().attempt().over().attempt().over().saved("ck-5", "s5", 5)
    assert story.view().retries == 0


def test_saving_again_what_was_loaded_is_no_progress():
    story = Story().attempt().saved("ck-5", "s5", 5).over()
    story.attempt().saved("ck-5", "other bytes of the same step", 5).over()
    assert story.view().retries == 1
    story.attempt().say("checkpoint_gone", path="ck-5").saved("ck-5", "s5", 5).over()
    assert story.view().retries == 2
    story.attempt().saved("last", "n1").over()
    assert story.view().retries == 0, "without steps, other bytes are progress"
    story.attempt().saved("last", "n1").over()
    assert story.view().retries == 1


def test_each_stage_counts_its_own_steps():
    story = Story().attempt("one").saved("a-900", "x", 900).over("succeeded").say("stage_done", stage="one")
    story.attempt("two").saved("b-5", "y", 5).over()
    assert story.view().retries == 0


def test_the_first_failure_is_the_reason():
    story = Story().attempt().over("code").say("stage_failed", stage="main", outcome={"cls": "code"})
    story.attempt("tidy").over("config").say("stage_failed", stage="tidy", outcome={"cls": "config"})
    view = story.view()
    assert view.stage_failed == "main" and view.final_outcome == {"cls": "code"}
    assert view.stages_failed == ["main", "tidy"]


def test_a_stop_is_of_the_attempt_that_ran_when_it_was_asked():
    story = Story().attempt().say("stop_asked", reason="asked", why="w", grace_s=1)
    assert story.view().stopping()["why"] == "w"
    story.over("stopped").attempt("tidy")
    assert story.view().stopping() is None and story.view().run_stop() is not None
    story.say("stop_asked", reason="asked", why="again", grace_s=1)
    assert story.view().stopping()["why"] == "again"


def test_letting_a_hung_process_go_is_no_stop_of_the_run():
    story = Story().attempt().say("stop_asked", reason="hung", why="w", grace_s=1)
    assert story.view().stopping() is not None and story.view().run_stop() is None


def test_going_on_forgets_the_end_and_keeps_the_past():
    story = Story().attempt().saved().over("code").say("stage_failed", stage="main", outcome={"cls": "code"})
    story.say("ended", state="failed", why="w", outcome={"cls": "code"}).say("resumed", by="a client")
    view = story.view()
    assert not view.ended and not view.stage_failed and view.retries == 0 and view.final_outcome is None
    assert view.attempt.number == 1 and "ck-1" in view.checkpoints


def test_a_suspect_stage_runs_again():
    story = Story().attempt().over("succeeded").say("stage_done", stage="main").say("ended", state="suspect", why="w")
    assert story.view().stages_done == ["main"]
    assert story.say("resumed").view().stages_done == []


def test_checkpoints_come_and_go():
    story = Story().attempt().saved("ck-1", "a", 1).saved("ck-2", "b", 2)
    assert story.view().newest_checkpoint()["path"] == "ck-2"
    story.say("checkpoint_bad", path="ck-2", why="corrupt", signature=[1, 2, 3])
    assert story.view().newest_checkpoint()["path"] == "ck-1"
    assert set(story.view().bad_checkpoints) == {"ck-2"}
    story.say("pruned", paths=["ck-1"]).say("pruned", paths=["ck-1"])
    assert story.view().newest_checkpoint() is None and story.view().tombstones == ["ck-1"]
    story.saved("ck-1", "c", 3)
    assert story.view().tombstones == [], "it is there again"


def test_failed_copies_are_forgotten_when_the_whole_arrived():
    story = Story().attempt().say("copy_failed", path="roster", why="full")
    story.say("copy", copy={"sha256": "a", "path": "x"}, of="")
    assert story.view().copy_failed == {"roster": "full"}
    story.say("copy", copy={"sha256": "b", "path": "y"}, of="roster")
    assert story.view().copy_failed == {}


def test_alarms_are_raised_and_cleared():
    story = Story().say("alarm", alarm="stall", sentence="quiet")
    assert set(story.view().alarms) == {"stall"}
    assert story.say("alarm", alarm="stall", cleared=True).view().alarms == {}
