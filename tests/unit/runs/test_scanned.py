"""Processes that may not be looked into: root's are judged by their files, anybody else's stay unknown."""

from types import SimpleNamespace

import pytest

from outlive.runs.scanned import writers

PLACE = SimpleNamespace(box=SimpleNamespace(root="/home/me"))


def scan(uids, complete, unreadable=2):
    found = {"holders": [], "unreadable": unreadable, "unreadable_uids": uids}
    return {"writers": found, "unclaimed": {"complete": complete}}


@pytest.mark.parametrize(
    "uids, complete, known",
    [([0], True, True), ([0], False, False), ([0, 1001], True, False), ([1001], True, False), ([None], True, False)],
)
def test_only_roots_processes_and_only_after_a_whole_scan(uids, complete, known):
    assert (writers(scan(uids, complete), PLACE, "destroy") == ()) is known


def test_a_box_that_does_not_say_whose_they_are_is_unknown():
    old = scan([0], True)
    del old["writers"]["unreadable_uids"]
    assert writers(old, PLACE, "destroy") is None


def test_a_keepers_sleep_is_not_a_stranger():
    own = {"pid": 5, "uid": 1000, "command": "sleep 2", "files": ["/home/me/.outlive/runs/r/attempts/1/keeper.err"]}
    other = {"pid": 6, "uid": 1000, "command": "sleep 2", "files": ["/home/me/x"]}
    seen = scan([], True, unreadable=0)
    seen["writers"]["holders"] = [own, other]
    assert [p.pid for p in writers(seen, PLACE, "destroy")] == [6]
