"""A work that keeps its checkpoints with our library is the one pruner of its directory; we prove and copy."""

import json
import os
import time

from servers.onbox import SOURCE

from outlive.checkpoints.index import read_index
from outlive.checkpoints.record import RECORD, read_record
from outlive.onbox.keep import kept_by_the_work

HEAD = """
import json, os, sys, time
from outlive.checkpoints.store import Store
from outlive.checkpoints.retention import Keep

def save(store, step):
    writing = store.begin(step)
    writing.add_bytes("state.json", json.dumps({"step": step}).encode())
    return store.publish(writing, metrics={"val_loss": abs(step - 2)})

def wait(path, holds=lambda text: True):
    for _ in range(1200):
        try:
            with open(path) as handle:
                if holds(handle.read()):
                    return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("nothing came: " + path)
"""
SAVES = (
    HEAD
    + """
with Store("ckpt", Keep(latest=1, best=1)) as store:
    for step in range(1, 6):
        save(store, step)
        # until it is proved it is held
        wait(os.environ["OUTLIVE_LEASES"] + "/supervisor.json", lambda text: "step-%09d" % step in text)
    print("saved", flush=True)
    wait("go")
    print(store.prune(), flush=True)
"""
)
HELD = (
    HEAD
    + """
with Store("ckpt", Keep(latest=1, best=0)) as store:
    save(store, 1)
    wait(os.environ["OUTLIVE_LEASES"] + "/supervisor.json", lambda text: "step-000000001" in text)
    save(store, 2)
    save(store, 3)
    store.prune()
    with open("left.new", "w") as handle:
        json.dump(sorted(n for n in os.listdir("ckpt") if n.startswith("step")), handle)
    os.rename("left.new", "left.json")
    time.sleep(600)
"""
)
ENV = {"PYTHONPATH": str(SOURCE.parent)}
SLOW = {"scan_s": 0.5}


def test_the_work_prunes_and_the_supervisor_does_not(box):
    keep = {"checkpoints": "ckpt", "keep": {"latest": 1, "best": 0}}
    run = box.python(SAVES, artifacts=keep, env=ENV, limits=SLOW)
    for step in range(1, 6):
        run.until_journal("checkpoint", 120.0, path="ckpt/step-%09d" % step)
    records = {r["step"]: r for r in run.journal("checkpoint")}
    assert sorted(records) == [1, 2, 3, 4, 5]
    assert records[4]["metric"] == {"val_loss": 2.0}, "as the record says it, not as the log does"
    assert {os.path.basename(f["path"]) for f in records[4]["files"]} == {RECORD, "state.json"}
    with open(run.path("go"), "w") as handle:
        handle.write("go")
    assert run.ended(120.0)["state"] == "succeeded", run.told()
    assert run.journal("pruned") == [], "there is one pruner"
    left = sorted(name for name in os.listdir(run.path("ckpt")) if name.startswith("step"))
    assert left == ["step-000000002", "step-000000005"]
    run.until(lambda s: not s["supervised"], 120.0)
    gone = {r["path"] for r in run.journal("checkpoint_gone")}
    assert gone == {"ckpt/step-00000000%d" % step for step in (1, 3, 4)}
    assert run.journal("checkpoint_bad") == []
    assert [entry.step for entry in read_index(run.path("ckpt"))[0].entries] == [2, 5]


def test_what_has_no_copy_yet_is_held_against_the_works_own_retention(box, tmp_path):
    """The durable place is not there: what lies here is the only copy."""
    nowhere = str(tmp_path / "not-mounted" / "place")
    run = box.python(HELD, artifacts={"checkpoints": "ckpt"}, env=ENV, durable={"to": nowhere}, limits=SLOW)
    until = time.monotonic() + 120
    while not os.path.exists(run.path("left.json")):
        assert time.monotonic() < until, run.told()
        time.sleep(0.1)
    with open(run.path("left.json")) as handle:
        left = json.load(handle)
    assert left == ["step-000000001", "step-000000003"] or left == [
        "step-000000001",
        "step-000000002",
        "step-000000003",
    ]  # the second is held only if it was seen in time
    with open(os.path.join(run.files.leases, "supervisor.json")) as handle:
        assert "ckpt/step-000000001" in json.load(handle)["paths"]


def test_a_checkpoint_that_contradicts_its_record_is_bad(box):
    code = HEAD + (
        "store = Store('ckpt').open()\n"
        "saved = save(store, 1)\n"
        "with open(saved.file('state.json'), 'w') as handle: handle.write('{\"step\": 9}')\n"
        "save(store, 2)\n"
        "wait('go')\n"
    )
    run = box.python(code, artifacts={"checkpoints": "ckpt"}, env=ENV, limits=SLOW)
    bad = run.until_journal("checkpoint_bad", 120.0)
    assert bad["path"] == "ckpt/step-000000001" and "digest" in bad["why"]
    run.until_journal("checkpoint", 120.0, path="ckpt/step-000000002")
    with open(run.path("go"), "w") as handle:
        handle.write("go")
    run.ended(120.0)
    assert read_record(run.path("ckpt", "step-000000002")).step == 2
    assert kept_by_the_work(run.path("ckpt")) and not kept_by_the_work(run.path())


def test_the_work_is_told_the_grace_and_the_leases(box):
    show = "import os; print(os.environ['OUTLIVE_GRACE_S'], os.environ['OUTLIVE_LEASES'])"
    run = box.python(show, limits={"grace_s": 7.5})
    run.ended(120.0)
    assert run.log().decode().split() == ["7.5", run.files.leases]
