"""`outlive ckpt` over directories here: every word, as text and as JSON, and what is typed wrong."""

import json
import os

import pytest

from outlive.checkpoints import safetensors_format as st
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.store import Store
from outlive.cli.main import main


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def place(tmp_path):
    """A directory with steps 100, 200, 300; the best is 200, the first is pinned."""
    directory = str(tmp_path / "out" / "ckpt")
    with Store(directory, Keep(latest=9)) as store:
        for step, loss in ((100, 3.0), (200, 1.0), (300, 2.0)):
            writing = store.begin(step)
            with writing.open("model.safetensors") as handle:
                st.write(handle, {"w": ("F32", (2,), b"\0" * 8)})
            saved = store.publish(writing, metrics={"val_loss": loss, "acc": loss / 10}, milestone=step == 200)
        store.pin("step-000000100")
        store.verify(saved)
    return directory


def damage(place, step):
    path = os.path.join(place, f"step-{step:09d}", "model.safetensors")
    with open(path, "r+b") as handle:
        handle.seek(-1, 2)
        handle.write(b"\1")


def asked(capsys, *words):
    code = main(["ckpt", *words])
    out, err = capsys.readouterr()
    return code, out, err


def as_json(capsys, *words):
    code, out, _err = asked(capsys, *words, "--json")
    return code, json.loads(out)


def test_ls_as_text(capsys, place):
    code, out, _err = asked(capsys, "ls", place)
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["step-000000100", "step-000000200", "step-000000300"]
    assert "pinned" in lines[1] and "milestone" in lines[2] and lines[3].rstrip().endswith("bytes")
    assert "not verified" in lines[1]


def test_ls_as_json_and_by_the_directory_above(capsys, place):
    for where in (place, os.path.dirname(place)):
        code, data = as_json(capsys, "ls", where)
        assert code == 0 and data["schema"] == "outlive/ckpt/1" and data["where"] == place
        assert [one["step"] for one in data["checkpoints"]] == [100, 200, 300]
        assert data["checkpoints"][2]["verified"]["ok"] is True


def test_ls_changes_nothing_and_needs_no_index(capsys, place):
    os.unlink(os.path.join(place, "checkpoints_index.json"))
    before = sorted(os.listdir(place))
    code, out, err = asked(capsys, "ls", place)
    assert code == 0 and "missing" in err and "step-000000300" in out
    assert sorted(os.listdir(place)) == before


def test_it_may_be_asked_while_a_training_writes(capsys, place):
    with Store(place, Keep(latest=9)) as store:
        store.begin(400)
        code, _out, err = asked(capsys, "ls", place)
        assert code == 0 and "this same process" in err
        assert asked(capsys, "verify", place)[0] == 0


def test_verify_names_the_damaged(capsys, place):
    code, out, _err = asked(capsys, "verify", place)
    assert code == 0 and "3 good, 0 bad" in out and "good (structure)" in out
    damage(place, 300)
    code, out, _err = asked(capsys, "verify", place)
    assert code == 1 and "BAD: model.safetensors does not have the digest" in out and "2 good, 1 bad" in out
    code, data = as_json(capsys, "verify", place, "step-000000200")
    assert code == 0 and [one["name"] for one in data["checkpoints"]] == ["step-000000200"]
    code, data = as_json(capsys, "verify", place, "--level", "tensors")
    assert code == 1 and [one["verdict"]["ok"] for one in data["checkpoints"]] == [True, True, False]


def test_a_truncated_one_is_bad_at_once(capsys, place):
    os.truncate(os.path.join(place, "step-000000300", "model.safetensors"), 3)
    code, out, _err = asked(capsys, "ls", place)
    assert code == 0 and "BAD" in out and "3 bytes" in out
    assert asked(capsys, "verify", place)[0] == 1
    assert asked(capsys, "verify", place, "step-000000300")[0] == 1


def test_best(capsys, place):
    assert asked(capsys, "best", place)[1] == os.path.join(place, "step-000000200") + "\n"
    assert asked(capsys, "best", place, "--mode", "max")[1].endswith("step-000000100\n")
    assert as_json(capsys, "best", place, "--metric", "acc")[1]["metric"] == "acc"
    code, _out, err = asked(capsys, "best", place, "--metric", "nope")
    assert code == 1 and "acc, val_loss" in err


def test_resume_point(capsys, place):
    assert asked(capsys, "resume-point", place)[1] == os.path.join(place, "step-000000300") + "\n"
    damage(place, 300)
    code, out, err = asked(capsys, "resume-point", place)
    assert code == 0 and out.endswith("step-000000200\n") and "step-000000300 was passed over" in err
    for step in (100, 200):
        damage(place, step)
    code, _out, err = asked(capsys, "resume-point", place)
    assert code == 1 and "step-000000100" in err and "digest" in err


def test_a_single_checkpoint(capsys, place):
    path = os.path.join(place, "step-000000200")
    assert as_json(capsys, "ls", path)[1]["checkpoints"][0]["step"] == 200
    assert asked(capsys, "verify", path)[0] == 0


def test_folders_of_others(capsys, tmp_path):
    for step in (10, 20):
        folder = tmp_path / "hf" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "trainer_state.json").write_text(
            json.dumps({"global_step": step, "log_history": [{"step": step, "loss": step}]})
        )
        st.write(str(folder / "model.safetensors"), {"w": ("F32", (2,), b"\0" * 8)})
    where = str(tmp_path / "hf")
    code, data = as_json(capsys, "ls", where)
    assert code == 0 and data["format"] == "hf-trainer" and [one["step"] for one in data["checkpoints"]] == [10, 20]
    assert asked(capsys, "best", where)[1].endswith("checkpoint-10\n")
    os.truncate(tmp_path / "hf" / "checkpoint-20" / "model.safetensors", 12)
    assert asked(capsys, "verify", where)[0] == 1
    assert asked(capsys, "resume-point", where)[1].endswith("checkpoint-10\n")


def test_a_newer_format_is_said_to_be_one(capsys, place):
    path = os.path.join(place, "step-000000300", "checkpoint.json")
    with open(path) as handle:
        data = json.load(handle)
    with open(path, "w") as handle:
        json.dump(dict(data, version=5), handle)
    code, out, _err = asked(capsys, "ls", place)
    assert code == 0 and "format version 5" in out
    assert asked(capsys, "verify", place)[0] == 1
    code, _out, err = asked(capsys, "ls", os.path.dirname(path))
    assert code == 1 and "format version 5" in err


def test_what_cannot_be_meant(capsys, tmp_path, place):
    code, _out, err = asked(capsys, "ls", str(tmp_path / "nowhere"))
    assert code == 2 and "there is no" in err
    (tmp_path / "notes.txt").write_text("hello")
    code, _out, err = asked(capsys, "verify", str(tmp_path / "notes.txt"))
    assert code == 2 and "torch .pt" in err
    code, _out, err = asked(capsys, "verify", place, "step-000000301")
    assert code == 2 and "step-000000300" in err
    assert asked(capsys, "ls", "no-such-run")[0] == 2
    assert asked(capsys)[0] == 2
    code, out, _err = asked(capsys, "best", place, "--metric", "nope", "--json")
    assert code == 1 and json.loads(out)["schema"] == "outlive/error/1"


def test_nothing_there_yet(capsys, tmp_path):
    empty = str(tmp_path / "empty")
    os.mkdir(empty)
    code, out, _err = asked(capsys, "ls", empty)
    assert code == 0 and "no checkpoints" in out
    code, _out, err = asked(capsys, "resume-point", empty)
    assert code == 1 and "step 0" in err
    assert asked(capsys, "verify", empty)[0] == 1


# ---- a run ----


class FakePlace:
    """Answers as a box does: two checkpoints, one of them copied, and one that was refuted."""

    name = "box-1"

    def __init__(self):
        self.sha256 = {"ckpt/step-10/a": "1" * 64, "ckpt/step-20/a": "2" * 64}

    def call(self, name, request, timeout_s=0.0):
        if name == "tree_list":
            entries = [
                {"path": path, "bytes": 5, "sha256": self.sha256[path], "mtime_ns": 1, "mode": 420}
                for path in request["paths"]
                if path in self.sha256
            ]
            return {"base": request["base"], "entries": entries, "moving": []}
        assert name == "run_manifest" and request == {"run": "job-260101-abcd"}

        def one(step, sha256, loss):
            files = [{"path": f"ckpt/step-{step}/a", "sha256": sha256 * 64, "bytes": 5}]
            metric = {"step": step, "val_loss": loss, "note": "x"}
            more = {"bytes": 5, "mtime_ns": step, "level": "tensors", "w": 7.0}
            return {"path": f"ckpt/step-{step}", "step": step, "files": files, "metric": metric, **more}

        return {
            "work": "/root/work",
            "spec": {"artifacts": {"checkpoints": "ckpt"}},
            "checkpoints": [one(20, "2", 0.5), one(10, "1", 0.25)],
            "copies": [{"sha256": "1" * 64, "place": "mount:/mnt", "path": "a", "read_back": "storage", "wall_s": 1.0}],
            "bad_checkpoints": [{"path": "ckpt/step-15", "why": "a: the end is missing"}],
        }

    def close(self):
        pass


@pytest.fixture
def box(monkeypatch):
    from types import SimpleNamespace

    from outlive.runs.home import Home

    place = FakePlace()
    monkeypatch.setattr(Home, "run_of", lambda self, word: SimpleNamespace(run="job-260101-abcd", box="box-1"))
    monkeypatch.setattr(Home, "box_of", lambda self, word: None)
    monkeypatch.setattr("outlive.runs.place.open_place", lambda home, box: place)
    return place


def test_the_checkpoints_of_a_run(capsys, box):
    code, out, _err = asked(capsys, "ls", "job")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["step-10", "step-20", "step-15"]
    assert "tensors, copied" in lines[1] and "copied" not in lines[2] and "the end is missing" in lines[3]
    assert asked(capsys, "best", "job")[1] == "box-1:/root/work/ckpt/step-10\n"
    assert asked(capsys, "resume-point", "job")[1] == "box-1:/root/work/ckpt/step-20\n"
    assert as_json(capsys, "ls", "job")[1]["run"] == "job-260101-abcd"


def test_a_runs_files_are_read_again_on_its_box(capsys, box):
    assert asked(capsys, "verify", "job", "step-20")[0] == 0
    assert asked(capsys, "verify", "job")[0] == 1  # the refuted one
    box.sha256["ckpt/step-20/a"] = "9" * 64
    assert asked(capsys, "verify", "job", "step-20")[0] == 1
    code, out, err = asked(capsys, "resume-point", "job")
    assert code == 0 and out.endswith("step-10\n") and "step-20 was passed over" in err
    del box.sha256["ckpt/step-10/a"]
    code, _out, err = asked(capsys, "resume-point", "job")
    assert code == 1 and "ckpt/step-10/a is missing" in err and "step-15" in err
