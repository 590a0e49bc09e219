"""Laws of the gate, over boxes that nobody thought of."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.errors import OutliveError
from outlive.gate import (
    Approval,
    BoxClaims,
    Costs,
    ForeignProcess,
    RunClaims,
    SafePlace,
    Tier,
    Unclaimed,
    UnclaimedFile,
    Waiver,
    approval,
    waiver,
)
from outlive.gate.decide import Decision, decide
from outlive.wire.states import RUN_ENDED, RUN_STATES
from outlive.wire.values import LEVELS, READ_BACK, Copy, Entry, Manifest, Proof

NOW_S = 1_800_000_000.0
DIGESTS = st.sampled_from(["a" * 64, "b" * 64, "c" * 64, ""])
PATHS = st.sampled_from(["out/a.pt", "out/b.pt", "out/ckpt/1.pt", "m.json"])
PLACES = {
    "here:/home/u/r": (SafePlace("here:/home/u/r", "local"), True),
    "mount:/vol/r": (SafePlace("mount:/vol/r", "network"), True),
    "mount:/root/r": (SafePlace("mount:/root/r", "local"), False),
    "rclone:s:b": (SafePlace("rclone:s:b", "remote", on_box=False), True),
    "rclone:back:b": (SafePlace("rclone:back:b", "remote", on_box=True), False),
}
"""Each place with the answer that a person would give by reading the definition of a safe place."""
TIERS = (Tier("disk", "/", False, False, True), Tier("volume", "/vol", True, True, False))

mostly = st.sampled_from


def maybe(strategy, likely=8):
    """The value, and now and then nobody knows."""
    return st.one_of(*[strategy] * likely, st.none())


entries = st.builds(Entry, PATHS, st.just(10), DIGESTS, role=st.sampled_from(["artifact", "checkpoint", "log"]))
proofs = st.builds(
    Proof,
    DIGESTS,
    st.just(10),
    st.sampled_from(LEVELS),
    st.sampled_from(["torch-zip", "json", "unknown"]),
    st.sampled_from([(), (), ({"code": "corrupt", "text": ""},), ({"code": "pickle_globals", "text": ""},)]),
)
copies = st.builds(Copy, DIGESTS, st.sampled_from(sorted(PLACES)), PATHS, st.sampled_from([*READ_BACK, "never"]))


@st.composite
def good_runs(draw):
    """A run that is delivered whole, before something is spoilt."""
    listed = draw(
        st.lists(st.builds(Entry, PATHS, st.just(10), DIGESTS.filter(bool)), max_size=3, unique_by=lambda e: e.path)
    )
    kept = draw(
        st.lists(
            st.builds(Entry, st.just("out/ckpt/9.pt"), st.just(10), DIGESTS.filter(bool), step=st.just(9)), max_size=1
        )
    )
    home = "here:/home/u/r"
    return RunClaims(
        run=draw(st.sampled_from(["r1", "r2"])),
        state="failed",
        live=False,
        manifest=Manifest("r", tuple(listed), frozen=True),
        checkpoints=tuple(kept),
        changed=(),
        drift=(),
        logs=(),
        copies=tuple(Copy(e.sha256, home, e.path, "cache") for e in (*listed, *kept)),
        proofs=tuple(Proof(e.sha256, 10, "tensors", "torch-zip") for e in (*listed, *kept)),
    )


@st.composite
def runs(draw):
    run = draw(good_runs())
    spoilt = {
        "state": st.sampled_from(sorted(RUN_STATES)),
        "live": st.sampled_from([True, False, None]),
        "manifest": st.one_of(
            st.none(),
            st.builds(Manifest, st.just("r"), st.lists(entries, max_size=3).map(tuple), st.booleans(), st.booleans()),
        ),
        "checkpoints": st.lists(entries, max_size=2).map(tuple),
        "changed": st.sampled_from([None, (), ("out/a.pt",)]),
        "drift": maybe(st.lists(entries, max_size=1).map(tuple)),
        "logs": maybe(st.lists(entries, max_size=1).map(tuple)),
        "copies": st.lists(copies, max_size=4).map(tuple),
        "proofs": st.lists(proofs, max_size=4).map(tuple),
    }
    for name in draw(st.lists(st.sampled_from(sorted(spoilt)), max_size=3, unique=True)):
        run = dataclasses.replace(run, **{name: draw(spoilt[name])})
    return run


@st.composite
def boxes(draw):
    box = BoxClaims(
        box="b1",
        action=draw(st.sampled_from(["stop", "destroy"])),
        provider_id="i-1",
        box_id="id1",
        tiers=TIERS,
        reachable=True,
        evidence_age_s=5.0,
        runs=tuple(draw(st.lists(runs(), max_size=2, unique_by=lambda r: r.run))),
        places=tuple(place for place, _ in PLACES.values()),
        processes=(),
        gpu_holders=(),
        unclaimed=Unclaimed(complete=True),
        costs=Costs(1.0, "USD"),
        danger_clocks=(),
    )
    spoilt = {
        "reachable": st.just(False),
        "evidence_age_s": st.sampled_from([None, 400.0, 5000.0]),
        "runs": st.none(),
        "processes": st.sampled_from([None, (ForeignProcess(7, "x", writes=("/root/y",)),)]),
        "gpu_holders": st.sampled_from([None, (ForeignProcess(7, "x"),)]),
        "unclaimed": st.sampled_from([None, Unclaimed(), Unclaimed((UnclaimedFile("/root/z", 3),), 1, 3, True)]),
        "costs": st.none(),
        "danger_clocks": st.none(),
        "places": st.just(()),
        "tiers": st.just(()),
    }
    for name in draw(st.lists(st.sampled_from(sorted(spoilt)), max_size=1, unique=True)):
        box = dataclasses.replace(box, **{name: draw(spoilt[name])})
    return box


def give_up(decision: Decision, numbers: set[int]) -> list[Waiver]:
    """Type a waiver for each of these clauses that is in the way and can be given up."""
    words = []
    for number in sorted(numbers):
        try:
            words.append(waiver.parse(f"b1 lose {number}", decision, NOW_S, at_terminal=True))
        except OutliveError:
            continue
    return words


def answered(claims: BoxClaims, numbers: set[int]) -> tuple[Decision, list[Waiver], Approval | None]:
    """Carry the whole conversation through as a person at a terminal would."""
    words = give_up(decide(claims, (), None, NOW_S), numbers)
    ready = decide(claims, words, None, NOW_S)
    if ready.verdict == "red":
        return ready, words, None
    leave = approval.mint("now", "a", ready, claims, NOW_S, at_terminal=True)
    return decide(claims, words, leave, NOW_S), words, leave


def safe_by_definition(copy: Copy) -> bool:
    """Section 1's words, written down a second time and without the gate's code."""
    if copy.place not in PLACES or not PLACES[copy.place][1]:
        return False
    return copy.read_back in (
        ("cache", "storage", "remote_hash") if copy.place.startswith("here:") else ("storage", "remote_hash")
    )


def overwritten(copy: Copy, run: RunClaims) -> bool:
    later = run.copies[run.copies.index(copy) + 1 :]
    return any((c.place, c.path) == (copy.place, copy.path) and c.sha256 != copy.sha256 for c in later)


@settings(max_examples=400, deadline=None)
@given(boxes(), st.sets(st.integers(1, 8)))
def test_never_open_while_a_file_has_neither_a_safe_copy_nor_a_waiver(claims, numbers):
    decision, _, _ = answered(claims, numbers)
    if decision.verdict != "open" or 2 in decision.waived:
        return
    assert claims.runs is not None
    for run in claims.runs:
        assert run.manifest is not None
        for entry in (*run.manifest.entries, *run.checkpoints):
            if entry.role == "log" and 4 in decision.waived:
                continue
            assert claims.places
            held = [c for c in run.copies if c.sha256 == entry.sha256 and safe_by_definition(c)]
            assert entry.sha256
            assert any(not overwritten(c, run) for c in held)


@settings(max_examples=400, deadline=None)
@given(boxes(), st.sets(st.integers(1, 8)))
def test_never_open_over_a_run_that_lives_or_is_not_seen(claims, numbers):
    decision, _, _ = answered(claims, numbers)
    if decision.verdict == "open" and 1 not in decision.waived:
        assert claims.reachable
        assert claims.evidence_age_s is not None
        assert claims.evidence_age_s <= 900
        assert all(run.live is False and run.state in RUN_ENDED for run in claims.runs)


@settings(max_examples=400, deadline=None)
@given(boxes(), st.sets(st.integers(1, 8)))
def test_open_means_every_clause_green_or_given_up_and_approved(claims, numbers):
    decision, words, leave = answered(claims, numbers)
    given_up = {n for w in words for n in w.clauses}
    settled = all(c.state == "green" or c.number in given_up for c in decision.clauses if c.number < 8)
    assert (decision.verdict == "open") == (settled and leave is not None)
    assert decision.exit_code == {"open": 0, "red": 3, "needs_approval": 5}[decision.verdict]
    assert bool(decision.missing) == (decision.verdict != "open")


@settings(max_examples=200, deadline=None)
@given(boxes(), boxes(), st.sets(st.integers(1, 8)))
def test_what_was_given_for_one_box_opens_no_other(claims, other, numbers):
    _, words, leave = answered(claims, numbers)
    decision = decide(other, words, leave, NOW_S + 1)
    if decide(claims, (), None, NOW_S).digest != decide(other, (), None, NOW_S).digest:
        assert decision.verdict != "open"
        assert not decision.waived


@settings(max_examples=200, deadline=None)
@given(boxes())
def test_without_a_person_nothing_opens(claims):
    assert decide(claims, (), None, NOW_S).verdict != "open"


@settings(max_examples=200, deadline=None)
@given(boxes(), st.floats(0, 86400))
def test_standing_opens_only_on_all_green_and_fresh(claims, later_s):
    decision = decide(claims, (), None, NOW_S)
    leave = approval.mint("standing", "s", decision, claims, NOW_S, at_terminal=True, until_s=NOW_S + 3600)
    used = decide(claims, (), leave, NOW_S + later_s)
    fresh = claims.evidence_age_s is not None and claims.evidence_age_s < 300
    assert (used.verdict == "open") == (decision.all_green and fresh and later_s < 3600)


@settings(max_examples=200, deadline=None)
@given(boxes(), st.sampled_from(["live", "changed", "drift", "logs", "manifest"]))
def test_knowing_less_never_opens_more(claims, forgotten):
    """Taking evidence away may close the gate; it never opens it, whoever approves."""
    if not claims.runs:
        return
    run = dataclasses.replace(claims.runs[0], **{forgotten: None})
    less = dataclasses.replace(claims, runs=(run, *claims.runs[1:]))
    before = decide(claims, (), None, NOW_S)
    after = decide(less, (), None, NOW_S)
    for was, now in zip(before.clauses, after.clauses, strict=True):
        assert not (was.state != "green" and now.state == "green") or forgotten == "manifest"
    assert not (before.verdict == "red" and after.verdict != "red")


@settings(max_examples=100, deadline=None)
@given(boxes())
def test_the_same_claims_give_the_same_decision(claims):
    assert decide(claims, (), None, NOW_S) == decide(dataclasses.replace(claims), (), None, NOW_S)
