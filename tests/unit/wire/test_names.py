"""Names on the box, and how a file becomes visible."""

import os
import random
import stat

import pytest

from outlive.wire import names


def test_run_ids_are_made_and_recognised():
    rng = random.Random(1)
    made = {names.new_run_id("my.job-2", 1767225600.0, rng) for _ in range(200)}
    assert len(made) > 190
    for run in made:
        assert names.RUN_ID.match(run) and run.startswith("my.job-2-260101-")
        assert "l" not in run.rsplit("-", 1)[1], "a letter that is taken for another one"


@pytest.mark.parametrize("name", ["..", ".hidden", "Job", "a b", "", "-x", "x" * 41, "a/b", "a\n"])
def test_names_that_are_no_job(name):
    match = names.JOB_NAME.match(name)
    assert match is None or match.group(0) != name


def test_a_listing_shows_runs_only_oldest_first(tmp_path):
    box = names.BoxFiles(str(tmp_path))
    assert box.run_ids() == []
    for name in ("b-260102-aaaa", "a-260103-aaaa", "c-260101-zzzz", ".part", "notes", "x-26010-aaaa"):
        os.makedirs(os.path.join(box.runs, name))
    assert box.run_ids() == ["c-260101-zzzz", "b-260102-aaaa", "a-260103-aaaa"]


def test_every_name_is_below_our_directory(tmp_path):
    box = names.BoxFiles(str(tmp_path))
    run = box.run("job-260101-abcd")
    for owner in (box, run, run.attempt(3)):
        for key, value in vars(owner).items():
            if key not in ("root", "id"):
                assert value.startswith(box.dir), key
    assert os.path.basename(os.path.dirname(run.attempt(3).exit)) == "3"


def test_a_file_appears_whole_and_private(tmp_path):
    path = str(tmp_path / "f")
    names.write_aside(path, b"one")
    names.write_aside(path, b"two" * 1000)
    with open(path, "rb") as handle:
        assert handle.read() == b"two" * 1000
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(str(tmp_path)) == ["f"]


def test_a_refused_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "sub" / "f"
    with pytest.raises(OSError):
        names.write_aside(str(path), b"x")
    (tmp_path / "d").mkdir()
    with pytest.raises(OSError):
        names.write_aside(str(tmp_path / "d"), b"x")
    assert [n for n in os.listdir(str(tmp_path)) if n.endswith(".part")] == []
