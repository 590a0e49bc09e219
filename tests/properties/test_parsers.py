"""Laws of everything that reads a log: chunks do not matter, no bytes break it, an outcome always has its remedy."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.diagnose.alarms import KINDS, Alarms
from outlive.diagnose.lines import LineSplitter
from outlive.diagnose.outcome import classify, fatal_lines
from outlive.diagnose.parsers import NEEDLES, MetricParser, point_from_wire, wire_point
from outlive.wire.states import OUTCOME_CLASSES
from outlive.wire.values import Evidence

PIECES = st.sampled_from(
    [
        b"\n",
        b"\r",
        b"\r\n",
        b"\r\r",
        b"\x1b[1m",
        b"\x1b[0m",
        b"\x00",
        b"\xff",
        b"\xe2\x96\x88",
        b" ",
        b"\t",
        b"loss",
        b"step",
        b"step 10 loss 2.5",
        b"{'loss': nan, 'epoch': 0.1}",
        b'{"step": 1, "loss": 0.5}',
        b"iter 3: loss 1.5, time 1.0ms, mfu 4.0%",
        b"\r 37%|\xe2\x96\x88  | 37/100 [00:10<00:20, 31.2it/s, loss=2.3]",
        b"[rank0]: ",
        b"Epoch 3/10\n",
        b"Epoch 1: 5%|# | 5/100 [00:01<00:02, 3.0it/s, loss=1]",
        b"10/455 [>....] - ETA: 9s - loss: 0.5\n",
        b"Traceback (most recent call last):\n",
        b'  File "a.py", line 1\n',
        b"    loss = 0.5\n",
        b"ValueError: x\n",
        b"OVERFLOW! Skipping step, reducing to 32768",
        b"loss=",
        b"nan",
        b"1e5",
        b"/",
        b"%|",
        b"|",
        b"[",
        b"]",
        b"it/s",
    ]
)
LOGS = st.lists(st.one_of(PIECES, st.binary(max_size=6)), max_size=40).map(b"".join)
CUTS = st.lists(st.integers(0, 300), max_size=12)


def pieces(data, cuts):
    places = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    return [data[a:b] for a, b in zip(places, places[1:], strict=False)]


def plain(points):
    return [sorted((k, repr(v)) for k, v in p.items()) for p in points]


@given(LOGS, CUTS, st.sampled_from([(), NEEDLES]), st.sampled_from([8, 64, 65536]))
def test_lines_do_not_depend_on_chunks(data, cuts, needles, size):
    whole = LineSplitter(needles=needles, max_bytes=size)
    want = whole.feed(data) + whole.flush()
    parts = LineSplitter(needles=needles, max_bytes=size)
    got = [line for piece in pieces(data, cuts) for line in parts.feed(piece)] + parts.flush()
    assert got == want and parts.offset == len(data)


@given(LOGS)
def test_lines_cover_the_stream_without_holes(data):
    splitter = LineSplitter()
    at = 0
    for line in splitter.feed(data) + splitter.flush():
        if not line.bar:
            assert line.start == at and line.end > at
            at = line.end
    assert at == len(data)


@given(LOGS)
def test_needles_are_a_filter(data):
    # Needles are looked up in the bytes; escape codes inside a word may hide or part it there.
    data = data.replace(b"\x1b", b"").replace(b"\x00", b"")
    every = LineSplitter()
    some = LineSplitter(needles=(b"loss",))
    want = [x for x in every.feed(data) + every.flush() if "loss" in x.text.lower()]
    got = [x for x in some.feed(data) + some.flush() if "loss" in x.text.lower()]
    assert got == want


@given(LOGS, CUTS)
def test_points_do_not_depend_on_chunks(data, cuts):
    whole = MetricParser()
    want = whole.feed(data) + whole.flush()
    parts = MetricParser()
    got = [p for piece in pieces(data, cuts) for p in parts.feed(piece)] + parts.flush()
    assert plain(got) == plain(want)


@given(LOGS)
def test_points_have_their_types_and_travel(data):
    parser = MetricParser()
    for point in parser.feed(data) + parser.flush():
        assert point["source"] and all(isinstance(point[k], int) for k in ("step", "total", "skipped") if k in point)
        assert all(isinstance(point[k], float) for k in ("epoch", "loss", "val_loss", "lr", "grad_norm") if k in point)
        sent = wire_point(point)
        assert all(not isinstance(v, float) or math.isfinite(v) for v in sent.values())
        assert plain([point_from_wire(sent)]) == plain([point])


@given(
    st.integers(0, 10**9),
    st.floats(1e-6, 1e6),
    st.one_of(st.none(), st.floats(1e-9, 1.0)),
    st.sampled_from(
        [
            "step {s} loss {l}{r}",
            "step={s} loss={l}{r}",
            "[{s}] step: {s}, loss: {l}{r}",
            "INFO:root:step {s} | loss {l}{r}",
        ]
    ),
)
def test_what_was_printed_is_what_is_read(step, loss, lr, form):
    text = form.format(s=step, l=f"{loss:.8g}", r=f" lr {lr:.6g}" if lr is not None else "")
    (point,) = MetricParser().feed(text.encode() + b"\n")
    assert point["step"] == step and point["loss"] == float(f"{loss:.8g}")
    assert point.get("lr") == (float(f"{lr:.6g}") if lr is not None else None)


@given(LOGS, st.integers(0, 30))
def test_fatal_lines_take_any_bytes(data, limit):
    lines = fatal_lines(data, limit)
    assert len(lines) <= limit and all(line.strip() and len(line) <= 400 for line in lines)


SMALL = st.one_of(st.none(), st.integers(-300, 300))
WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            "asked",
            "lease",
            "hung",
            "PREEMPTED",
            "TIMEOUT",
            "OUT_OF_MEMORY",
            "NODE_FAIL",
            "CANCELLED",
            "bytes",
            "inodes",
        ]
    ),
    st.text(max_size=12),
)
LINES = st.one_of(
    st.sampled_from(
        [
            "MemoryError: x",
            "No space left on device",
            "KeyError: 1",
            "CUDA out of memory",
            "ChildFailedError:",
            "Xid: 79",
        ]
    ),
    st.text(max_size=60),
)
MAYBE = st.sampled_from([None, True, False])
EVIDENCE = st.builds(
    Evidence,
    exit_code=SMALL,
    signal=SMALL,
    exit_seen=st.booleans(),
    our_stop=WORDS,
    machine_changed=MAYBE,
    oom_kill_delta=SMALL,
    disk_bytes_free=st.one_of(st.none(), st.integers(0, 10**13)),
    disk_inodes_free=st.one_of(st.none(), st.integers(0, 10**7)),
    disk_refused=WORDS,
    scheduler_word=WORDS,
    notice=WORDS,
    fatal_lines=st.lists(LINES, max_size=5).map(tuple),
    nan_seen=st.booleans(),
    artifacts_ok=MAYBE,
    artifacts_why=st.one_of(WORDS, st.just("nothing declared")),
    last_step=SMALL,
    total_steps=SMALL,
)


@settings(max_examples=400)
@given(EVIDENCE)
def test_an_outcome_always_has_a_class_with_its_remedy(evidence):
    got = classify(evidence)
    assert OUTCOME_CLASSES[got.cls] == got.remedy and got.sentence
    assert (
        Evidence.from_wire(evidence.to_wire()) == evidence and classify(Evidence.from_wire(evidence.to_wire())) == got
    )


@given(EVIDENCE)
def test_nothing_succeeds_with_bad_artifacts_or_without_an_end(evidence):
    got = classify(evidence)
    if got.cls == "succeeded":
        assert evidence.artifacts_ok is not False
        assert (evidence.exit_seen and evidence.exit_code == 0) or evidence.artifacts_ok is True
    if got.cls == "killed_unexplained":
        assert evidence.oom_kill_delta == 0 and not evidence.fatal_lines and not evidence.our_stop


FLOATS = st.one_of(st.floats(), st.none())
POINTS = st.fixed_dictionaries(
    {"loss": FLOATS, "grad_norm": FLOATS, "source": st.sampled_from(["kv", "hf"])},
    optional={
        "step": st.integers(0, 5000),
        "lr": FLOATS,
        "skipped": st.just(1),
        "loss_scale": FLOATS,
        "val_loss": FLOATS,
    },
)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "alive": MAYBE,
        "phase": st.sampled_from(["", "compile", "train"]),
        "disks": st.lists(
            st.fixed_dictionaries(
                {"path": st.just("/"), "bytes_total": st.just(100), "bytes_free": st.integers(0, 100)}
            ),
            max_size=1,
        ),
        "memory_used_bytes": st.integers(0, 100),
        "memory_limit_bytes": st.sampled_from([None, 0, 100]),
        "gpus_expected": st.sampled_from([None, 2]),
        "gpus_seen": st.sampled_from([None, 1, 2]),
        "checkpoint_step": st.one_of(st.none(), st.integers(0, 5000)),
        "artifacts_ok": MAYBE,
    },
)
EVENTS = st.lists(st.tuples(st.integers(1, 900), st.one_of(POINTS, FACTS)), max_size=60)


@given(EVENTS)
def test_an_alarm_is_raised_and_cleared_in_turn(events):
    alarms = Alarms()
    now_s = 0.0
    up = set()
    for wait_s, event in events:
        now_s += wait_s
        if "source" in event:
            alarms.on_metric(event, now_s)
            continue
        for alarm in alarms.tick(now_s, event):
            key = (alarm.kind, alarm.subject)
            assert alarm.kind in KINDS and alarm.sentence
            assert (key in up) == (alarm.state == "cleared")
            up ^= {key}
    for alarm in alarms.tick(now_s, {}):
        up ^= {(alarm.kind, alarm.subject)}
    assert sorted(up) == alarms.raised()
