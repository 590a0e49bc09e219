import dataclasses

import pytest

from outlive.errors import ApprovalNeeded, GateRefused, UsageError
from outlive.gate import Unclaimed, UnclaimedFile, Waiver, waiver
from outlive.gate.decide import decide

from .build_claims import NOW_S, box_with_run, green_box, green_run


def one_file_lost(bytes_: int = 5, name: str = "/root/x"):
    return green_box(unclaimed=Unclaimed((UnclaimedFile(name, bytes_),), 1, bytes_, True))


def typed(line: str, claims=None, now_s: float = NOW_S + 1, at_terminal: bool = True) -> Waiver:
    return waiver.parse(line, decide(claims or one_file_lost(), (), None, NOW_S), now_s, at_terminal)


def test_the_line_and_its_spaces():
    word = typed("  rented-1  lose 6 ")
    assert (word.box, word.action, word.clauses, word.typed) == ("rented-1", "destroy", (6,), "rented-1  lose 6")
    both = green_box(runs=(green_run(copies=()),), unclaimed=Unclaimed((UnclaimedFile("/x", 1),), 1, 1, True))
    assert typed("rented-1 lose 6, 2,4", both).clauses == (2, 4, 6)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("lose 6", UsageError),
        ("yes", UsageError),
        ("", UsageError),
        ("rented-1 lose all", UsageError),
        ("rented-1 lose 6; rented-1 lose 2", UsageError),
        ("rented-1 lose 99", UsageError),
        ("rented-2 lose 6", GateRefused),
        ("rented-1 lose 2", GateRefused),  # green: nothing is given up in advance
        ("rented-1 lose 2,6", GateRefused),
        ("rented-1 lose 8", GateRefused),
    ],
)
def test_lines_that_give_nothing_up(line, error):
    with pytest.raises(error):
        typed(line)


def test_price_cannot_be_given_up():
    with pytest.raises(GateRefused, match="cannot be given up"):
        typed("rented-1 lose 7", green_box(costs=None))


def test_not_by_a_program():
    with pytest.raises(ApprovalNeeded):
        typed("rented-1 lose 6", at_terminal=False)


def test_not_before_the_decision():
    with pytest.raises(GateRefused, match="advance"):
        typed("rented-1 lose 6", now_s=NOW_S - 1)


def test_detaching_loses_nothing():
    with pytest.raises(GateRefused):
        typed("rented-1 lose 1", green_box(action="detach", runs=(green_run(live=True),)))


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        (one_file_lost(6), "no longer what was shown"),
        (one_file_lost(5, "/root/y"), "no longer what was shown"),
        (dataclasses.replace(one_file_lost(), action="stop"), "about destroy"),
        (dataclasses.replace(one_file_lost(), box="rented-2"), "about rented-1"),
        (dataclasses.replace(one_file_lost(), provider_id="i-124"), "no longer what was shown"),
        (dataclasses.replace(one_file_lost(), runs=(green_run(copies=()),)), "no longer what was shown"),
    ],
)
def test_it_holds_for_exactly_what_was_shown(claims, why):
    word = typed("rented-1 lose 6")
    assert decide(one_file_lost(), (word,), None, NOW_S + 2).waived == (6,)
    decision = decide(claims, (word,), None, NOW_S + 2)
    assert decision.verdict == "red"
    assert decision.waived == ()
    assert why in decision.void[0]


@pytest.mark.parametrize("later_s", [-1, waiver.WAIVER_LASTS_S + 2])
def test_it_ends(later_s):
    word = typed("rented-1 lose 6")
    assert decide(one_file_lost(), (word,), None, NOW_S + 1 + later_s).waived == ()


def test_a_waiver_for_one_clause_leaves_the_other_red():
    claims = dataclasses.replace(one_file_lost(), runs=box_with_run(copies=()).runs)
    word = typed("rented-1 lose 6", claims)
    decision = decide(claims, (word,), None, NOW_S + 2)
    assert decision.waived == (6,)
    assert decision.verdict == "red"


def test_it_goes_round():
    word = typed("rented-1 lose 6")
    assert Waiver.from_wire({**word.to_wire(), "newer": 1}) == word
