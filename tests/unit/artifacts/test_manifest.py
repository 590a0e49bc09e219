import os
import socket

import pytest

from outlive.artifacts.manifest import Roster, infer, points_outside, relative_path, scan, stamps
from outlive.wire.values import Entry


def paths(entries):
    return [e.path for e in entries]


def test_any_name_a_file_can_have_survives(tmp_path):
    names = [b"a\nb", b"q\"u'o", b"\xff\xfe", "模型.pt".encode(), b"-rf", b" ", b"back\\slash", b"*?[x]"]
    for name in names:
        with open(os.path.join(os.fsencode(str(tmp_path)), name), "wb") as f:
            f.write(b"1")
    found = scan(str(tmp_path))
    assert sorted(os.fsencode(e.path) for e in found) == sorted(names)
    import json

    for entry in found:
        assert Entry.from_wire(json.loads(json.dumps(entry.to_wire()))) == entry
        matched, missing = Roster((entry.path,)).match(found)
        assert entry in matched and not missing


def test_links_are_entries_and_never_followed(tmp_path):
    inside, outside = tmp_path / "work", tmp_path / "secret"
    (inside / "out").mkdir(parents=True)
    outside.mkdir()
    (outside / "key").write_text("k")
    (inside / "out" / "step-3.pt").write_bytes(b"abc")
    os.symlink("step-3.pt", str(inside / "out" / "last.pt"))
    os.symlink("../../secret", str(inside / "out" / "dir"))
    os.symlink(str(outside / "key"), str(inside / "key"))
    os.symlink("loop", str(inside / "loop"))
    found = {e.path: e for e in scan(str(inside))}
    assert sorted(found) == ["key", "loop", "out/dir", "out/last.pt", "out/step-3.pt"]
    assert (found["out/last.pt"].link, found["out/last.pt"].bytes) == ("step-3.pt", 0)
    reported = [p for p, e in sorted(found.items()) if points_outside(str(inside), e)]
    assert reported == ["key", "out/dir"]


def test_caches_are_ignored_and_offline_trackers_are_not(tmp_path):
    for name in (
        "a.pt",
        "pkg/__pycache__/x.bin",
        "m.pyc",
        ".git/config",
        ".cache/hub/m",
        ".outlive-part-1/a",
        "b.pt.tmp",
        "wandb/offline-run-1/run.wandb",
        "wandb/offline-run-1/logs/debug.log",
        "deep/er/.DS_Store",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    assert paths(scan(str(tmp_path))) == ["a.pt", "wandb/offline-run-1/run.wandb"]
    assert len(scan(str(tmp_path), ignore=())) == 10
    assert paths(scan(str(tmp_path), ignore=("wandb/**", "*.p*", ".*", "__pycache__"))) == []


def test_sockets_and_pipes_are_left_alone(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(str(tmp_path))  # socket paths are short
        try:
            s.bind("sock")
        finally:
            os.chdir(here)
        (tmp_path / "f").write_text("x")
        assert paths(scan(str(tmp_path))) == ["f"]


def test_since_sees_files_that_were_moved_in_with_an_old_time(tmp_path):
    (tmp_path / "old").write_text("x")
    os.utime(str(tmp_path / "old"), ns=(10, 10))
    since = os.stat(str(tmp_path / "old")).st_ctime_ns
    assert paths(scan(str(tmp_path), since_ns=since)) == ["old"]
    assert scan(str(tmp_path), since_ns=since + 10**12) == []


def test_what_cannot_be_listed_is_said(tmp_path):
    with pytest.raises(FileNotFoundError):
        scan(str(tmp_path / "none"))
    errors = []
    assert scan(str(tmp_path / "none"), on_error=errors.append) == []
    assert len(errors) == 1


def test_infer_lists_the_new_and_the_changed():
    before = stamps([Entry("same", 1, mtime_ns=5), Entry("grown", 1, mtime_ns=5), Entry("touched", 1, mtime_ns=5)])
    after = [
        Entry("same", 1, mtime_ns=5),
        Entry("grown", 2, mtime_ns=5),
        Entry("touched", 1, mtime_ns=6),
        Entry("new", 0, mtime_ns=1),
    ]
    assert paths(infer(before, after)) == ["grown", "touched", "new"]
    assert paths(infer({k: list(v) for k, v in before.items()}, after)) == ["grown", "touched", "new"], "after JSON"
    assert infer(stamps(after), after) == []


@pytest.mark.parametrize("bad", ["/etc/passwd", "../x", "a/../b", "a/..", "", ".", "./", "a\0b", "//x"])
def test_paths_that_leave_the_root_are_refused(bad):
    with pytest.raises(ValueError):
        relative_path(bad)
    with pytest.raises(ValueError):
        Roster(("fine", bad))


def test_paths_are_made_plain():
    assert relative_path("./out//ckpt/") == "out/ckpt"
    assert relative_path("..hidden/a..b") == "..hidden/a..b"


ENTRIES = [
    Entry(p, 1)
    for p in ("best.pt", "logs/a.log", "out/best.pt", "out/deep/er/x.pt", "out/m.json", "out2/x", "w[1].pt", "w1.pt")
] + [Entry("last.pt", 0, link="out/best.pt"), Entry("dangling.pt", 0, link="nowhere")]


@pytest.mark.parametrize(
    "line, names",
    [
        ("best.pt", ["best.pt"]),
        ("out", ["out/best.pt", "out/deep/er/x.pt", "out/m.json"]),
        ("out/", ["out/best.pt", "out/deep/er/x.pt", "out/m.json"]),
        ("out/*.pt", ["out/best.pt"]),
        ("out/**", ["out/best.pt", "out/deep/er/x.pt", "out/m.json"]),
        ("out/**/*.pt", ["out/best.pt", "out/deep/er/x.pt"]),
        ("**/best.pt", ["best.pt", "out/best.pt"]),
        ("out?/x", ["out2/x"]),
        ("[bl]est.pt", ["best.pt"]),
        ("[!b]est.pt", []),
        ("w[1].pt", ["w1.pt", "w[1].pt"]),
        ("last.pt", ["last.pt"]),
        ("*.log", []),
    ],
)
def test_roster_lines(line, names):
    matched, missing = Roster((line,)).match(ENTRIES)
    assert sorted(paths(matched)) == sorted(names)
    assert missing == ([] if names else [relative_path(line)])


def test_a_dangling_link_is_no_result():
    matched, missing = Roster(("dangling.pt", "best.pt")).match(ENTRIES)
    assert paths(matched) == ["best.pt", "dangling.pt"] and missing == ["dangling.pt"]
