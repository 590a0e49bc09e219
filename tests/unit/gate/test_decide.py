import dataclasses
import itertools

import pytest

from outlive.gate import approval as approvals
from outlive.gate import waiver
from outlive.gate.clauses import judge_all
from outlive.gate.decide import APPROVAL, decide, settle

from .build_claims import NOW_S, box_with_run, green_box, green_run

STATES = ("green", "red", "unknown")


def test_truth_table_over_every_combination():
    """Open exactly when each of 1 to 7 is green or, up to 6, given up, and the approval holds."""
    opened = 0
    for row in itertools.product(STATES, repeat=7):
        states = dict(zip(range(1, 8), row, strict=True))
        in_the_way = [n for n, state in states.items() if state != "green"]
        for given_up in ((), in_the_way, in_the_way[:1], in_the_way[1:], range(1, 9)):
            settled = all(n in given_up and n != 7 for n in in_the_way)
            for approved in (True, False):
                want = ("open" if approved else "needs_approval") if settled else "red"
                assert settle(states, given_up, approved) == want
                opened += want == "open"
    assert opened > 3**6  # the table has both sides


def spoilt(number: int, state: str):
    """Claims in which exactly this clause is in this state."""
    from outlive.gate import ForeignProcess, Unclaimed, UnclaimedFile

    return {
        (1, "red"): lambda: box_with_run(live=True),
        (1, "unknown"): lambda: box_with_run(live=None),
        (2, "red"): lambda: box_with_run(copies=green_run().copies[1:]),
        (2, "unknown"): lambda: box_with_run(changed=None),
        (3, "red"): lambda: box_with_run(
            proofs=(dataclasses.replace(green_run().proofs[0], level="bytes"), *green_run().proofs[1:])
        ),
        (3, "unknown"): lambda: box_with_run(proofs=green_run().proofs[1:]),
        (4, "red"): lambda: box_with_run(copies=green_run().copies[:-1]),
        (4, "unknown"): lambda: box_with_run(drift=None),
        (5, "red"): lambda: green_box(gpu_holders=(ForeignProcess(7, "python other.py"),)),
        (5, "unknown"): lambda: green_box(gpu_holders=None),
        (6, "red"): lambda: green_box(unclaimed=Unclaimed((UnclaimedFile("/root/x", 5),), 1, 5, True)),
        (6, "unknown"): lambda: green_box(unclaimed=Unclaimed(complete=False)),
        (7, "unknown"): lambda: green_box(costs=None),
    }[number, state]()


SPOILT = [(n, s) for n in range(1, 7) for s in ("red", "unknown")] + [(7, "unknown")]


def now_approval(decision, claims):
    return approvals.mint("now", "a1", decision, claims, NOW_S, at_terminal=True)


def test_all_green_needs_only_the_approval():
    claims = green_box()
    first = decide(claims, (), None, NOW_S)
    assert (first.verdict, first.exit_code) == ("needs_approval", 5)
    assert [c.state for c in first.clauses] == ["green"] * 7 + ["red"]
    second = decide(claims, (), now_approval(first, claims), NOW_S + 1)
    assert (second.verdict, second.exit_code, second.missing, second.next) == ("open", 0, (), ())


@pytest.mark.parametrize(("number", "state"), SPOILT)
def test_each_clause_alone_keeps_the_gate_shut(number, state):
    claims = spoilt(number, state)
    decision = decide(claims, (), None, NOW_S)
    assert [c.number for c in decision.clauses[:7] if c.state != "green"] == [number]
    clause = decision.clause(number)
    assert clause.state == state
    assert clause.items, "whoever may give it up has to see what it is"
    assert (decision.verdict, decision.exit_code) == ("red", 3)
    assert any(line.startswith(f"{number} ") for line in decision.missing)
    assert decision.next
    # Not even an approval that was minted for these very claims opens it.
    forged = dataclasses.replace(
        now_approval(decide(green_box(), (), None, NOW_S), claims),
        decision_digest=decision.digest,
        roster_digest=claims.roster_digest(),
        runs=claims.run_names(),
    )
    assert decide(claims, (), forged, NOW_S + 1).verdict == "red"


@pytest.mark.parametrize(("number", "state"), [row for row in SPOILT if row[0] < 7])
def test_each_clause_can_be_given_up_after_it_was_shown(number, state):
    claims = spoilt(number, state)
    shown = decide(claims, (), None, NOW_S)
    word = waiver.parse(f"rented-1 lose {number}", shown, NOW_S + 1, at_terminal=True)
    settled = decide(claims, (word,), None, NOW_S + 2)
    assert settled.verdict == "needs_approval"
    assert settled.waived == (number,)
    leave = approvals.mint("now", "a1", settled, claims, NOW_S + 3, at_terminal=True)
    assert decide(claims, (word,), leave, NOW_S + 4).verdict == "open"
    assert decide(claims, (), leave, NOW_S + 4).verdict == "red"


def test_ages_do_not_change_what_was_decided():
    """Time passes while a person reads; only what is in the way makes the digest."""
    early = decide(box_with_run(copies=()), (), None, NOW_S)
    late = decide(
        dataclasses.replace(box_with_run(copies=()), evidence_age_s=60.0, box_wall_s=1050.0), (), None, NOW_S + 50
    )
    assert early.digest == late.digest


def test_another_content_is_another_decision():
    entries = tuple(dataclasses.replace(e, sha256="9" * 64) for e in green_run().manifest.entries)
    other = box_with_run(manifest=dataclasses.replace(green_run().manifest, entries=entries))
    assert decide(other, (), None, NOW_S).digest != decide(green_box(), (), None, NOW_S).digest


def test_detach_is_not_gated():
    claims = green_box(
        action="detach",
        verb="",
        machine_stops=False,
        tiers=(),
        unclaimed=None,
        costs=None,
        runs=(green_run(copies=(), proofs=()),),
    )
    decision = decide(claims, (), None, NOW_S)
    assert (decision.verdict, decision.exit_code) == ("open", 0)
    assert [c.number for c in decision.clauses] == [1]


@pytest.mark.parametrize("live", [True, None])
def test_detach_is_refused_while_a_run_lives_or_may(live):
    claims = green_box(action="detach", runs=(green_run(live=live),))
    decision = decide(claims, (), None, NOW_S)
    assert (decision.verdict, decision.exit_code) == ("red", 3)


def test_unreachable_box_is_unknown_and_says_as_of():
    claims = green_box(reachable=False, evidence_age_s=7200.0)
    decision = decide(claims, (), None, NOW_S)
    assert decision.verdict == "red"
    assert {c.number for c in decision.clauses if c.state == "unknown"} == {1, 5, 6}
    assert "as of 7200 s ago" in decision.clause(1).sentence
    assert ("outlive", "doctor", "rented-1") in decision.next


def test_clause_numbers_stay():
    assert [(c.number, c.id) for c in judge_all(green_box())] == [
        (1, "live"),
        (2, "safe"),
        (3, "proved"),
        (4, "code-and-logs"),
        (5, "foreign"),
        (6, "unclaimed"),
        (7, "price"),
    ]
    assert APPROVAL == 8


def test_decision_as_plain_data():
    import json

    plain = json.loads(json.dumps(decide(spoilt(2, "red"), (), None, NOW_S).to_wire()))
    assert plain["verdict"] == "red"
    assert plain["clauses"][1]["items"][0]["path"].endswith("out/best.pt")
    assert plain["why"]
