"""A log without end: bounded on disk, offsets unchanged, and nobody waits for it."""

import json
import os
import signal
from types import SimpleNamespace

from outlive.onbox.tail import RUSH_S, LogTail
from outlive.wire.names import RunFiles
from outlive.wire.runview import RunView


def test_a_rushing_log_is_looked_at_between_two_rounds(tmp_path):
    """A flood fills a small disk in less than the time between two usual looks."""
    run = RunFiles(str(tmp_path))
    view, looks = RunView(), []
    context = SimpleNamespace(run=run, view=view, limits={"log_cap_bytes": 8 << 20}, trouble=lambda *words: None)
    (tmp_path / "log").write_bytes(b"")
    tail = LogTail(context, lambda text: None)
    tail.enforce_cap = looks.append
    with open(run.log, "ab") as log:
        log.write(b"a line\n")
    tail.tick()
    assert not tail.rushing
    tail.pause(3 * RUSH_S)
    assert looks == [], "a calm log costs one sleep"
    with open(run.log, "ab") as log:
        log.write(b"x" * (3 << 20))
    tail.tick()
    assert tail.rushing
    tail.pause(3 * RUSH_S)
    assert looks == [8 << 20], "and when it is calm again, that is seen at the first look"
    tail.close()


def test_a_flood_is_bounded_and_its_head_and_tail_stay(box):
    code = """
import os
out = os.fdopen(1, "wb", 1 << 20)
out.write(b"the head\\n")
line = b"step 1/2 loss 0.5 " + b"x" * 1000 + b"\\n"
for i in range(200_000):
    out.write(line)
out.write(b"step 2/2 loss 0.25\\n")
out.flush()
open("x.txt", "w").write("x")
"""
    cap_bytes = 8 << 20
    run = box.python(code, limits={"log_cap_bytes": cap_bytes})
    run.until_journal("ended", 60)
    assert run.status()["state"] == "succeeded"
    run.until(lambda s: not s["supervised"])
    info = os.stat(run.files.log)
    assert info.st_size > 200_000_000, "no offset changed"
    assert info.st_blocks * 512 < 2 * cap_bytes, "what lies between was given back"
    gaps = run.view().log_gaps
    assert gaps and all(g["from"] < g["to"] for g in gaps)
    frames = box.frames("poll", runs={run.id: {"log": 0}}, limit_bytes=4096)
    assert [p for h, p in frames if h["t"] == "log"][0].startswith(b"the head\n")
    assert run.status()["step"] == 2


def test_points_of_the_time_without_a_supervisor_are_not_lost(box):
    code = """
import time
for i in range(60):
    print("step %d/60 loss %.2f" % (i, 1.0 / (i + 1)), flush=True)
    time.sleep(0.1)
open("x.txt", "w").write("x")
"""
    run = box.python(code)
    run.until(lambda s: s["step"] is not None and os.path.getsize(run.files.metrics) > 0)
    os.kill(run.supervisor_pid(), signal.SIGKILL)
    assert run.ended()["state"] == "succeeded"
    with open(run.files.metrics) as handle:
        steps = [json.loads(line)["step"] for line in handle]
    assert sorted(set(steps)) == list(range(60))
    assert len(steps) == 60, "and none is there twice"
