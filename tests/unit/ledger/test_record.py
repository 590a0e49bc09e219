import base64
import fcntl
import json
import linecache
import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from outlive.ledger import Ledger, SecretInLedger, Secrets, record
from outlive.wire import clock
from outlive.wire.journal import read_all


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "state" / "ledger.jsonl")


def lines(ledger):
    return [line for line, _ in ledger.records()]


def test_a_record_comes_back(ledger):
    clock.set_clock(boot=lambda: 5.0, wall=lambda: 1_800_000_000.0)
    try:
        written = ledger.append("note", text="Grüße")
    finally:
        clock.set_clock()
    assert written == {"n": 0, "k": "note", "b": 5.0, "w": 1_800_000_000.0, "text": "Grüße"}
    assert lines(ledger) == [written] == read_all(str(ledger.path))


def test_only_its_owner_reads_it(ledger):
    ledger.append("note", text="x")
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.path.parent.stat().st_mode) == 0o700


def test_a_missing_ledger_is_empty(ledger):
    assert lines(ledger) == []


def test_numbers_go_on_in_another_object(ledger):
    ledger.append("note", text="a")
    Ledger(ledger.path).append("note", text="b")
    assert [r["n"] for r in lines(ledger)] == [0, 1]


@pytest.mark.parametrize(
    "torn", [b'{"n":1,"k":"note","te', b"\x00\x00\x00", b'{"n":1,"k":"note","text":"\xe2\x82', b"{"]
)
def test_a_torn_tail_is_stepped_over(ledger, torn):
    ledger.append("note", text="a")
    with open(ledger.path, "ab") as handle:
        handle.write(torn)
    assert [r["text"] for r in lines(ledger)] == ["a"]
    ledger.append("note", text="b")
    assert [(r["n"], r["text"]) for r in lines(ledger)] == [(0, "a"), (1, "b")]
    assert torn in ledger.path.read_bytes()  # never removed


def test_the_number_is_found_behind_a_very_long_record(ledger):
    ledger.append("note", text="x" * 300_000)
    ledger.append("note", text="b")
    assert [r["n"] for r in lines(ledger)] == [0, 1]


def test_what_cannot_be_recorded_leaves_nothing(ledger):
    with pytest.raises(ValueError, match="no such kind"):
        ledger.append("noet", text="x")
    with pytest.raises(TypeError):
        ledger.append("note", text={1, 2})
    with pytest.raises(ValueError, match="itself"):
        ledger.append("note", n=5)
    assert not ledger.path.exists()


def test_append_if_holds_the_lock_while_it_asks(ledger):
    ledger.append("approval", id="a1", uses_left=1)

    def unused():
        return not any(r["k"] == "approval_used" for r in lines(ledger))

    assert ledger.append_if(unused, "approval_used", id="a1") is not None
    assert ledger.append_if(unused, "approval_used", id="a1") is None
    assert len(lines(ledger)) == 2


def test_a_ledger_moved_away_is_begun_again(ledger):
    ledger.append("note", text="a")
    os.rename(ledger.path, ledger.path.with_suffix(".old"))
    ledger.append("note", text="b")
    assert [(r["n"], r["text"]) for r in lines(ledger)] == [(0, "b")]


def test_a_ledger_moved_away_while_we_waited_for_it_is_begun_again(ledger):
    """Else the record would land in the file that nobody reads any more."""
    ledger.append("note", text="a")
    holder = os.open(ledger.path, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    waiting = threading.Thread(target=ledger.append, args=("note",), kwargs={"text": "b"})
    waiting.start()
    while "flock" not in waiting_for(waiting):
        time.sleep(0.005)
    os.rename(ledger.path, ledger.path.with_suffix(".old"))
    os.close(holder)
    waiting.join(timeout=10)
    assert [r["text"] for r in lines(ledger)] == ["b"]


def waiting_for(thread):
    """Return the name of the line of ours that a thread stands in."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code.co_filename != record.__file__:
        frame = frame.f_back
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame is not None else ""


# ---- secrets ----

SECRET = "s3cr3t/with+signs=="


@pytest.mark.parametrize(
    "fields",
    [
        {"text": SECRET},
        {"text": f"the url was https://x?token={SECRET}&y"},
        {"text": "https://x?token=s3cr3t%2Fwith%2Bsigns%3D%3D"},
        {"text": base64.b64encode(SECRET.encode()).decode()},
        {"facts": {"env": [{"KEY": SECRET}]}},
        {"facts": {SECRET: 1}},
        {"facts": [["a", SECRET]]},
    ],
)
def test_a_secret_never_enters(ledger, fields):
    ledger.secrets.add(SECRET)
    ledger.append("note", text="before")
    with pytest.raises(SecretInLedger) as refused:
        ledger.append("note", **fields)
    assert SECRET not in str(refused.value)
    assert len(lines(ledger)) == 1
    assert b"s3cr3t" not in ledger.path.read_bytes()


def test_a_short_secret_is_refused_only_as_a_whole_value(ledger):
    ledger.secrets.add("ab")
    ledger.append("note", text="about this")
    with pytest.raises(SecretInLedger):
        ledger.append("note", text="ab")


def test_redact():
    secrets = Secrets([SECRET, "ab", ""])
    assert secrets.redact({"a": [f"x {SECRET} y", "ab", "about", 5, None], SECRET: ()}) == {
        "a": ["x [redacted] y", "[redacted]", "about", 5, None],
        "[redacted]": [],
    }
    assert secrets.found_in(secrets.redact({"a": SECRET})) is None


# ---- several processes ----

WRITER = """
import sys
from outlive.ledger import Ledger
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    ledger.append("note", text=sys.argv[2] + " " + str(i), pad="p" * (i % 97))
    if sys.argv[4] == "say":
        print(i, flush=True)
"""


def start_writer(ledger, who, count, say="quiet"):
    src = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../src"))
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(ledger.path), who, str(count), say],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": src},
    )


def test_two_clients_lose_nothing(ledger):
    writers = {who: start_writer(ledger, who, 200) for who in ("left", "right")}
    for writer in writers.values():
        assert writer.stdout.readline() == "ready\n"
    for writer in writers.values():
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [w.wait(timeout=60) for w in writers.values()] == [0, 0]
    for writer in writers.values():
        writer.communicate()
    written = lines(ledger)
    assert [r["n"] for r in written] == list(range(400))
    for who in writers:
        assert [r["text"] for r in written if r["text"].startswith(who)] == [f"{who} {i}" for i in range(200)]


def test_killed_in_the_middle_of_appending_the_ledger_stays_readable(ledger):
    for round_ in range(3):
        writer = start_writer(ledger, f"round{round_}", 100_000, "say")
        writer.stdout.readline()
        writer.stdin.write("go\n")
        writer.stdin.flush()
        told = [writer.stdout.readline() for _ in range(20 + round_)]
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate(timeout=30)
        said = [int(line) for line in "".join([*told, rest]).splitlines(keepends=True) if line.endswith("\n")]
        kept = [r["text"] for r in lines(ledger) if r["text"].startswith(f"round{round_} ")]
        # Whatever append returned for is there; at most one more record, whose return nobody saw.
        assert kept == [f"round{round_} {i}" for i in range(len(kept))]
        assert len(said) <= len(kept) <= len(said) + 1
    ledger.append("note", text="after")
    assert [r["n"] for r in lines(ledger)] == list(range(len(lines(ledger))))


HOLDER = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_dead_client_leaves_no_lock(ledger):
    ledger.append("note", text="before")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(ledger.path)], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    holder.kill()
    holder.communicate()
    assert ledger.append("note", text="free")["n"] == 1


def test_lines_are_plain_json(ledger):
    ledger.append("box", name="rented-1", facts={"ü": [1, None]})
    assert json.loads(ledger.path.read_text().splitlines()[0])["facts"] == {"ü": [1, None]}
