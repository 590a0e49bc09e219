"""What work may leave behind: broken, hostile and badly named files. None is called a result that is not one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import ran

from outlive.runs.down import down
from outlive.runs.place import Place
from outlive.runs.pull import pull

NAMES = ["with space.json", 'it\'s "quoted".json', "two\nlines.json", "-rf.json", "数据.json", "$(touch hit).json"]

LEAVES = """
import json, os, pickle, sys
os.makedirs("out")
class Bomb:
    def __reduce__(self):
        return (os.system, ("touch " + os.environ["HIT"],))
with open("out/bomb.pkl", "wb") as f:
    pickle.dump({"weights": [1.0], "x": Bomb()}, f)
with open("out/cut.json", "w") as f:
    f.write(json.dumps({"w": list(range(100))})[:-9])
with open("out/whole.json", "w") as f:
    json.dump({"w": 1}, f)
for name in NAMES:
    with open("out/" + name, "w") as f:
        json.dump({"name": name}, f)
os.symlink(os.environ["OUTSIDE"], "out/secret.json")
os.symlink("/etc", "out/etc")
os.symlink("whole.json", "out/inside.json")
print("done: all artifacts saved", flush=True)
""".replace("NAMES", repr(NAMES))


def ended(place: Place, run: str) -> dict[str, Any]:
    return ran.until(place, run, lambda s: s["ended"] and not s["supervised"], 180)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = ran.local(tmp_path, budget_s=2.0)
    yield made
    made.close()


def test_hostile_and_broken_files(place: Place, tmp_path: Path) -> None:
    hit, outside = tmp_path / "hit", tmp_path / "outside.json"
    outside.write_text('{"private": true}')
    spec = {"artifacts": {"roster": ["out/**"], "checkpoints": ""}, "env": {"HIT": str(hit), "OUTSIDE": str(outside)}}
    run = ran.start(place, LEAVES, **spec)
    status = ended(place, run)
    assert status["state"] == "suspect" and "cut.json" in status["why"], "exit status 0 is not enough"
    got = pull(place.home, run)
    assert got.exit_code == 1 and got.delivery != "proved"
    assert list(got.refuted) == ["out/cut.json"]
    for name in NAMES:
        assert json.loads((got.dir / "out" / name).read_text()) == {"name": name}
    assert not hit.exists(), "a pickle is looked at, never loaded"
    (bomb,) = [e for e in got.entries if e["path"] == "out/bomb.pkl"]
    assert bomb["here"] and bomb["level"] == "bytes" and any("system" in f["text"] for f in bomb["findings"]), bomb
    assert set(got.links_outside) == {"out/secret.json", "out/etc"}
    assert not os.path.lexists(got.dir / "out/secret.json") and not os.path.lexists(got.dir / "out/etc")
    assert (got.dir / "out/inside.json").resolve() == (got.dir / "out/whole.json").resolve()
    answer = down(place.home, place.name, purge=True, pull_first=False, created_here=[place.box.box_id])
    assert answer.exit_code == 3 and Path(place.box.root, ".outlive").exists(), "a refuted result opens nothing"


def test_work_that_says_done_and_wrote_nothing(place: Place) -> None:
    run = ran.start(place, "print('done: all artifacts saved', flush=True)")
    status = ended(place, run)
    assert status["state"] == "suspect"
    got = pull(place.home, run)
    assert got.missing and got.delivery != "proved" and got.exit_code == 1


def test_a_file_that_grows_under_the_pull_comes_as_it_was_at_one_moment(place: Place) -> None:
    code = """
import os, time
os.makedirs("out")
n = 0
while True:
    with open("out/metrics.csv", "a") as f:
        f.write("%d,%d\\n" % (n, n * n))
    n += 1
    print("step", n, flush=True)
    time.sleep(0.002)
"""
    run = ran.start(place, code, artifacts={"roster": ["out/metrics.csv"], "checkpoints": ""})
    file = ran.work_of(place, run) / "out/metrics.csv"
    ran.until(place, run, lambda s: file.exists() and file.stat().st_size > 2000)
    try:
        for _ in range(3):
            got = pull(place.home, run)
            here = got.dir / "out/metrics.csv"
            if "out/metrics.csv" in got.wrong:  # it moved at both looks: said, and not called here
                assert got.exit_code == 1 and got.delivery != "proved"
                continue
            whole = file.read_bytes()
            assert whole.startswith(here.read_bytes()), "what is here is a beginning of what is there"
            (entry,) = [e for e in got.entries if e["path"] == "out/metrics.csv"]
            assert here.stat().st_size == entry["bytes"]
            assert any("what stood at this moment" in note for note in got.notes)
    finally:
        place.call("run_ask", {"run": run, "ask": {"id": "s", "kind": "stop", "grace_s": 0.5}, "wait_s": 20})
        ended(place, run)


def test_a_million_carriage_returns_and_bytes_that_are_no_text(place: Place) -> None:
    code = """
import os, sys
out = sys.stdout.buffer
out.write(b"first\\n")
for i in range(100):
    out.write(b"\\r 10%|#         | 1/10 [00:01<00:09]" * 100 + b"\\r" * 10000 + b"\\x00\\xff\\xfe\\xed\\xa0\\x80")
out.write(b"\\nstep 5/5 loss 0.25\\n")
out.flush()
os.makedirs("out")
open("out/best.json", "w").write("{}")
"""
    run = ran.start(place, code, artifacts={"roster": ["out/best.json"], "checkpoints": ""})
    status = ended(place, run)
    assert status["state"] == "succeeded" and status["step"] == 5
    got = pull(place.home, run)
    log = ran.work_of(place, run).parent / "log"
    assert (got.dir / ".outlive/log").read_bytes() == log.read_bytes() and got.delivery == "proved"
