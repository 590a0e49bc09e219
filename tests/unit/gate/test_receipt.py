import json

import pytest

from outlive.gate import Costs, Tier, Unclaimed, UnclaimedFile, approval, receipt, waiver
from outlive.gate.decide import decide

from .build_claims import BEST, CKPT, LOG, METRICS, NOW_S, box_with_run, copy_of, green_box, green_run, proof_of


def carried_out(claims, typed=""):
    shown = decide(claims, (), None, NOW_S)
    words = (waiver.parse(typed, shown, NOW_S, at_terminal=True),) if typed else ()
    leave = approval.mint("now", "a1", decide(claims, words, None, NOW_S), claims, NOW_S, at_terminal=True)
    decision = decide(claims, words, leave, NOW_S + 1)
    return receipt.build(decision, claims, leave, NOW_S + 9, ("terminate: the listing no longer has i-123",), "stopped")


def test_it_says_what_was_proved_where():
    plain = json.loads(json.dumps(carried_out(green_box()).to_json()))
    assert plain["schema"] == "outlive/receipt/1"
    run = plain["runs"][0]
    assert (run["run"], run["delivery"]) == ("tiny-260801-abcd", "proved")
    best = next(f for f in run["files"] if f["path"] == "out/best.pt")
    assert (best["level"], best["asked"], best["kind"]) == ("tensors", "tensors", "torch-zip")
    assert best["copies"] == [{"place": "here:/home/u/results", "path": "out/best.pt", "read_back": "cache"}]
    assert {f["path"] for f in run["files"]} == {"out/best.pt", "out/metrics.json", "out/ckpt/9.pt", "log"}
    assert plain["approval"]["id"] == "a1"
    assert plain["meter"] == "stopped"
    assert plain["decision_digest"] == decide(green_box(), (), None, NOW_S).digest


def test_it_keeps_what_was_given_up():
    claims = green_box(unclaimed=Unclaimed((UnclaimedFile("/root/x", 5, 60.0),), 1, 5, True))
    given_up = carried_out(claims, "rented-1 lose 6")
    assert [i.path for i in given_up.given_up] == ["/root/x"]
    assert given_up.waivers[0].typed == "rented-1 lose 6"
    text = given_up.to_text()
    assert "given up, as typed: rented-1 lose 6" in text
    assert "lost: /root/x" in text


def test_text_names_cost_meter_and_what_still_bills():
    claims = green_box(costs=Costs(0.5, "USD", 3.25, still_bills=("disk",)))
    text = carried_out(claims).to_text()
    assert "receipt: terminate of rented-1 (somewhere)\n" in text
    assert "done: terminate: the listing no longer has i-123\n" in text
    assert "cost: 3.25 USD\n" in text
    assert "still bills: disk\n" in text
    assert "same machine" not in text


def test_same_machine_is_said():
    own = Tier("root directory", "/srv/box", survives=False)
    claims = green_box(action="purge", same_machine=True, root_dir=own.path, tiers=(own,))
    assert "on the same machine" in carried_out(claims).to_text()


def test_a_lowered_proof_is_in_it():
    odd = proof_of(BEST, "bytes", findings=({"code": "pickle_globals", "text": "numpy.x"},))
    claims = box_with_run(
        proofs=(odd, *green_run().proofs[1:]), copies=tuple(copy_of(e) for e in (BEST, CKPT, METRICS, LOG))
    )
    assert "bytes [pickle_globals]" in carried_out(claims).to_text()


def test_none_for_a_gate_that_did_not_open():
    claims = green_box()
    with pytest.raises(ValueError, match="needs_approval"):
        receipt.build(decide(claims, (), None, NOW_S), claims, None, NOW_S, (), "stopped")


def test_the_meter_has_only_words_we_know():
    claims = green_box()
    leave = approval.mint("now", "a1", decide(claims, (), None, NOW_S), claims, NOW_S, at_terminal=True)
    decision = decide(claims, (), leave, NOW_S)
    with pytest.raises(ValueError, match="meter"):
        receipt.build(decision, claims, leave, NOW_S, (), "probably off")
