"""The box lease: an idle box says so, to an address and to every client, until it is told to stop."""

import http.server
import json
import os
import signal
import threading
import time

import pytest
from servers.onbox import Refused

from outlive.onbox.boxlease import idle_since


@pytest.fixture
def hook():
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8")))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.daemon = True
    thread.start()
    yield "http://127.0.0.1:%d/secret-path" % server.server_address[1], bodies
    server.shutdown()
    server.server_close()


HELD = """
import os, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
open("x", "w").write("x")
"""
"""Work that goes on until the test lets it end."""


def until(condition, limit_s=90.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def head(box):
    return box.frames("poll", runs={})[0][0]


def lease_pids(box):
    found = []
    for pid in box.processes():
        with open("/proc/%d/cmdline" % pid, "rb") as handle:
            if b"lease" in handle.read().split(b"\0"):
                found.append(pid)
    return found


def test_an_idle_box_says_so_and_says_it_again(box, hook):
    address, bodies = hook
    box.call("lease_set", idle_s=0.5, repeat_s=0.8, look_s=0.2, payload={"notify": [address]})
    until(lambda: len(bodies) >= 2)
    assert bodies[0]["kind"] == "box_idle" and "still bills" in bodies[0]["text"]
    lease = head(box)["lease"]
    assert lease["over"] and lease["watched"] and lease["idle_for_s"] >= 0.5
    assert box.call("lease_clear") == {"cleared": True}
    assert box.call("lease_clear") == {"cleared": False}
    until(lambda: not lease_pids(box))
    assert "lease" not in head(box)
    for name in os.listdir(box.files.dir):
        path = os.path.join(box.files.dir, name)
        if os.path.isfile(path):
            with open(path, "rb") as handle:
                assert b"secret-path" not in handle.read()


def test_work_is_not_idleness(box):
    box.call("lease_set", idle_s=0.5, look_s=0.2)
    until(lambda: head(box)["lease"]["over"])
    run = box.python(HELD)
    run.until_journal("first_line")
    until(lambda: head(box)["lease"]["idle_for_s"] == 0.0)
    assert not head(box)["lease"]["over"]
    open(run.path("go"), "w").close()
    run.ended()
    until(lambda: head(box)["lease"]["over"])


def test_a_new_lease_replaces_the_old_one(box):
    box.call("lease_set", idle_s=1000, look_s=0.2)
    until(lambda: head(box)["lease"]["watched"])
    box.call("lease_set", idle_s=2000, look_s=0.2)
    until(lambda: len(lease_pids(box)) == 1)
    assert head(box)["lease"]["idle_s"] == 2000


def test_a_killed_lease_stands_up_at_the_next_contact_and_counts_on(box):
    box.call("lease_set", idle_s=1000, look_s=0.2)
    until(lambda: head(box)["lease"]["idle_for_s"] > 0.5)
    [pid] = lease_pids(box)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not lease_pids(box))
    before = time.monotonic()
    box.call("hello")
    until(lambda: len(lease_pids(box)) == 1)
    assert head(box)["lease"]["idle_for_s"] > 0.5 + time.monotonic() - before


def test_another_boot_starts_the_count_anew():
    records = [
        {"k": "lease_idle", "machine": "a", "since_b": 10.0},
        {"k": "lease_busy", "machine": "b"},
        {"k": "lease_idle", "machine": "b", "since_b": 3.0},
    ]
    assert idle_since(records, "b") == 3.0
    assert idle_since(records, "a") == 10.0
    assert idle_since(records, "c") is None
    assert idle_since(records + [{"k": "lease_busy", "machine": "b"}], "b") is None


@pytest.mark.parametrize(
    "bad", [{}, {"idle_s": "x"}, {"idle_s": 0}, {"idle_s": 5, "repeat_s": -1}, {"idle_s": float("nan")}]
)
def test_a_lease_that_makes_no_sense_is_refused(box, bad):
    with pytest.raises(Refused, match="box lease"):
        box.call("lease_set", **bad)
    assert not os.path.exists(box.files.lease)
