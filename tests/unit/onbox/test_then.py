"""What follows the end of a run from inside the box."""

import os
import sys


def park(tmp_path):
    """A command that leaves a mark, in the place of a platform's own power-off."""
    mark = tmp_path / "parked"
    return mark, [sys.executable, "-c", "open(%r, 'w').close()" % str(mark)]


def test_pause_runs_the_platforms_command_once_everything_is_said(box, tmp_path):
    mark, command = park(tmp_path)
    run = box.python("open('x.txt', 'w').write('x')", then={"do": "pause", "argv": command})
    record = run.until_journal("then")
    assert record["ok"] is True and record["argv"] == command
    kinds = [r["k"] for r in run.journal()]
    assert kinds.index("ended") < kinds.index("then")
    run.until(lambda s: not s["supervised"])
    assert mark.exists()


def test_pause_does_not_take_the_machine_from_another_run(box, tmp_path):
    mark, command = park(tmp_path)
    other = box.python("import time; time.sleep(30)", job="other")
    run = box.python("open('x.txt', 'w').write('x')", then={"do": "pause", "argv": command})
    record = run.until_journal("then")
    assert record["ok"] is False and other.id in record["why"]
    run.until(lambda s: not s["supervised"])
    assert not mark.exists()
    other.ask("stop", grace_s=0.0)
    other.ended()


def test_a_command_that_fails_is_said(box):
    run = box.python(
        "open('x.txt', 'w').write('x')", then={"do": "pause", "argv": ["/bin/sh", "-c", "echo no power; exit 3"]}
    )
    record = run.until_journal("then", ok=False)
    assert "ended with 3: no power" in record["why"]


def test_keep_does_nothing(box):
    run = box.python("open('x.txt', 'w').write('x')")
    run.ended()
    run.until(lambda s: not s["supervised"])
    assert run.journal("then") == []
    assert os.path.isdir(box.root)
