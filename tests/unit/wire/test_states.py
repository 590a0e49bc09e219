"""The tables: nothing leads from or to a word that is not explained, and each class has its remedy."""

import pytest

from outlive.wire import states

TABLES = [
    (states.RUN_STATES, states.RUN_MOVES),
    (states.DELIVERY_STATES, states.DELIVERY_MOVES),
    (states.BOX_STATES, states.BOX_MOVES),
]


@pytest.mark.parametrize("words, moves", TABLES, ids=["run", "delivery", "box"])
def test_moves_are_between_known_states_once_each_with_their_evidence(words, moves):
    for old, new, evidence in moves:
        assert old in words and new in words and old != new
        assert evidence.strip()
    assert len({(old, new) for old, new, _ in moves}) == len(moves)


@pytest.mark.parametrize("words, moves", TABLES, ids=["run", "delivery", "box"])
def test_every_state_can_be_left_or_is_an_end(words, moves):
    reached = {new for _old, new, _ in moves}
    left = {old for old, _new, _ in moves}
    for word in words:
        assert word in left or word in reached, word


def test_an_ended_run_goes_on_only_by_a_persons_word():
    for old, new, evidence in states.RUN_MOVES:
        if old in states.RUN_ENDED:
            assert new in ("queued", "starting") and "person" in evidence and old != "succeeded"


def test_every_class_of_outcome_has_one_known_remedy():
    assert set(states.OUTCOME_CLASSES.values()) <= set(states.REMEDIES)
    assert set(states.REMEDIES) == set(states.OUTCOME_CLASSES.values()), "no remedy that nothing has"


def test_only_listings_or_the_user_say_gone():
    for _old, new, evidence in states.BOX_MOVES:
        if new == "gone":
            assert "listing" in evidence or "word" in evidence
    assert not any((old, new) == ("unreachable", "stopped") for old, new, _ in states.BOX_MOVES)


def test_staying_is_allowed_and_nothing_unlisted_is():
    assert states.move_allowed(states.RUN_MOVES, "running", "running")
    assert states.move_allowed(states.RUN_MOVES, "running", "finishing")
    assert not states.move_allowed(states.RUN_MOVES, "succeeded", "running")
