import pytest

from outlive.artifacts.kinds import HIGHEST
from outlive.gate.levels import asked_level, strongest
from outlive.wire.values import LEVELS, Proof


@pytest.mark.parametrize("kind", sorted(HIGHEST))
def test_the_gate_asks_exactly_what_the_checks_can_reach(kind):
    """More would keep every box for ever; less would let unread values pass."""
    assert asked_level(kind, True) == HIGHEST[kind]
    assert asked_level(kind, False) == min(HIGHEST[kind], "structure", key=LEVELS.index)


def test_a_kind_that_the_gate_was_not_told_of_is_asked_for_structure():
    assert asked_level("a-new-kind", False) == asked_level("a-new-kind", True) == "structure"


def test_the_strongest_proof_counts_unless_one_refutes():
    weak, strong = (Proof("a", 1, level) for level in ("bytes", "tensors"))
    refuted = Proof("a", 1, "bytes", findings=({"code": "truncated", "text": ""},))
    assert strongest((weak, strong, Proof("b", 1, "loaded")), "a") is strong
    assert strongest((strong, refuted, weak), "a") is refuted
    assert strongest((strong,), "b") is None
    assert strongest((Proof("", 1, "none"),), "") is None
