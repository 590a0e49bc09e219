"""Conformance of a scheduler, as plain functions, and in-memory twins that pass them.

Needs no test framework: each ``check_*`` takes a ``Bench`` and raises AssertionError or whatever the scheduler raised.
``run_all`` runs them and reports, for authors of other schedulers::

    for name, problem in run_all(lambda: Bench(MyScheduler(...), ...)).items():
        print(name, problem or "ok")

Every check uses jobs of its own names, so benches may share one place. A check that needs a capability which is not
there checks instead that its lack is said.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from outlive.diagnose.outcome import classify
from outlive.errors import NotHere, OutliveError, PlaceError, SpecDiffers, UnknownName, UsageError
from outlive.schedulers.base import CAPABILITIES, MANIFEST, PARTS, STATUS, Polled, Scheduler, Status, Submitted
from outlive.testing.memory_queue import MemoryQueue
from outlive.testing.memory_scheduler import MemoryPlace, MemoryScheduler
from outlive.wire import spec as specs
from outlive.wire.journal import parse_line
from outlive.wire.names import RUN_ID
from outlive.wire.runview import RunView
from outlive.wire.states import OUTCOME_CLASSES, RUN_ENDED, RUN_MOVES, RUN_STATES, move_allowed
from outlive.wire.values import Evidence, Manifest

__all__ = [
    "SCHEDULER_CHECKS",
    "Bench",
    "MemoryPlace",
    "MemoryQueue",
    "MemoryScheduler",
    "memory_bench",
    "queue_bench",
    "run_all",
]

GOOD = "echo one; echo two; echo done > out"
SLOW = "echo one; sleep 300; echo done > out"
STEADY = "echo one; sleep 1; echo two; sleep 1; echo three; echo done > out"
BAD = "echo broken; exit 3"
NEEDY = 'test -n "$OUTLIVE_CHECK_KEY" || exit 4; echo have it; echo done > out'
SECRET = "hunter2-7f3a9c-not-to-be-seen"
LIMITS = {"scan_s": 0.2, "sample_s": 0.5, "retry_wait_s": 0.2, "grace_s": 1.0}


@dataclass
class Bench:
    """A scheduler on the bench, and what a check may do to the place it is for.

    The place must be able to run ``sh -c`` with ``echo``, ``sleep``, ``test`` and ``exit``, and start work within
    ``patience_s``.
    """

    scheduler: Scheduler
    again: Callable[[], Scheduler]
    """Another client of the same place, with an empty memory."""
    step: Callable[[], None]
    """Let a little time pass there: a real place sleeps some 0.2 s, a twin moves its clock about as far."""
    cut: Callable[[bool], None]
    """Make the place unreachable for every client (True), and reachable again (False). Nothing there may notice."""
    patience_s: float = 60.0
    close: Callable[[], None] = lambda: None

    # ---- what checks are made of ----

    def submit(self, job: str, run: str, *, token: str = "", **more: Any) -> Submitted:
        """Submit one stage under a token of its own, or the one given."""
        payload, hold = more.pop("payload", {}), more.pop("hold", False)
        spec = make_spec(job, run, **more)
        return self.scheduler.submit(token or uuid.uuid4().hex, spec, payload, wait_s=3.0, hold=hold)

    def poll(self, run: str, **offsets: int) -> Polled:
        """Poll one run."""
        return self.scheduler.poll({run: offsets}, uuid.uuid4().hex)

    def status(self, run: str) -> Status:
        """Return the status of one run now, checked for its form."""
        found = self.poll(run).statuses[run]
        check_form(found)
        return found

    def until(self, run: str, condition: Callable[[Status], Any], what: str) -> Status:
        """Let time pass until a status meets the condition; AssertionError when it does not in ``patience_s``."""
        limit = time.monotonic() + self.patience_s
        for _ in range(2000):
            found = self.status(run)
            if condition(found):
                return found
            if time.monotonic() > limit:
                break
            self.step()
        raise AssertionError(f"{run} was never {what}: {json.dumps(found, default=str)[:2000]}")

    def ended(self, run: str) -> Status:
        """Wait for the end of a run."""
        return self.until(run, lambda s: s["ended"], "ended")

    def alive(self, run: str) -> Status:
        """Wait until the work of a run is alive and running."""
        return self.until(run, lambda s: s["state"] == "running" and s["work_alive"], "alive")

    def pause(self) -> None:
        """Let enough time pass for something wrong to show."""
        for _ in range(4):
            self.step()

    def runs_of(self, job: str) -> list[str]:
        """Return the ids of all runs of a job that are there."""
        found = self.scheduler.poll(None, uuid.uuid4().hex)
        return sorted(run for run, status in found.statuses.items() if status["job"] == job)

    def whole(self, run: str, part: str) -> bytes:
        """Return a stream from its beginning."""
        piece = self.poll(run, **{part: 0}).parts.get(run, {}).get(part)
        return piece.data if piece is not None else b""

    def journal(self, run: str) -> list[dict[str, Any]]:
        """Return the records of a run's journal."""
        found = [parse_line(line) for line in self.whole(run, "journal").splitlines(keepends=True)]
        return [record for record in found if record is not None]


def make_spec(job: str, run: str, **more: Any) -> dict[str, Any]:
    """Return a spec of one stage that must leave the file ``out``."""
    spec: dict[str, Any] = {
        "job": job,
        "stages": [{"name": "main", "run": ["sh", "-c", run]}],
        "artifacts": {"roster": ["out"]},
        "limits": LIMITS,
        "retry": {"max": 1},
    }
    return {**spec, **more}


def new_job() -> str:
    """Return a job name that nobody has used."""
    return f"check-{uuid.uuid4().hex[:8]}"


def check_form(status: Status) -> None:
    """The form that every status has: all keys, known words, an outcome made from evidence, and no process."""
    missing = sorted(set(STATUS) - set(status))
    assert not missing, f"a status without {missing}"
    assert status["state"] in RUN_STATES, status["state"]
    assert not status["ended"] or status["state"] in RUN_ENDED, status["state"]
    assert (status["ended_w"] is not None) == bool(status["ended"])
    assert not (status["ended"] and (status["work_alive"] or status["needs_wake"])), "ended, and alive or to be woken"
    assert json.loads(json.dumps(status)) == status, "a status is plain JSON"
    for key in _keys(status):
        assert key not in ("pid", "pids", "pgid", "sid", "ppid", "start_ticks"), f"a status names a process: {key}"
    outcome = status["outcome"]
    if outcome is not None:
        assert outcome["remedy"] == OUTCOME_CLASSES[outcome["cls"]], outcome
        assert outcome["sentence"], outcome
        known = set(Evidence.__dataclass_fields__)
        assert set(outcome.get("evidence") or {}) <= known, outcome


def _keys(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield str(key)
            yield from _keys(value)
    elif isinstance(data, list):
        for value in data:
            yield from _keys(value)


def _refused(kind: type[OutliveError], call: Callable[[], object]) -> Any:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def _same(before: Status, after: Status, *keys: str) -> None:
    for key in keys or ("run", "token", "spec", "state", "ended", "ended_w", "attempt", "outcome"):
        assert before[key] == after[key], f"{key}: {before[key]!r} became {after[key]!r}"


# ---- submission ----


def check_capabilities(bench: Bench) -> None:
    """They are known words, the same for every client, told without asking anybody; each lack has a reason."""
    bench.cut(True)
    try:
        found = bench.scheduler.capabilities
        assert found <= set(CAPABILITIES), found
        assert found == bench.again().capabilities
        for word in CAPABILITIES:
            assert bool(bench.scheduler.why_not(word)) == (word not in found), word
    finally:
        bench.cut(False)


def check_submit_creates(bench: Bench) -> None:
    """A run has an id of the form ``job-yymmdd-abcd``, its token, the digest of its completed spec, and ends well."""
    job, token = new_job(), uuid.uuid4().hex
    made = bench.submit(job, GOOD, token=token)
    assert made.how == "created"
    assert RUN_ID.match(made.run) and made.run.startswith(job + "-"), made.run
    check_form(made.status)
    assert (made.status["run"], made.status["job"], made.status["token"]) == (made.run, job, token)
    assert made.status["spec"] == specs.digest(specs.complete(make_spec(job, GOOD)))
    end = bench.ended(made.run)
    assert (end["state"], end["outcome"]["cls"], end["attempt"]) == ("succeeded", "succeeded", 1), end


def check_same_token_is_the_same_submission(bench: Bench) -> None:
    """Sent again at once, after the end, by another client, or with another spec: one run, started once."""
    job, token = new_job(), uuid.uuid4().hex
    made = bench.submit(job, GOOD, token=token)
    assert bench.submit(job, GOOD, token=token).run == made.run
    end = bench.ended(made.run)
    late = bench.again().submit(token, make_spec(job, GOOD), {}, wait_s=1.0)
    assert (late.run, late.how) == (made.run, "attached"), late
    assert bench.submit(job, SLOW, token=token).run == made.run
    bench.pause()
    _same(end, bench.status(made.run))
    assert bench.runs_of(job) == [made.run]


def check_same_spec_attaches(bench: Bench) -> None:
    """A new token with the spec of a run that has not ended finds that run; nothing starts twice."""
    job = new_job()
    made = bench.submit(job, SLOW)
    before = bench.alive(made.run)
    found = bench.submit(job, SLOW)
    assert (found.run, found.how) == (made.run, "attached"), found
    bench.pause()
    _same(before, bench.status(made.run))
    assert bench.runs_of(job) == [made.run]
    _end(bench, made.run)


def check_finished_is_not_run_again(bench: Bench) -> None:
    """A new token with the spec of a run that succeeded is ``finished``."""
    job = new_job()
    end = bench.ended(bench.submit(job, GOOD).run)
    found = bench.submit(job, GOOD)
    assert (found.run, found.how) == (end["run"], "finished"), found
    bench.pause()
    _same(end, bench.status(found.run))


def check_failed_is_resumed(bench: Bench) -> None:
    """A new token with the spec of a failed run goes on with it, once however often it is sent."""
    job, token = new_job(), uuid.uuid4().hex
    first = bench.ended(bench.submit(job, BAD).run)
    assert first["state"] == "failed" and first["attempt"] >= 1, first
    found = bench.submit(job, BAD, token=token)
    assert (found.run, found.how) == (first["run"], "resumed"), found
    second = bench.until(found.run, lambda s: s["ended"] and s["attempt"] > first["attempt"], "tried again")
    bench.submit(job, BAD, token=token)
    bench.pause()
    _same(bench.ended(found.run), second, "state", "attempt", "run")


def check_other_spec_is_refused_while_live(bench: Bench) -> None:
    """SpecDiffers names what differs; the live run is untouched and nothing is created."""
    job = new_job()
    made = bench.submit(job, SLOW)
    before = bench.alive(made.run)
    error = _refused(SpecDiffers, lambda: bench.submit(job, SLOW, env={"LR": "2"}))
    assert any("LR" in line for line in error.why), error.why
    bench.pause()
    _same(before, bench.status(made.run))
    assert bench.runs_of(job) == [made.run]
    _end(bench, made.run)


def check_other_spec_after_an_end_is_a_new_run(bench: Bench) -> None:
    """What has ended stays as it is; the new spec is another run."""
    job = new_job()
    end = bench.ended(bench.submit(job, BAD).run)
    made = bench.submit(job, GOOD)
    assert made.how == "created" and made.run != end["run"]
    bench.ended(made.run)
    _same(end, bench.status(end["run"]))
    assert len(bench.runs_of(job)) == 2


def check_bad_spec_creates_nothing(bench: Bench) -> None:
    """A spec that cannot be executed is a UsageError."""
    job = new_job()
    _refused(UsageError, lambda: bench.submit(job, GOOD, stages=[]))
    _refused(UsageError, lambda: bench.submit(job, GOOD, no_such_key=1))
    assert bench.runs_of(job) == []


def check_hold_creates_without_starting(bench: Bench) -> None:
    """A held run stays unstarted, the same token finds it, and ``wake`` starts it."""
    job, token = new_job(), uuid.uuid4().hex
    made = bench.submit(job, GOOD, token=token, hold=True)
    assert made.how == "created" and made.status["attempt"] == 0, made
    bench.pause()
    found = bench.submit(job, GOOD, token=token, hold=True)
    assert (found.run, found.how) == (made.run, "attached"), found
    assert bench.status(made.run)["attempt"] == 0
    check_form(bench.scheduler.wake(made.run, {}))
    assert bench.ended(made.run)["state"] == "succeeded"


def check_work_needs_no_client(bench: Bench) -> None:
    """While nobody can reach the place the one attempt goes on, and a client with an empty memory finds its end."""
    made = bench.submit(new_job(), STEADY)
    bench.cut(True)
    for _ in range(15):
        bench.step()
    bench.cut(False)
    bench.scheduler = bench.again()
    found = bench.ended(made.run)
    assert (found["state"], found["attempt"]) == ("succeeded", 1), found
    assert b"one\ntwo\nthree\n" in bench.whole(made.run, "log")


# ---- looking ----


def check_poll_answers_its_nonce(bench: Bench) -> None:
    """Each answer carries the nonce of its own question, and the time there."""
    for nonce in ("first-nonce", "second-nonce"):
        head = bench.scheduler.poll(None, nonce).head
        assert head["nonce"] == nonce, head
        assert isinstance(head["wall_s"], (int, float)), head


def check_poll_of_all(bench: Bench) -> None:
    """``None`` is the status of every run, without parts."""
    made = bench.submit(new_job(), GOOD)
    end = bench.ended(made.run)
    polled = bench.scheduler.poll(None, "all")
    _same(end, polled.statuses[made.run])
    assert not polled.parts and not polled.absent
    for status in polled.statuses.values():
        check_form(status)


def check_unreachable_says_nothing(bench: Bench) -> None:
    """While the place does not answer every call raises PlaceError; afterwards everything is as it was."""
    job = new_job()
    made = bench.submit(job, SLOW)
    before = bench.alive(made.run)
    bench.cut(True)
    try:
        _refused(PlaceError, lambda: bench.poll(made.run))
        _refused(PlaceError, lambda: bench.submit(job, SLOW))
        _refused(PlaceError, lambda: bench.scheduler.wake(made.run, {}))
        _refused(PlaceError, lambda: bench.scheduler.ask(made.run, _request("stop"), wait_s=0.5))
        _refused(PlaceError, lambda: bench.scheduler.manifest(made.run))
    finally:
        bench.cut(False)
    _same(before, bench.status(made.run))
    _end(bench, made.run)


def check_submit_after_a_cut_is_one_run(bench: Bench) -> None:
    """A submission that met no answer is sent again with its token: one run comes of it."""
    job, token = new_job(), uuid.uuid4().hex
    bench.cut(True)
    try:
        _refused(PlaceError, lambda: bench.submit(job, GOOD, token=token))
    finally:
        bench.cut(False)
    made = bench.submit(job, GOOD, token=token)
    bench.ended(made.run)
    assert bench.runs_of(job) == [made.run]


def check_unknown_run_is_named(bench: Bench) -> None:
    """A run that is not there is named, and hides no other; every verb raises UnknownName."""
    made = bench.submit(new_job(), GOOD)
    ghost = "check-nobody-260101-abcd"
    polled = bench.scheduler.poll({ghost: {"log": 0}, made.run: {}}, "n")
    assert polled.absent == {ghost} and set(polled.statuses) == {made.run}, polled
    for call in (
        lambda: bench.scheduler.wake(ghost, {}),
        lambda: bench.scheduler.ask(ghost, _request("stop"), wait_s=0.5),
        lambda: bench.scheduler.manifest(ghost),
        lambda: bench.scheduler.fence(ghost, {"box": "b"}),
    ):
        assert ghost in str(_refused(UnknownName, call))
    bench.ended(made.run)


def check_every_byte_once(bench: Bench) -> None:
    """Pieces from where the last one ended, of any size, by any client, make up the whole stream."""
    made = bench.submit(new_job(), STEADY)
    got = {"log": b"", "journal": b""}
    limit = time.monotonic() + bench.patience_s
    turn = done = 0
    while not done or turn % 2:
        client = bench.scheduler if turn % 2 else bench.again()
        offsets = {part: len(data) for part, data in got.items()}
        polled = client.poll({made.run: offsets}, f"turn-{turn}", limit_bytes=97)
        for part, piece in polled.parts.get(made.run, {}).items():
            assert piece.start == len(got[part]), (part, piece.start, len(got[part]))
            assert len(piece.data) <= 97 and piece.end <= piece.size
            got[part] += piece.data
        status = polled.statuses[made.run]
        done = status["ended"] and len(got["log"]) >= status["log_bytes"] > 0
        done = done and len(got["journal"]) >= status["journal_bytes"]
        assert time.monotonic() < limit, "the streams never came to their end"
        turn += 1
        if not status["ended"]:
            bench.step()
    assert got["log"] == bench.whole(made.run, "log") and b"one\ntwo\nthree\n" in got["log"], got["log"]
    assert bench.whole(made.run, "journal").startswith(got["journal"])


def check_offsets_at_the_ends(bench: Bench) -> None:
    """Negative counts from the end, behind the end is nothing, an unknown part is left out."""
    made = bench.submit(new_job(), GOOD)
    bench.ended(made.run)
    whole = bench.whole(made.run, "log")
    tail = bench.poll(made.run, log=-4).parts[made.run]["log"]
    assert (tail.data, tail.start, tail.size) == (whole[-4:], len(whole) - 4, len(whole)), tail
    more = bench.poll(made.run, log=-10_000_000).parts[made.run]["log"]
    assert (more.start, more.data) == (0, whole)
    behind = bench.poll(made.run, log=len(whole) + 5).parts.get(made.run, {}).get("log")
    assert behind is None or (behind.data, behind.start) == (b"", len(whole)), behind
    assert set(bench.poll(made.run, no_such_part=0, log=0).parts[made.run]) <= set(PARTS)


def check_live_log(bench: Bench) -> None:
    """With ``live_log`` the first line is read while the work lives; without, the log is there after the end."""
    made = bench.submit(new_job(), STEADY.replace("sleep 1", "sleep 2"))
    status = bench.alive(made.run)
    if "live_log" in bench.scheduler.capabilities:
        bench.until(made.run, lambda s: s["log_bytes"] and s["work_alive"], "heard of while it lives")
        assert b"one" in bench.whole(made.run, "log")
    else:
        assert status["log_bytes"] == 0 and bench.whole(made.run, "log") == b""
    assert bench.ended(made.run)["log_bytes"] == len(bench.whole(made.run, "log")) > 0


# ---- how it ended ----


def check_ended_stays_ended(bench: Bench) -> None:
    """Time, polls and ``wake`` change nothing in an ended run."""
    for script in (GOOD, BAD):
        end = bench.ended(bench.submit(new_job(), script).run)
        size = len(bench.journal(end["run"]))
        bench.scheduler.wake(end["run"], {})
        bench.pause()
        _same(end, bench.ended(end["run"]))
        assert not [r for r in bench.journal(end["run"])[size:] if r["k"] in ("attempt", "state", "ended", "resumed")]


def check_outcome_is_evidence(bench: Bench) -> None:
    """A failure's class is what the evidence in its journal says, by the one table; the exit status is in it."""
    end = bench.ended(bench.submit(new_job(), BAD).run)
    assert end["state"] == "failed", end
    records = [r for r in bench.journal(end["run"]) if r["k"] == "attempt_ended"]
    assert len(records) == end["attempt"]
    evidence = Evidence.from_wire(records[-1]["evidence"])
    assert evidence.exit_code == 3 or evidence.scheduler_word, evidence
    assert classify(evidence).cls == records[-1]["outcome"]["cls"] == end["outcome"]["cls"]


def check_exit_zero_needs_its_artifacts(bench: Bench) -> None:
    """Exit status 0 without the roster's file is suspect."""
    end = bench.ended(bench.submit(new_job(), "echo all is well").run)
    assert end["state"] == "suspect", end


def check_journal_tells_the_status(bench: Bench) -> None:
    """Its records are numbered without a gap, move by the table, and fold into what the status says."""
    for script in (GOOD, BAD):
        end = bench.ended(bench.submit(new_job(), script).run)
        records = bench.journal(end["run"])
        assert [r["n"] for r in records] == list(range(len(records)))
        assert records[0]["k"] == "created"
        states = [r["state"] for r in records if r["k"] in ("state", "ended")]
        first = "queued" if states[0] == "queued" else "starting"
        wrong = [move for move in zip([first, *states], states, strict=False) if not move_allowed(RUN_MOVES, *move)]
        assert not wrong, wrong
        view = RunView().add_all(records)
        assert (view.run, view.state, view.ended) == (end["run"], end["state"], True)
        assert (view.token, view.spec_digest) == (end["token"], end["spec"])
        assert len(view.attempts) == end["attempt"]


def check_manifest(bench: Bench) -> None:
    """After the end it names every artifact with its digest, frozen; the spec comes back completed."""
    job = new_job()
    made = bench.submit(job, SLOW.replace("300", "2"))
    bench.alive(made.run)
    if "live_log" not in bench.scheduler.capabilities:
        error = _refused(NotHere, lambda: bench.scheduler.manifest(made.run))
        assert error.capability == "files" and error.because, error
    end = bench.ended(made.run)
    found = bench.scheduler.manifest(made.run)
    assert set(MANIFEST) <= set(found), sorted(found)
    manifest = Manifest.from_wire(found["manifest"])
    entry = next(e for e in manifest.entries if e.path == "out")
    assert (entry.bytes, entry.sha256) == (5, hashlib.sha256(b"done\n").hexdigest())
    assert manifest.frozen and not manifest.inferred and not manifest.missing
    assert found["spec"] == specs.complete(make_spec(job, SLOW.replace("300", "2")))
    _same(end, found["status"])


# ---- requests ----


def check_stop(bench: Bench) -> None:
    """Work that is alive is stopped, once for one id; where it cannot be reached that is said and nothing happens."""
    made = bench.submit(new_job(), SLOW)
    before = bench.alive(made.run)
    request = _request("stop", grace_s=1.0)
    if "signal" not in bench.scheduler.capabilities:
        error = _refused(NotHere, lambda: bench.scheduler.ask(made.run, request, wait_s=1.0))
        assert error.capability == "signal" and error.because and "not here" in error.what, error.what
        bench.pause()
        _same(before, bench.status(made.run))
        return
    reply = bench.scheduler.ask(made.run, request, wait_s=8.0)
    assert reply.answer is not None and reply.answer["ok"] and reply.answer["text"], reply
    end = bench.ended(made.run)
    assert (end["state"], end["outcome"]["cls"]) == ("stopped", "stopped"), end
    again = bench.scheduler.ask(made.run, request, wait_s=8.0)
    assert again.answer is not None and again.answer["ok"]
    assert len([r for r in bench.journal(made.run) if r["k"] == "answered" and r["id"] == request["id"]]) == 1
    _same(end, bench.status(made.run))


def check_stop_before_the_start(bench: Bench) -> None:
    """A run that never started is withdrawn, everywhere."""
    made = bench.submit(new_job(), GOOD, hold=True)
    bench.scheduler.ask(made.run, _request("stop"), wait_s=8.0)
    end = bench.ended(made.run)
    assert (end["state"], end["attempt"]) == ("stopped", 0), end


def check_asking_an_ended_run_is_harmless(bench: Bench) -> None:
    """Stop, save, extend and release change nothing in it; each is answered."""
    end = bench.ended(bench.submit(new_job(), GOOD).run)
    for kind in ("stop", "checkpoint", "extend", "release", "retry"):
        reply = bench.scheduler.ask(end["run"], _request(kind), wait_s=8.0)
        assert reply.answer is not None and reply.answer["text"], (kind, reply)
        _same(end, reply.status)
    bench.pause()
    _same(end, bench.status(end["run"]))


def check_unknown_request(bench: Bench) -> None:
    """A kind of request that does not exist is a UsageError."""
    end = bench.ended(bench.submit(new_job(), GOOD).run)
    _refused(UsageError, lambda: bench.scheduler.ask(end["run"], _request("explode"), wait_s=1.0))
    _same(end, bench.status(end["run"]))


def check_retry(bench: Bench) -> None:
    """An ended run goes on when asked, once for one id."""
    first = bench.ended(bench.submit(new_job(), BAD).run)
    request = _request("retry")
    for _ in range(2):
        reply = bench.scheduler.ask(first["run"], request, wait_s=8.0)
        assert reply.answer is not None and reply.answer["ok"], reply
        second = bench.until(first["run"], lambda s: s["ended"] and s["attempt"] > first["attempt"], "tried again")
    resumed = [r for r in bench.journal(first["run"]) if r["k"] == "resumed"]
    assert len(resumed) == 1 and second["state"] == "failed", resumed


# ---- secrets, and runs that moved ----


def check_secrets_stay_out(bench: Bench) -> None:
    """The work has them; no status, stream, manifest or error does."""
    job, secrets = new_job(), {"keep": "memory", "names": ["OUTLIVE_CHECK_KEY"]}
    made = bench.submit(job, NEEDY, secrets=secrets, payload={"secrets": {"OUTLIVE_CHECK_KEY": SECRET}})
    error = _try(lambda: bench.submit(job, GOOD, secrets=secrets, payload={"secrets": {"OUTLIVE_CHECK_KEY": SECRET}}))
    end = bench.ended(made.run)
    assert end["state"] == "succeeded", end
    seen = [json.dumps(end), json.dumps(bench.scheduler.manifest(made.run)), str(error), repr(error)]
    seen += [bench.whole(made.run, part).decode("utf-8", "replace") for part in PARTS]
    assert not any(SECRET in text for text in seen)
    assert end["secret_names"] == ["OUTLIVE_CHECK_KEY"]


def check_waits_for_secrets(bench: Bench) -> None:
    """Without them the run waits and says for what; ``wake`` brings them and it goes on."""
    made = bench.submit(new_job(), NEEDY, secrets={"keep": "memory", "names": ["OUTLIVE_CHECK_KEY"]})
    waiting = bench.until(made.run, lambda s: s["state"] == "waiting", "waiting")
    assert "OUTLIVE_CHECK_KEY" in waiting["why"] and waiting["attempt"] == 0, waiting
    check_form(bench.scheduler.wake(made.run, {"secrets": {"OUTLIVE_CHECK_KEY": SECRET}}))
    assert bench.ended(made.run)["state"] == "succeeded"


def check_fence(bench: Bench) -> None:
    """A fenced run says who continued it; no attempt of it starts again by time, ``wake``, ``retry`` or its token."""
    job, token = new_job(), uuid.uuid4().hex
    made = bench.submit(job, GOOD, token=token, hold=True)
    by = {"run": f"{job}-260101-abcd", "box": "another"}
    bench.scheduler.fence(made.run, by)
    found = bench.until(made.run, lambda s: s["fenced"], "fenced")
    assert found["fenced"]["box"] == "another", found
    bench.scheduler.fence(made.run, by)
    bench.scheduler.wake(made.run, {})
    bench.ended(made.run)
    bench.scheduler.ask(made.run, _request("retry"), wait_s=8.0)
    assert bench.submit(job, GOOD, token=token).run == made.run
    bench.pause()
    assert bench.status(made.run)["attempt"] == 0
    assert bench.submit(job, GOOD).run != made.run


SCHEDULER_CHECKS: tuple[Callable[[Bench], None], ...] = (
    check_capabilities,
    check_submit_creates,
    check_same_token_is_the_same_submission,
    check_same_spec_attaches,
    check_finished_is_not_run_again,
    check_failed_is_resumed,
    check_other_spec_is_refused_while_live,
    check_other_spec_after_an_end_is_a_new_run,
    check_bad_spec_creates_nothing,
    check_hold_creates_without_starting,
    check_work_needs_no_client,
    check_poll_answers_its_nonce,
    check_poll_of_all,
    check_unreachable_says_nothing,
    check_submit_after_a_cut_is_one_run,
    check_unknown_run_is_named,
    check_every_byte_once,
    check_offsets_at_the_ends,
    check_live_log,
    check_ended_stays_ended,
    check_outcome_is_evidence,
    check_exit_zero_needs_its_artifacts,
    check_journal_tells_the_status,
    check_manifest,
    check_stop,
    check_stop_before_the_start,
    check_asking_an_ended_run_is_harmless,
    check_unknown_request,
    check_retry,
    check_secrets_stay_out,
    check_waits_for_secrets,
    check_fence,
)


def _request(kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"{kind}-{uuid.uuid4().hex[:12]}", "kind": kind, "by": "a check", **fields}


def _end(bench: Bench, run: str) -> None:
    """Leave no live work behind where that can be helped."""
    if "signal" in bench.scheduler.capabilities:
        bench.scheduler.ask(run, _request("stop", grace_s=0.0), wait_s=5.0)


def _try(call: Callable[[], object]) -> OutliveError | None:
    try:
        call()
    except OutliveError as error:
        return error
    return None


# ---- for authors elsewhere ----


def memory_bench() -> Bench:
    """Return a bench with the twin of a bare box."""
    return _bench(MemoryScheduler(), MemoryScheduler)


def queue_bench(**options: Any) -> Bench:
    """Return a bench with the twin of a queue; options as for ``MemoryQueue``."""
    return _bench(MemoryQueue(**options), MemoryQueue)


def _bench(twin: MemoryScheduler, kind: Callable[[MemoryPlace], Scheduler]) -> Bench:
    def cut(yes: bool) -> None:
        twin.place.cut = yes

    return Bench(twin, lambda: kind(twin.place), lambda: twin.advance(0.2), cut)


def run_all(make: Callable[[], Bench]) -> dict[str, Exception | None]:
    """Run every check on a bench of its own; returns check name to the exception, None where it passed."""
    results: dict[str, Exception | None] = {}
    for check in SCHEDULER_CHECKS:
        bench = make()
        try:
            check(bench)
            results[check.__name__] = None
        except Exception as problem:  # whatever a scheduler raises is its result here
            results[check.__name__] = problem
        finally:
            bench.close()
    return results
