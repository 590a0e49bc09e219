"""Retention: what may be pruned is a pure decision; that it is carried out with a tombstone is looked at for real."""

import json
import os
import random
import time

from outlive.onbox.keep import choose_pruned, step_of, twin_of
from outlive.wire.clock import boot_s

TRAINS = """
import json, os, time
os.makedirs("ckpt", exist_ok=True)
for step in range(1, 9):
    name = "ckpt/%s" % ("best.json" if step == 3 else "ck-%06d.json" % step)
    with open(name + ".tmp", "w") as f:
        json.dump({"step": step}, f)
    os.replace(name + ".tmp", name)
    print("step %d/8 loss %.3f" % (step, abs(step - 5) + 0.5), flush=True)
    time.sleep(0.6)
"""


def some(rng, number):
    stepless = rng.random() < 0.3
    return {
        "path": "ckpt/%s-%03d" % (rng.choice(("ck", "best", "epoch")), number),
        "step": None if stepless and rng.random() < 0.5 else rng.randrange(50),
        "mtime_ns": rng.randrange(10**12),
        "metric": rng.choice(
            ({}, {"loss": rng.random()}, {"val_loss": rng.random()}, {"loss": float("nan")}, {"loss": "x"})
        ),
        "files": [{"sha256": "%d-%d" % (number, i)} for i in range(rng.randrange(1, 3))],
    }


def newest(checkpoints):
    if all(c["step"] is not None for c in checkpoints):
        return max(checkpoints, key=lambda c: (c["step"], c["mtime_ns"]))
    return max(checkpoints, key=lambda c: c["mtime_ns"])


def test_what_is_never_pruned():
    """Whatever the rule: the newest, what is called best, the best by metric, what a pull holds, what has no copy."""
    for seed in range(600):
        rng = random.Random(seed)
        all_of_them = [some(rng, n) for n in range(rng.randrange(0, 12))]
        rule = {"latest": rng.randrange(0, 4), "best": rng.randrange(0, 3), "every_s": rng.choice((None, 10, 200))}
        leased = {c["path"] for c in all_of_them if rng.random() < 0.2}
        digests = [f["sha256"] for c in all_of_them for f in c["files"]]
        copied = rng.choice((None, {d for d in digests if rng.random() < 0.7}))
        pruned = set(choose_pruned(all_of_them, rule, leased, copied))
        assert pruned <= {c["path"] for c in all_of_them}
        assert not pruned & leased, seed
        assert not any("best" in p for p in pruned), seed
        if not all_of_them:
            continue
        assert newest(all_of_them)["path"] not in pruned, seed
        assert len(all_of_them) - len(pruned) >= min(len(all_of_them), max(1, rule["latest"])), seed
        if copied is not None:
            for checkpoint in all_of_them:
                if any(f["sha256"] not in copied for f in checkpoint["files"]):
                    assert checkpoint["path"] not in pruned, seed
        name = "val_loss" if any("val_loss" in c["metric"] for c in all_of_them) else "loss"
        scores = [c["metric"][name] for c in all_of_them if isinstance(c["metric"].get(name), float)]
        scores = [s for s in scores if s == s]
        if rule["best"] and scores:
            kept = [c for c in all_of_them if c["path"] not in pruned and c["metric"].get(name) == min(scores)]
            assert kept, seed
        again = [c for c in all_of_them if c["path"] not in pruned]
        if copied is None and not rule["every_s"] and all(c["step"] is not None for c in all_of_them):
            assert not choose_pruned(again, rule, leased, copied), "pruning twice prunes nothing more"


def test_steps_in_names():
    assert step_of("ckpt/model-000120.pt", {}) == 120
    assert step_of("ckpt/checkpoint-12/", {"step": 5}) in (5, 12)
    assert step_of("ckpt/last.pt", {"step": 7}) == 7
    assert step_of("ckpt/last.pt", {}) is None


def test_the_same_bytes_under_another_step():
    known = [{"path": "ck/step-35.pt", "sha256": "a"}, {"path": "ck/best.pt", "sha256": "b"}]
    known += [{"path": "ck/last-v1.ckpt", "sha256": "c"}]
    assert twin_of("ck/step-40.pt", "a", known) == "ck/step-35.pt"
    assert twin_of("ck/step-40.pt", "x", known) == ""
    assert twin_of("ck/step-35.pt", "a", known) == ""  # itself, proved once more
    assert twin_of("ck/step-40.pt", "b", known) == ""  # the best is a copy of one
    assert twin_of("ck/epoch=0-step=500.ckpt", "c", known) == ""


def test_a_checkpoint_with_an_older_ones_bytes_is_told(box):
    source = TRAINS + "\nimport shutil; shutil.copy('ckpt/ck-000007.json', 'ckpt/ck-000009.json')\n"
    run = box.python(source, artifacts={"checkpoints": "ckpt"})
    assert run.until_journal("ended", 120.0)["state"] == "succeeded"
    why = run.troubles()["checkpoints"]
    assert "ck-000009.json has the very bytes of ckpt/ck-000007.json" in why


def test_pruning_leaves_tombstones_and_spares_what_is_held(box):
    keys = {"artifacts": {"checkpoints": "ckpt", "keep": {"latest": 1, "best": 1}}}
    spec = box.spec(["python", "-c", TRAINS], **keys)
    held = box.files.run(box.call("run_start", token="t", spec=spec, payload={}, hold=True)["run"])
    machine = box.call("hello")["machine"]
    first = "ckpt/ck-000001.json"
    with open(os.path.join(held.leases, "pull.json"), "w") as handle:
        json.dump({"machine": machine, "until_b": boot_s() + 600, "paths": [first]}, handle)
    run = box.python(TRAINS, token="t", **keys)
    assert run.id == held.id
    end = run.ended()
    assert end["state"] == "succeeded"
    run.until(lambda s: not s["supervised"])
    left = set(os.listdir(run.path("ckpt")))
    assert {os.path.basename(first), "best.json", "ck-000008.json"} <= left
    buried = set(run.view().tombstones)
    assert buried and not buried & {"ckpt/" + n for n in left}
    assert len(left) + len(buried) == 8, "each is there, or its tombstone says why not"
    kinds = [r["k"] for r in run.journal()]
    assert "checkpoint_gone" not in kinds, "what we removed is not taken for what the work removed"


SAVES_DIRECTORIES = """
import json, os, time
for step in range(1, 7):
    name = "ckpt/step-%d" % step
    os.makedirs(name + ".tmp")
    for part in ("a", "b"):
        with open(name + ".tmp/%s.json" % part, "w") as f:
            json.dump({"step": step}, f)
    os.rename(name + ".tmp", name)
    print("step %d/6" % step, flush=True)
    time.sleep(0.6)
"""


def test_one_leased_file_holds_its_whole_checkpoint_directory(box):
    keys = {"artifacts": {"checkpoints": "ckpt", "keep": {"latest": 1}}}
    spec = box.spec(["python", "-c", SAVES_DIRECTORIES], **keys)
    held = box.files.run(box.call("run_start", token="t", spec=spec, payload={}, hold=True)["run"])
    lease = {
        "machine": box.call("hello")["machine"],
        "until_b": boot_s() + 600,
        "paths": ["ckpt/step-1/a.json"],
    }
    with open(os.path.join(held.leases, "pull.json"), "w") as handle:
        json.dump(lease, handle)
    run = box.python(SAVES_DIRECTORIES, token="t", **keys)
    assert run.ended()["state"] == "succeeded"
    run.until(lambda s: not s["supervised"])
    assert sorted(os.listdir(run.path("ckpt", "step-1"))) == ["a.json", "b.json"]
    assert run.view().tombstones, "the others were pruned"


def test_a_look_that_holds_keeps_what_it_answers(box):
    """Without that a pull could find everything pruned between its look and its first byte."""
    run = box.python(TRAINS, artifacts={"checkpoints": "ckpt", "keep": {"latest": 1}})
    run.until_journal("checkpoint")
    seen = box.call("run_manifest", run=run.id, hold="look-1")["checkpoints"]
    assert seen
    run.until_journal("pruned")
    run.ended()
    assert all(os.path.exists(run.path(c["path"])) for c in seen)
    assert os.listdir(run.files.leases) == ["look-1.json"]
    box.call("lease_release", run=run.id, lease="look-1")
    box.call("lease_release", run=run.id, lease="look-1")
    assert os.listdir(run.files.leases) == []


SAVES_AT_ITS_END = """
import json, os
os.makedirs("ckpt")
for step in range(1, 6):
    with open("ckpt/ck-%d.json" % step, "w") as f:
        json.dump({"step": step}, f)
with open("big.bin", "wb") as f:
    f.truncate(3 * 10**9)
"""


def test_what_the_last_list_names_is_not_pruned_any_more(box):
    """The list takes a while: here its child digests three gigabytes while retention's next look comes."""
    keys = {"artifacts": {"checkpoints": "ckpt", "keep": {"latest": 2}}, "limits": {"scan_s": 5.0}}
    run = box.python(SAVES_AT_ITS_END, **keys)
    assert run.ended()["state"] == "succeeded"
    run.until(lambda s: not s["supervised"])
    with open(run.files.roster) as handle:
        listed = {e["path"] for e in json.load(handle)["entries"]}
    there = {"ckpt/" + name for name in os.listdir(run.path("ckpt"))}
    assert listed == there | {"big.bin"}
    assert there == {"ckpt/ck-4.json", "ckpt/ck-5.json"}, "retention came before the list"


def test_a_lease_of_another_boot_or_of_the_past_is_void(box):
    run = box.python(TRAINS, artifacts={"checkpoints": "ckpt", "keep": {"latest": 1}})
    first = run.until_journal("checkpoint")
    machine = box.call("hello")["machine"]
    for name, lease in (
        ("old", {"machine": machine, "until_b": boot_s() - 1}),
        ("other", {"machine": "another boot", "until_b": boot_s() + 999}),
    ):
        with open(os.path.join(run.files.leases, name + ".json"), "w") as handle:
            json.dump(dict(lease, paths=[first["path"]]), handle)
    run.until_journal("pruned")
    run.ended()
    assert first["path"] in run.view().tombstones
    assert os.listdir(run.files.leases) == []


def test_nothing_is_pruned_unasked(box):
    run = box.python(TRAINS, artifacts={"checkpoints": "ckpt"})
    run.ended()
    assert len(os.listdir(run.path("ckpt"))) == 8 and run.view().tombstones == []


# Waits until the test has seen what it waits for; how long a scan takes is the machine's business.
WAITS = """
import os, time
os.makedirs("ckpt", exist_ok=True)
def until(name):
    while not os.path.exists("../control/" + name):
        time.sleep(0.05)
"""


def go(run, name):
    with open(os.path.join(run.files.control, name), "w"):
        pass


def test_a_broken_checkpoint_is_refuted_once_and_resumed_from_never(box):
    code = """
open("ckpt/ck-1.json", "w").write('{"step": 1}')
until("one")
open("ckpt/ck-2.json", "w").write('{"step": ')
until("two")
open("ckpt/ck-2.json", "w").write('{"step": 2}')
"""
    run = box.python(WAITS + code, artifacts={"checkpoints": "ckpt"})
    run.until_journal("checkpoint")
    go(run, "one")
    run.until_journal("checkpoint_bad")
    time.sleep(1.0)
    status = run.status()
    assert status["checkpoint"]["path"] == "ckpt/ck-1.json"
    assert status["bad_checkpoints"] == ["ckpt/ck-2.json"]
    assert len(run.journal("checkpoint_bad")) == 1
    go(run, "two")
    end = run.ended()
    assert end["state"] == "succeeded" and end["checkpoint"]["path"] == "ckpt/ck-2.json"


def test_a_save_under_way_is_not_taken_for_one(box):
    code = """
os.makedirs("ckpt/step-5", exist_ok=True)
open("ckpt/step-5/model.json", "w").write("{}")
open("ckpt/step-5/optimizer.json.tmp", "w").write("{")
open("ckpt/.hidden", "w").write("{")
print("ready", flush=True)
until("one")
os.unlink("ckpt/step-5/optimizer.json.tmp")
open("ckpt/step-5/optimizer.json", "w").write("{}")
"""
    run = box.python(WAITS + code, artifacts={"checkpoints": "ckpt"})
    run.until_journal("first_line")
    time.sleep(1.2)
    assert run.journal("checkpoint") == []
    go(run, "one")
    run.ended()
    [record] = run.journal("checkpoint")
    assert sorted(f["path"] for f in record["files"]) == ["ckpt/step-5/model.json", "ckpt/step-5/optimizer.json"]
    assert record["step"] == 5


def test_what_the_work_removes_is_told_apart(box):
    code = """
open("ckpt/a.json", "w").write("{}")
until("one")
os.unlink("ckpt/a.json")
open("ckpt/b.json", "w").write("[]")
until("two")
"""
    run = box.python(WAITS + code, artifacts={"checkpoints": "ckpt"})
    run.until_journal("checkpoint")
    go(run, "one")
    run.until_journal("checkpoint_gone", path="ckpt/a.json")
    go(run, "two")
    assert run.ended()["state"] == "succeeded"
    assert run.view().tombstones == []


def test_a_clock_that_was_set_back_does_not_make_the_last_checkpoint_the_oldest():
    def one(n, mtime_s):
        return {"path": f"ckpt/{n}", "n": n, "step": None, "mtime_ns": mtime_s * 10**9, "metric": {}, "files": []}

    yesterday = [one(number, 86400 + number) for number in range(3)] + [one(3, 100)]
    assert "ckpt/3" not in choose_pruned(yesterday, {"latest": 1}, set(), None)
    assert set(choose_pruned(yesterday, {"latest": 1}, set(), None)) == {"ckpt/0", "ckpt/1"}
