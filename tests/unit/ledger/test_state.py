import pytest

from outlive.gate import Approval
from outlive.ledger import LedgerState, fold

APPROVAL = Approval("now", "a1", "destroy", "rented-1", "id", "i-1", ("r",), "d", 100.0, 1000.0)


def state_of(*records):
    return fold({"n": n, "k": kind, "b": 0.0, "w": 100.0 + n, **body} for n, (kind, body) in enumerate(records))


def box(name="rented-1", **more):
    return ("box", {"name": name, **more})


def test_records_of_a_box_add_up():
    state = state_of(
        box(platform="p", address="u@h", gpu="A100"),
        box(box_id="id", provider_id="i-1"),
        ("price", {"box": "rented-1", "per_h": 0.5, "currency": "USD", "source": "up --price"}),
        ("place_state", {"box": "rented-1", "state": "idle", "why": "poll"}),
    )
    known = state.boxes["rented-1"]
    assert (known.platform, known.address, known.box_id, known.provider_id) == ("p", "u@h", "id", "i-1")
    assert known.facts == {"gpu": "A100"}
    assert (known.state, known.state_w, known.price["per_h"], known.price["read_w"]) == ("idle", 103.0, 0.5, 102.0)
    assert not known.gone


def test_another_machine_under_the_same_name_begins_anew():
    state = state_of(
        box(box_id="one", gpu="A100"), ("place_state", {"box": "rented-1", "state": "gone"}), box(box_id="two")
    )
    assert state.boxes["rented-1"].facts == {}
    assert state.boxes["rented-1"].state == ""
    assert state.past_names == ["rented-1"]


def test_an_intent_without_a_result_is_an_orphan():
    state = state_of(
        ("intent", {"id": "t1", "label": "outlive-t1", "provider": "vast"}),
        ("intent", {"id": "t2", "label": "outlive-t2"}),
        ("intent", {"id": "t3", "label": "outlive-t3"}),
        box("made", intent="t2", box_id="x"),
        ("intent", {"id": "t3", "result": "refused: no stock"}),
    )
    assert [i.id for i in state.orphans] == ["t1"]
    assert state.intents["t2"].box == "made"
    assert state.intents["t3"].label == "outlive-t3"


def test_an_approval_is_used_up():
    state = state_of(("approval", APPROVAL.to_wire()))
    assert state.approval("a1") == APPROVAL
    assert state.approvals_for("rented-1", "destroy", 500.0) == [APPROVAL]
    assert state.approvals_for("rented-1", "destroy", 1000.0) == []
    assert state.approvals_for("rented-1", "stop", 500.0) == []
    used = state_of(("approval", APPROVAL.to_wire()), ("approval_used", {"id": "a1"}), ("approval", APPROVAL.to_wire()))
    assert used.approval("a1").uses_left == 0
    assert used.approvals_for("rented-1", "destroy", 500.0) == []
    assert used.approval("none") is None


def test_runs_copies_and_proofs():
    copy = {"sha256": "a" * 64, "place": "here:/x", "path": "p", "read_back": "cache", "wall_s": 0.0}
    good, bad = ({"sha256": "a" * 64, "bytes": 1, "level": level} for level in ("tensors", "bytes"))
    state = state_of(
        ("run", {"run": "r1", "box": "rented-1", "cwd": "/home/u/p"}),
        ("copy", {"run": "r1", "copy": copy}),
        ("proof", {"run": "r1", "proof": bad}),
        ("proof", {"run": "r1", "proof": good}),
        ("proof", {"run": "r1", "proof": good}),
        ("run", {"run": "r1", "state": "succeeded", "delivery": "proved"}),
    )
    run = state.runs["r1"]
    assert (run.box, run.state, run.delivery, run.copies) == ("rented-1", "succeeded", "proved", [copy])
    assert state.proofs["a" * 64] == [bad, good]
    assert state.last_run == "r1"


def test_forgetting_and_coming_back():
    assert state_of(box(), ("forgot", {"name": "rented-1"})).boxes["rented-1"].gone
    assert not state_of(box(), ("forgot", {"name": "rented-1"}), box()).boxes["rented-1"].gone


@pytest.mark.parametrize("kind", ["place_state", "price", "forgot", "approval_used", "copy"])
def test_records_about_what_we_never_saw_do_no_harm(kind):
    body = {"box": "no", "name": "no", "id": "no", "state": "gone", "copy": {"sha256": "", "place": "", "path": ""}}
    assert state_of((kind, body)).boxes == {}


def test_a_kind_of_a_newer_version_is_passed_over():
    state = state_of(("hologram", {"x": 1}), box())
    assert state.last_n == 1


def test_the_state_goes_round():
    state = state_of(
        box(box_id="i"),
        ("run", {"run": "r1"}),
        ("intent", {"id": "t1"}),
        ("approval", APPROVAL.to_wire()),
        ("receipt", {"box": "rented-1", "receipt": {"meter": "stopped"}}),
        ("note", {"text": "x"}),
        ("waiver", {"box": "rented-1", "typed": "rented-1 lose 6"}),
        ("adopted", {"box": "rented-1"}),
        ("request", {"id": "q1"}),
    )
    assert LedgerState.from_plain(state.to_plain()) == state
    assert state.receipts[0]["receipt"] == {"meter": "stopped"}
