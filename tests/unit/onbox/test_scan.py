"""Files that nobody claimed: what the gate must not let go unseen, and what is only a copy."""

import os
import time

from outlive.onbox import scan
from outlive.wire.names import BoxFiles


def put(path, data=b"x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def names(found):
    return [os.path.basename(f["path"]) for f in found["files"]]


def test_a_file_written_since_up_is_found_and_older_ones_are_not(tmp_path):
    put(tmp_path / "old.bin")
    time.sleep(0.05)
    since = time.time()
    time.sleep(0.05)
    put(tmp_path / "deep" / "new.bin", b"1234")
    found = scan.unclaimed([str(tmp_path)], since, [], 5.0)
    assert names(found) == ["new.bin"]
    assert (found["count"], found["bytes"], found["complete"]) == (1, 4, True)


def test_the_biggest_come_first_and_all_are_counted(tmp_path):
    for n in range(100):
        put(tmp_path / ("f%03d" % n), b"x" * n)
    found = scan.unclaimed([str(tmp_path)], 0.0, [], 5.0)
    assert found["count"] == 100 and len(found["files"]) == scan.TOP
    assert names(found)[0] == "f099"


def test_a_restored_old_time_does_not_hide_a_file(tmp_path):
    since = time.time() - 5
    path = put(tmp_path / "copied.bin")
    os.utime(str(path), (1, 1))
    assert names(scan.unclaimed([str(tmp_path)], since, [], 5.0)) == ["copied.bin"]


def test_pushed_data_is_claimed_and_what_is_written_there_later_is_not(tmp_path):
    box = BoxFiles(str(tmp_path))
    os.makedirs(box.dir)
    with open(box.box_id, "w") as out:
        out.write("0123456789abcdef\n")
    put(tmp_path / "data" / "set.bin")
    scan.claim(box, [str(tmp_path / "data")])
    time.sleep(0.05)
    put(tmp_path / "data" / "result-of-somebody.bin")
    found = scan.unclaimed([str(tmp_path)], 0.0, [box.dir], 5.0, scan.claims(box))
    assert names(found) == ["result-of-somebody.bin"]


def test_a_scan_that_does_not_finish_says_so(tmp_path):
    put(tmp_path / "a" / "b.bin")
    assert scan.unclaimed([str(tmp_path)], 0.0, [], -1.0)["complete"] is False
    assert scan.unclaimed([str(tmp_path / "missing")], 0.0, [], 5.0)["complete"] is False
