"""Copies into a safe place: made as checkpoints are committed, read back, waited for, and said when they fail."""

import hashlib
import os
import shutil
import subprocess

import pytest

SAVES = """
import json, os, time
os.makedirs("ckpt", exist_ok=True)
for step in range(1, 5):
    with open("ckpt/ck-%d.json.tmp" % step, "w") as f:
        json.dump({"step": step, "fill": "x" * 5000}, f)
    os.replace("ckpt/ck-%d.json.tmp" % step, "ckpt/ck-%d.json" % step)
    print("step %d/4" % step, flush=True)
    time.sleep(0.7)
json.dump({"ok": 1}, open("final.json", "w"))
"""
ARTIFACTS = {"roster": ["final.json"], "checkpoints": "ckpt"}


def digest(path):
    with open(path, "rb") as handle:
        return hashlib.sha256(handle.read()).hexdigest()


def test_checkpoints_and_result_are_copied_and_read_back(box, tmp_path):
    safe = tmp_path / "safe"
    safe.mkdir()
    run = box.python(SAVES, durable={"to": str(safe)}, artifacts=ARTIFACTS)
    run.until_journal("copy")
    assert not run.status()["ended"], "the first copies are made while it runs"
    assert run.ended()["state"] == "succeeded"
    view = run.view()
    entries = box.call("run_manifest", run=run.id)["manifest"]["entries"]
    assert {e["path"] for e in entries} >= {"final.json", "ckpt/ck-4.json"}
    for entry in entries:
        assert digest(str(safe / run.id / entry["path"])) == entry["sha256"]
        assert any(c["sha256"] == entry["sha256"] and c["read_back"] in ("cache", "storage") for c in view.copies)
    assert [n for _f, _d, names in os.walk(str(safe)) for n in names if n.startswith(".outlive")] == []


def test_a_place_that_is_not_there_is_said_and_nothing_is_created(box, tmp_path):
    run = box.python(
        SAVES, durable={"to": str(tmp_path / "not-mounted")}, artifacts=ARTIFACTS, limits={"final_copy_s": 1.0}
    )
    end = run.ended()
    assert end["state"] == "succeeded"
    assert "NOT all of it is in the safe place" in end["why"] and "not there" in end["why"]
    assert not (tmp_path / "not-mounted").exists()
    assert end["copied"] == 0


def test_a_place_that_refuses_is_said(box, tmp_path):
    """A file stands where the run's directory would be."""
    safe = tmp_path / "safe"
    safe.mkdir()
    spec = box.spec(
        ["python", "-c", SAVES], durable={"to": str(safe)}, artifacts=ARTIFACTS, limits={"final_copy_s": 1.0}
    )
    answer = box.call("run_start", token="t", spec=spec, payload={}, hold=True)
    (safe / answer["run"]).write_text("in the way")
    run = box.python(SAVES, token="t", durable={"to": str(safe)}, artifacts=ARTIFACTS, limits={"final_copy_s": 1.0})
    end = run.ended()
    assert "NOT all of it" in end["why"]
    assert run.journal("copy") == []


def test_nothing_without_a_copy_is_pruned(box, tmp_path):
    run = box.python(
        SAVES,
        durable={"to": str(tmp_path / "gone")},
        artifacts=dict(ARTIFACTS, keep={"latest": 1}),
        limits={"final_copy_s": 0.5},
    )
    run.ended()
    assert len(os.listdir(run.path("ckpt"))) == 4
    assert run.journal("pruned") == []


def test_what_has_a_copy_is_pruned(box, tmp_path):
    safe = tmp_path / "safe"
    safe.mkdir()
    run = box.python(SAVES, durable={"to": str(safe)}, artifacts=dict(ARTIFACTS, keep={"latest": 1}))
    run.ended()
    buried = run.view().tombstones
    assert buried
    for path in buried:
        assert (safe / run.id / path).exists(), "it is gone from the box, not from the safe place"


@pytest.fixture
def rclone(tmp_path, monkeypatch):
    """Folder of a remote `plain:` that the box's rclone knows."""
    if shutil.which("rclone") is None:
        pytest.fail("rclone is missing: apt-get install rclone")
    folder = tmp_path / "remote"
    folder.mkdir()
    config = tmp_path / "rclone.conf"
    config.write_text("[plain]\ntype = alias\nremote = %s\n" % folder)
    monkeypatch.setenv("RCLONE_CONFIG", str(config))
    subprocess.run(["rclone", "listremotes"], check=True, stdout=subprocess.DEVNULL)
    return folder


def test_a_remote_gets_the_result_and_its_own_hash_is_believed(rclone, box):
    run = box.python(SAVES, durable={"to": "rclone:plain:bucket"}, artifacts=ARTIFACTS)
    assert run.ended()["state"] == "succeeded"
    copies = run.view().copies
    assert {c["read_back"] for c in copies} <= {"remote_hash", "storage"} and copies
    assert digest(str(rclone / "bucket" / run.id / "final.json")) in {c["sha256"] for c in copies}


def test_a_remote_that_does_not_exist_is_said(rclone, box):
    run = box.python("open('x.txt', 'w').write('x')", durable={"to": "rclone:nowhere:b"}, limits={"final_copy_s": 1.0})
    assert "NOT all of it" in run.ended(60)["why"]
