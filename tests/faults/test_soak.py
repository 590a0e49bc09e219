"""The soak in small: a few random faults on each of its benches; and its zeros mean something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the soak drives the client", allow_module_level=True)

SOAK = Path(__file__).resolve().parents[2] / "benchmarks" / "soak"


def soak(out, *words):
    done = subprocess.run(
        [sys.executable, str(SOAK), "--jobs", "1", "--out", str(out), *words],
        capture_output=True,
        text=True,
        timeout=1500,
        env={k: v for k, v in os.environ.items() if not k.startswith("OUTLIVE_")},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.timeout(1600)
def test_random_faults_on_this_machine(tmp_path):
    status, table, said = soak(tmp_path, "--bench", "local", "--rounds", "4", "--seed", "5")
    assert status == 0, table + said
    assert "| **all** | 4 | 0 | 0 | 0 | 0 | 0 |" in table, table + said


@pytest.mark.box
@pytest.mark.timeout(1600)
def test_random_faults_on_boxes(tmp_path):
    status, table, said = soak(tmp_path, "--bench", "boxes", "--rounds", "3", "--seed", "6")
    assert status == 0, table + said
    assert "| **all** | 3 | 0 | 0 | 0 | 0 | 0 |" in table, table + said


PLANTED = """
import os, sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import rounds
from outlive.runs.down_result import DownResult

def spoil(case):
    "everything that must be seen happens at once"
    while not os.path.exists(case.files.done):
        time.sleep(0.1)
    case.look()
    mirror = rounds.Mirror(case.home, case.run, case.bench.place.box.box_id).path("log")
    lines = mirror.read_bytes().splitlines(True)
    mirror.write_bytes(b"".join(lines[:9] + lines[8:]))  # one is doubled
    Path(case.files.work, "result.json").write_text('{"step": 40, "state": "another"}')
    rounds.down = granted

class granted:
    "A gate that opens for anybody."
    exit_code, sentence, decision = 0, "purged", None
    def __init__(self, *words, **options):
        pass

bench = rounds.Bench(Path(sys.argv[3]) / "box")
rounds.random.Random.random = lambda self: 0.1  # each chance is taken: the purge is asked for
found = rounds.play(bench, 1, 0, {"spoil": spoil})
bench.end()
print(found.to_json())
for column in ("lost", "false_words", "lines", "unproved_destroys"):
    assert getattr(found, column), column
"""


@pytest.mark.timeout(600)
def test_what_must_be_seen_is_seen(tmp_path):
    """A result that is another one, a word that is false, a doubled line, a purge that should have been refused."""
    argv = [sys.executable, "-c", PLANTED, str(SOAK), str(SOAK.parents[1] / "src"), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_was_found_is_counted_in_its_column(tmp_path):
    import json

    clean = {"lost": [], "false_words": [], "lines": [], "unproved_destroys": [], "broken": []}
    whole = {**clean, "fault": "kill_work", "bench": "local", "detect_s": 0.5, "recover_s": 2.0}
    with open(tmp_path / "rounds-9.jsonl", "w") as out:
        for number, column in enumerate([None, *clean]):
            found = {**whole, "number": number, **({column: ["planted"]} if column else {})}
            out.write(json.dumps(found) + "\n")
    status, table, said = soak(tmp_path, "--bench", "local", "--table", "--seed", "9")
    assert status == 1
    assert "| kill -9 of the work | 6 | 1 | 1 | 1 | 1 | 1 | 0.5 s | 2.0 s |" in table
    assert said.count("planted") == 5


def test_damage_that_could_be_known_is_told_from_damage_that_could_not(tmp_path):
    sys.path.insert(0, str(SOAK))
    try:
        from rounds import could_be_known
    finally:
        sys.path.remove(str(SOAK))
    path = tmp_path / "step-000010.json"
    path.write_text('{"state": "x"}')
    said = [{"path": "ckpt/step-000005.json", "sha256": "a"}, {"path": "ckpt/step-000010.json", "sha256": "b"}]
    assert not could_be_known(path, said)
    assert could_be_known(path, [*said, {**said[1], "sha256": "c"}]), "other bytes were seen before"
    assert could_be_known(path, [{**said[0], "sha256": "b"}, said[1]]), "the very bytes of another"
    path.write_text('{"state": ')
    assert could_be_known(path, said), "no JSON"
