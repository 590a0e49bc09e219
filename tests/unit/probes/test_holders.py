"""Writers below a directory: open, mapped, deleted, read-only, and unreadable ones."""

import os
import shutil
import subprocess
import sys

import pytest

from outlive.probes import process
from outlive.probes.holders import holders

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="reads /proc")


@pytest.fixture
def child(tmp_path):
    """Run code in another process until it says that it is ready; it ends with the test."""
    started = []

    def start(code):
        lines = "import sys, os, mmap, time\nos.chdir(%r)\n%s\nprint('ready', flush=True)\ntime.sleep(60)\n"
        run = subprocess.Popen([sys.executable, "-c", lines % (str(tmp_path), code)], stdout=subprocess.PIPE)
        assert run.stdout.readline() == b"ready\n"
        started.append(run)
        return run.pid

    yield start
    for run in started:
        run.kill()
        run.communicate()


def test_writers_are_found_and_readers_are_not(tmp_path, child):
    (tmp_path / "data").write_text("x")
    reader = child("f = open('data')")
    writer = child("f = open('out', 'a'); g = os.open('data', os.O_RDWR)")
    found = holders([str(tmp_path)])
    assert [holder.pid for holder in found.holders] == [writer] and reader != writer
    only = found.holders[0]
    assert only.files == (str(tmp_path / "data"), str(tmp_path / "out")) and only.file_count == 2
    assert only.uid == os.geteuid() and only.start_ticks == process.start_ticks(writer) and only.command
    assert holders([str(tmp_path)], ignore=[writer]).holders == ()


def test_a_shared_mapping_outlives_its_handle(tmp_path, child):
    (tmp_path / "map").write_bytes(b"x" * 4096)
    pid = child("f = open('map', 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); m2 = m")
    found = [holder for holder in holders([str(tmp_path)]).holders if holder.pid == pid]
    assert found and found[0].files == (str(tmp_path / "map"),)


def test_a_deleted_file_still_counts(tmp_path, child):
    pid = child("f = open('gone', 'w'); os.unlink('gone')")
    assert holders([str(tmp_path)]).holders[0].files == (str(tmp_path / "gone") + " (deleted)",)
    assert holders([str(tmp_path)]).holders[0].pid == pid


def test_a_neighbour_with_a_longer_name_is_not_below(tmp_path, child):
    (tmp_path / "run").mkdir()
    (tmp_path / "run2").mkdir()
    child("f = open('run2/out', 'w')")
    assert holders([str(tmp_path / "run")]).holders == ()


def test_a_linked_directory_is_followed_to_where_it_lies(tmp_path, child):
    (tmp_path / "real").mkdir()
    os.symlink(str(tmp_path / "real"), str(tmp_path / "link"))
    pid = child("f = open('real/out', 'w')")
    assert [holder.pid for holder in holders([str(tmp_path / "link")]).holders] == [pid]


def test_what_may_not_be_read_is_counted():
    if os.geteuid() != 0:
        found = holders(["/nope"])
        assert found.unreadable and found.why_unknown
        return
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("no setpriv to become another user with")
    code = "from outlive.probes.holders import holders; f = holders(['/nope']); print(f.unreadable, f.why_unknown)"
    out = subprocess.check_output(
        [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", code],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
    )
    count, why = out.decode().split(" ", 1)
    assert int(count) > 0 and "could not be looked into" in why


def test_without_proc_nothing_is_claimed(monkeypatch):
    monkeypatch.setattr(process, "PROC", "/nope")
    found = holders(["/tmp"])
    assert found.unreadable is None and found.why_unknown
