import dataclasses

import pytest

from outlive.errors import ApprovalInvalid, ApprovalNeeded, GateRefused, UsageError
from outlive.gate import Approval, Refusal, Request, Unclaimed, UnclaimedFile, approval, waiver
from outlive.gate.decide import decide

from .build_claims import NOW_S, box_with_run, green_box, green_run


def given(kind="now", claims=None, until_s=NOW_S + 3600, at_terminal=True, created_here=(), now_s=NOW_S):
    claims = claims or green_box()
    decision = decide(claims, (), None, now_s)
    return approval.mint(kind, "a1", decision, claims, now_s, at_terminal, until_s, created_here)


def refusal(leave, claims=None, now_s=NOW_S + 1):
    claims = claims or green_box()
    answer = approval.check(leave, decide(claims, (), None, now_s), claims, now_s)
    return answer.reason if isinstance(answer, Refusal) else ""


@pytest.mark.parametrize("kind", ["now", "standing"])
def test_it_holds(kind):
    assert refusal(given(kind)) == ""
    assert decide(green_box(), (), given(kind), NOW_S + 1).verdict == "open"


def test_now_lasts_a_quarter_of_an_hour_and_one_use():
    leave = given()
    fresh = green_box(evidence_age_s=1.0)
    assert refusal(leave, fresh, NOW_S + 899) == ""
    assert "time is over" in refusal(leave, fresh, NOW_S + 900)
    assert "used already" in refusal(leave.used())
    assert "clock was set back" in refusal(leave, fresh, NOW_S - 1)
    assert "longer than" in refusal(dataclasses.replace(leave, until_s=NOW_S + 901))


@pytest.mark.parametrize("kind", ["now", "standing"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"action": "stop"}, "it is for destroy, not stop"),
        ({"box": "rented-2"}, "it is for rented-1, not rented-2"),
        ({"provider_id": "i-9"}, "another one"),
        ({"box_id": "aa"}, "another box answers"),
        ({"runs": ()}, "the runs on the box are others"),
        ({"runs": (green_run(), green_run(run="other-260801-abcd"))}, "the runs on the box are others"),
        ({"runs": (green_run(roster=("out/best.pt",)),)}, "roster has changed"),
        ({"runs": (green_run(spec_digest="6" * 64),)}, "roster has changed"),
    ],
)
def test_any_change_voids_it(kind, change, why):
    leave = given(kind)
    claims = green_box(**change)
    assert why in refusal(leave, claims)
    assert decide(claims, (), leave, NOW_S + 1).exit_code == 5


def test_now_is_bound_to_what_was_shown():
    """All green again, with other bytes: somebody must look again."""
    run = green_run()
    manifest = dataclasses.replace(run.manifest, entries=run.manifest.entries[:1])
    assert "changed since it was shown" in refusal(given(), box_with_run(manifest=manifest))


def test_standing_may_be_given_while_the_run_works_and_is_used_when_all_is_green():
    working = box_with_run(state="running", live=True, manifest=None, copies=(), proofs=(), checkpoints=())
    leave = given("standing", working)
    assert decide(working, (), leave, NOW_S + 1).verdict == "red"
    assert decide(green_box(), (), leave, NOW_S + 2000).verdict == "open"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        (green_box(evidence_age_s=300.0), "five minutes"),
        (green_box(evidence_age_s=None), "not every clause is green"),
        (green_box(reachable=False), "not every clause is green"),
        (box_with_run(copies=()), "not every clause is green"),
    ],
)
def test_standing_needs_every_clause_green_on_fresh_evidence(claims, why):
    assert why in refusal(given("standing"), claims)


def test_standing_carries_no_waiver():
    claims = green_box(unclaimed=Unclaimed((UnclaimedFile("/x", 1),), 1, 1, True))
    leave = given("standing", claims)
    word = waiver.parse("rented-1 lose 6", decide(claims, (), None, NOW_S), NOW_S, at_terminal=True)
    decision = decide(claims, (word,), leave, NOW_S + 1)
    assert decision.verdict == "needs_approval"
    assert "carries no waiver" in decision.clause(8).sentence


def test_standing_ends():
    assert "time is over" in refusal(given("standing", until_s=NOW_S + 60), now_s=NOW_S + 60)
    with pytest.raises(UsageError):
        given("standing", until_s=NOW_S + 8 * 86400)
    with pytest.raises(ApprovalInvalid):
        given("standing", until_s=NOW_S - 1)


def test_now_is_not_given_under_a_red_gate():
    with pytest.raises(GateRefused) as refused:
        given(claims=box_with_run(copies=()))
    assert refused.value.why
    assert refused.value.next


def test_detaching_needs_none():
    with pytest.raises(UsageError):
        given(claims=green_box(action="detach"))


# ---- who may give one ----


@pytest.mark.parametrize("kind", ["now", "standing"])
def test_a_program_may_not(kind):
    with pytest.raises(ApprovalNeeded):
        given(kind, at_terminal=False)


def test_the_demo_may_for_the_box_that_it_made_itself():
    leave = given(at_terminal=False, created_here={green_box().box_id})
    assert leave.by == "demo"
    assert refusal(leave) == ""
    with pytest.raises(ApprovalNeeded):
        given(at_terminal=False, created_here={"another"})
    with pytest.raises(ApprovalNeeded):
        given("standing", at_terminal=False, created_here={green_box().box_id})
    with pytest.raises(ApprovalNeeded):
        given(claims=green_box(box_id=""), at_terminal=False, created_here={""})


def test_a_forged_standing_demo_approval_does_not_hold():
    assert "at a terminal only" in refusal(dataclasses.replace(given("standing"), by="demo"))


def test_a_kind_nobody_knows_does_not_hold():
    assert "not known" in refusal(dataclasses.replace(given("standing"), kind="forever"))


# ---- requests ----


def asked(kind="now", claims=None):
    claims = claims or green_box()
    return approval.request("q1", kind, decide(claims, (), None, NOW_S), claims, NOW_S, NOW_S + 3600, "an agent")


def test_a_request_allows_nothing_until_a_terminal_answers_it():
    stored = Request.from_wire({**asked().to_wire(), "newer": 1})
    assert stored == asked()
    with pytest.raises(ApprovalNeeded):
        approval.approve(stored, "a1", NOW_S + 60, at_terminal=False)
    leave = approval.approve(stored, "a1", NOW_S + 60, at_terminal=True)
    assert leave.until_s == NOW_S + 60 + 900
    assert refusal(leave, now_s=NOW_S + 61) == ""


def test_a_request_ends_after_a_day():
    with pytest.raises(ApprovalInvalid):
        approval.approve(asked(), "a1", NOW_S + 86400, at_terminal=True)


def test_an_approved_request_is_void_when_something_changed_meanwhile():
    leave = approval.approve(asked(), "a1", NOW_S + 60, at_terminal=True)
    assert "changed since it was shown" in refusal(leave, box_with_run(copies=()), NOW_S + 61)


def test_it_goes_round():
    leave = given("standing")
    assert Approval.from_wire({**leave.to_wire(), "newer": 1}) == leave
