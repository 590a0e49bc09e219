"""What the box says by itself, with no client there."""

import http.server
import json
import os
import signal
import threading

import pytest


@pytest.fixture
def hook():
    """``(address, bodies, answers)`` of a real web server; ``answers`` are the statuses it gives, then 200."""
    bodies, answers = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8")))
            self.send_response(answers.pop(0) if answers else 200)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.daemon = True
    thread.start()
    yield "http://127.0.0.1:%d/secret-path-91c3" % server.server_address[1], bodies, answers
    server.shutdown()
    server.server_close()


def test_the_end_is_told(box, hook):
    address, bodies, _answers = hook
    run = box.python("open('x.txt', 'w').write('x')", payload={"notify": [address]})
    run.until_journal("notified")
    assert [(b["kind"], b["run"]) for b in bodies] == [("ended", run.id)]
    assert "succeeded" in bodies[0]["text"]
    assert run.journal("notified")[0]["ok"] is True


def test_an_alarm_is_told_while_it_runs(box, hook):
    address, bodies, _answers = hook
    code = "import time; [print('step %d/100 loss nan' % n, flush=True) for n in (1, 2)]; time.sleep(30)"
    run = box.python(code, payload={"notify": [address]})
    run.until_journal("notified", notice="alarm")
    assert bodies[0]["kind"] == "alarm" and bodies[0]["facts"]["alarm"] == "nan"
    run.ask("stop", grace_s=0.0)
    run.ended()


def test_a_refusing_address_is_tried_again(box, hook):
    address, bodies, answers = hook
    answers.extend([500])
    run = box.python("open('x.txt', 'w').write('x')", payload={"notify": [address]})
    assert run.until_journal("notified")["ok"] is True
    assert len(bodies) == 2


def test_a_dead_address_is_journaled_without_being_named(box):
    address = "http://127.0.0.1:9/secret-path-91c3"
    run = box.python("open('x.txt', 'w').write('x')", payload={"notify": [address]})
    end = run.until_journal("ended")
    assert end["state"] == "succeeded"
    record = run.until_journal("notified", limit_s=40)
    assert record["ok"] is False and record["to"] == 0
    run.until(lambda s: not s["supervised"])
    for folder, _dirs, names in os.walk(box.root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as handle:
                assert b"secret-path" not in handle.read(), name


def test_the_end_is_told_by_the_next_supervisor_when_the_first_died_on_the_way(box, hook):
    address, bodies, answers = hook
    answers.extend([500, 500, 500, 500])
    run = box.python("open('x.txt', 'w').write('x')", payload={"notify": [address]})
    run.until_journal("ended")
    os.kill(run.supervisor_pid(), signal.SIGKILL)
    del answers[:]
    record = run.until_journal("notified")
    assert record["ok"] is True and bodies[-1]["kind"] == "ended"
