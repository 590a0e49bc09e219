import dataclasses

import pytest

from outlive.gate import (
    Costs,
    DangerClock,
    ForeignProcess,
    SafePlace,
    Tier,
    Unclaimed,
    UnclaimedFile,
    clauses,
)
from outlive.gate.files import delivery
from outlive.wire.values import Copy, Entry, Manifest

from .build_claims import (
    BEST,
    CKPT,
    HOME,
    LOG,
    METRICS,
    TIERS,
    box_with_run,
    copy_of,
    green_box,
    green_run,
    proof_of,
)

# ---- 1: live ----


@pytest.mark.parametrize(
    "state", ["queued", "starting", "running", "stalled", "hung", "waiting", "finishing", "preempted"]
)
def test_a_run_that_would_go_on_is_not_over(state):
    clause = clauses.live(box_with_run(state=state))
    assert clause.state == "red"
    assert state in clause.items[0].why


def test_a_run_nobody_saw_end_is_unknown():
    assert clauses.live(box_with_run(state="unknown")).state == "unknown"


def test_a_live_attempt_is_red_even_when_its_state_says_succeeded():
    assert clauses.live(box_with_run(live=True, live_why="pid 12 writes out/ckpt")).items[0].why == (
        "alive: pid 12 writes out/ckpt"
    )


def test_runs_that_could_not_be_listed_are_unknown_everywhere():
    states = [c.state for c in clauses.judge_all(green_box(runs=None))]
    assert states[:4] == ["unknown"] * 4


def test_an_empty_box_is_green():
    assert all(c.state == "green" for c in clauses.judge_all(green_box(runs=())))


@pytest.mark.parametrize("age_s", [None, 901.0, -5.0])
def test_old_evidence_says_nothing_about_now(age_s):
    judged = clauses.judge_all(green_box(evidence_age_s=age_s))
    assert {c.number for c in judged if c.state == "unknown"} == {1, 5, 6}


# ---- 2: safe ----


def unsafe(**change):
    clause = clauses.safe(box_with_run(**change))
    return clause.state, [i.why for i in clause.items]


def test_a_copy_with_another_digest_is_none():
    other = Copy("0" * 64, HOME, BEST.path)
    clause = clauses.safe(box_with_run(copies=(other, *green_run().copies[1:])))
    assert clause.state == "red"
    item = clause.items[0]
    assert (item.path, item.bytes, item.age_s) == ("tiny-260801-abcd:out/best.pt", 100, 1000.0)
    assert item.last_known_copy == f"{HOME} (other content)"


def test_a_copy_that_was_written_over_is_none():
    later = Copy("0" * 64, HOME, BEST.path)
    clause = clauses.safe(box_with_run(copies=(*green_run().copies, later)))
    assert clause.state == "red"
    assert clause.items[0].last_known_copy == f"{HOME} (written over since)"


def test_a_kept_checkpoint_outside_the_roster_counts():
    assert unsafe(copies=tuple(c for c in green_run().copies if c.sha256 != CKPT.sha256)) == (
        "red",
        ["no copy with equal digest in a safe place"],
    )


def test_missing_roster_lines_are_red():
    manifest = dataclasses.replace(green_run().manifest, missing=("out/plot.png",))
    assert unsafe(manifest=manifest) == ("red", ["in the roster, and no file matches it"])


def test_roster_that_is_not_frozen_is_unknown():
    assert unsafe(manifest=dataclasses.replace(green_run().manifest, frozen=False))[0] == "unknown"


def test_no_manifest_is_unknown():
    assert unsafe(manifest=None, checkpoints=())[0] == "unknown"


def test_a_file_changed_after_it_was_recorded_is_red():
    assert unsafe(changed=("out/best.pt", "elsewhere")) == ("red", ["changed since it was recorded"])


def test_a_file_without_digest_is_unknown():
    manifest = Manifest("r", (dataclasses.replace(BEST, sha256=""),), frozen=True)
    assert unsafe(manifest=manifest)[0] == "unknown"


@pytest.mark.parametrize(
    ("state", "want"), [("succeeded", "red"), ("suspect", "red"), ("failed", "green"), ("stopped", "green")]
)
def test_leaving_nothing_is_a_fault_only_of_a_run_that_ended_well(state, want):
    empty = Manifest("r", (), inferred=True, frozen=True)
    assert unsafe(state=state, manifest=empty, checkpoints=())[0] == want


@pytest.mark.parametrize(
    ("link", "inferred", "want"),
    [
        ("best.pt", False, "green"),
        ("../out", False, "green"),
        ("/root/.outlive/runs/tiny-260801-abcd/work/out/best.pt", False, "green"),
        ("/scratch/best.pt", False, "red"),
        ("../../elsewhere", False, "red"),
        ("never-kept.pt", False, "red"),
        ("old.pt", False, "green"),  # retention removed it on purpose
        ("/scratch/data", True, "green"),  # only the link is new; its target is the unclaimed scan's
    ],
)
def test_links(link, inferred, want):
    manifest = Manifest(
        "r", (BEST, METRICS, Entry("out/link", 0, link=link)), inferred, True, tombstones=("out/old.pt",)
    )
    assert unsafe(manifest=manifest)[0] == want


@pytest.mark.parametrize(
    ("place", "read_back", "same_machine", "want"),
    [
        (SafePlace("here:/home/u/r", "local"), "cache", False, "green"),
        (SafePlace("here:/home/u/r", "network"), "cache", False, "red"),
        (SafePlace("here:/home/u/r", "network"), "storage", False, "green"),
        (SafePlace("here:relative", "local"), "cache", False, "red"),
        (SafePlace("here:/home/u/r", "local"), "never", False, "red"),
        (SafePlace("here:/home/u/r", "local"), "cache", True, "green"),
        (SafePlace("here:/home/u/box/r", "local"), "cache", True, "red"),
        (SafePlace("here:/home/u/elsewhere/../box/r", "local"), "cache", True, "red"),
        (SafePlace("here:/home/u/boxes", "local"), "cache", True, "green"),
        (SafePlace("mount:/root/shared/r", "network"), "storage", False, "green"),
        (SafePlace("mount:/root/shared/r", "network"), "cache", False, "red"),
        (SafePlace("mount:/root/elsewhere", "local"), "storage", False, "red"),
        (SafePlace("mount:/root/shared/../elsewhere", "local"), "storage", False, "red"),
        (SafePlace("rclone:store:bucket", "remote", on_box=False), "remote_hash", False, "green"),
        (SafePlace("rclone:store:bucket", "remote", on_box=False), "cache", False, "red"),
        (SafePlace("rclone:store:bucket", "remote"), "remote_hash", False, "red"),
        (SafePlace("rclone:store:bucket", "remote", on_box=True), "remote_hash", False, "red"),
        (SafePlace("floppy:/a", "local"), "storage", False, "red"),
    ],
)
def test_which_copies_count(place, read_back, same_machine, want):
    run = green_run(copies=tuple(copy_of(e, place.name, read_back) for e in (BEST, CKPT, METRICS, LOG)))
    claims = green_box(runs=(run,), places=(place,))
    if same_machine:
        own = Tier("root directory", "/home/u/box", survives=False)
        claims = dataclasses.replace(claims, same_machine=True, root_dir=own.path, tiers=(own,))
    assert clauses.safe(claims).state == want


def test_a_place_nobody_described_does_not_count():
    assert clauses.safe(green_box(places=())).state == "red"


def test_a_place_that_holds_the_root_directory_is_judged_file_by_file():
    run = green_run(copies=tuple(Copy(e.sha256, "here:/home/u", "box/" + e.path) for e in (BEST, CKPT, METRICS)))
    own = Tier("root directory", "/home/u/box", survives=False)
    claims = green_box(runs=(run,), places=(SafePlace("here:/home/u", "local"),), same_machine=True, tiers=(own,))
    assert "not known" in clauses.safe(claims).items[0].last_known_copy
    claims = dataclasses.replace(claims, root_dir=own.path)
    assert "own root directory" in clauses.safe(claims).items[0].last_known_copy


@pytest.mark.parametrize(
    ("survives", "survives_destroy", "own_disk", "want"),
    [
        (True, True, False, "green"),
        (True, True, True, "red"),
        (True, False, False, "red"),
        (True, None, False, "red"),
        (False, True, False, "red"),
        (None, True, False, "red"),
    ],
)
def test_a_mount_is_as_safe_as_the_facts_of_its_tier(survives, survives_destroy, own_disk, want):
    tier = Tier("volume", "/vol", survives, survives_destroy, own_disk)
    run = green_run(copies=tuple(copy_of(e, "mount:/vol/r", "storage") for e in (BEST, CKPT, METRICS, LOG)))
    claims = green_box(runs=(run,), places=(SafePlace("mount:/vol/r", "network"),), tiers=(*TIERS, tier))
    assert clauses.safe(claims).state == want


# ---- 3: proved ----


def proof_state(*proofs, **change):
    return clauses.proved(box_with_run(proofs=proofs, **change)).state


GOOD = (proof_of(CKPT), proof_of(METRICS, "structure", "json"))


@pytest.mark.parametrize(
    ("proof", "want"),
    [
        (proof_of(BEST, "tensors"), "green"),
        (proof_of(BEST, "loaded"), "green"),
        (proof_of(BEST, "structure"), "red"),  # best is asked for its values
        (proof_of(BEST, "structure", "json"), "green"),  # which JSON has not
        (proof_of(BEST, "bytes", "json"), "red"),
        (proof_of(BEST, "bytes", "unknown"), "green"),
        (proof_of(BEST, "none", "unknown"), "red"),
        (proof_of(BEST, "bytes", "a-new-kind"), "red"),
        (proof_of(BEST, "guessed", "json"), "red"),
        (proof_of(BEST, "bytes", findings=({"code": "pickle_globals", "text": "os.system"},)), "green"),
        (proof_of(BEST, "tensors", findings=({"code": "nonfinite", "text": "NaN"},)), "red"),
        (proof_of(BEST, "tensors", findings=({"code": "truncated", "text": "short"},)), "red"),
        (dataclasses.replace(proof_of(BEST), bytes=99), "red"),
    ],
)
def test_what_a_proof_must_say(proof, want):
    assert proof_state(proof, *GOOD) == want


def test_a_refutation_outweighs_a_proof():
    refuted = proof_of(BEST, "bytes", findings=({"code": "corrupt", "text": "CRC"},))
    assert proof_state(proof_of(BEST), refuted, *GOOD) == "red"
    assert proof_state(refuted, proof_of(BEST), *GOOD) == "red"


def test_only_best_and_latest_are_asked_for_values():
    assert proof_state(proof_of(BEST, "structure"), *GOOD, best=()) == "green"
    assert proof_state(proof_of(BEST), proof_of(CKPT, "structure"), GOOD[1]) == "red"


def test_the_latest_is_found_when_nobody_names_it():
    assert proof_state(proof_of(BEST), proof_of(CKPT, "structure"), GOOD[1], latest=()) == "red"


def test_files_of_a_sharded_best_are_asked_too():
    assert proof_state(proof_of(BEST), proof_of(CKPT, "structure"), GOOD[1], best=("out/ckpt",), latest=("x",)) == "red"


# ---- 4: code and logs ----


def test_drift_needs_a_safe_copy():
    drift = Entry("train.py", 5, "f" * 64, role="code-drift")
    assert clauses.code_and_logs(box_with_run(drift=(drift,))).state == "red"
    copies = (*green_run().copies, copy_of(drift))
    assert clauses.code_and_logs(box_with_run(drift=(drift,), copies=copies)).state == "green"


def test_logs_in_the_manifest_belong_here():
    manifest = Manifest("r", (BEST, METRICS, Entry("log.1", 5, "1" * 64, role="log")), frozen=True)
    assert clauses.safe(box_with_run(manifest=manifest)).state == "green"
    assert clauses.code_and_logs(box_with_run(manifest=manifest)).state == "red"


def test_logs_that_were_not_listed_are_unknown():
    assert clauses.code_and_logs(box_with_run(logs=None)).state == "unknown"


# ---- 5: foreign ----


def test_gpu_holders_matter_where_the_machine_stops():
    holder = ForeignProcess(7, "python other.py", "bob", gpu_bytes=5)
    assert clauses.foreign(green_box(gpu_holders=(holder,))).state == "red"
    assert clauses.foreign(green_box(processes=(dataclasses.replace(holder, holds_gpu=True),))).state == "red"
    stays = green_box(gpu_holders=(holder,), machine_stops=False, action="purge")
    assert clauses.foreign(stays).state == "green"


@pytest.mark.parametrize(("path", "want"), [("/root/x", "red"), ("/root/shared/x", "green")])
def test_writers_matter_where_the_verb_deletes(path, want):
    assert clauses.foreign(green_box(processes=(ForeignProcess(7, "rsync", writes=(path,)),))).state == want


def test_purge_deletes_only_what_it_lists():
    tiers = (Tier("our directory", "/data/.outlive", survives=False),)
    writer = ForeignProcess(7, "rsync", writes=("/data/mine",))
    purge = green_box(action="purge", tiers=tiers, machine_stops=False, processes=(writer,), gpu_holders=None)
    assert clauses.foreign(purge).state == "green"
    inside = dataclasses.replace(purge, processes=(ForeignProcess(7, "cp", writes=("/data/.outlive/runs/x",)),))
    assert clauses.foreign(inside).state == "red"


def test_a_writer_on_a_tier_that_nobody_described_is_unknown():
    only = (Tier("data", "/data", survives=False),)
    assert (
        clauses.foreign(green_box(tiers=only, processes=(ForeignProcess(7, "cp", writes=("/mnt/x",)),))).state
        == "unknown"
    )


def test_processes_that_could_not_be_listed():
    assert clauses.foreign(green_box(processes=None)).state == "unknown"


def test_a_stop_that_deletes_nothing_needs_no_list_of_writers():
    spared = tuple(dataclasses.replace(t, survives=True) for t in TIERS)
    assert clauses.foreign(green_box(action="stop", tiers=spared, processes=None)).state == "green"


# ---- 6: unclaimed ----


def test_unclaimed_files_are_shown_with_the_rest_summed():
    scan = Unclaimed((UnclaimedFile("/root/big", 90, 5.0), UnclaimedFile("/root/mid", 9)), 12, 110, True)
    clause = clauses.unclaimed(green_box(unclaimed=scan))
    assert clause.state == "red"
    assert [(i.path, i.bytes) for i in clause.items] == [
        ("/root/big", 90),
        ("/root/mid", 9),
        ("(10 smaller files)", 11),
    ]


def test_nothing_found_by_a_scan_that_did_not_finish_is_unknown():
    assert clauses.unclaimed(green_box(unclaimed=Unclaimed(complete=False))).state == "unknown"
    assert clauses.unclaimed(green_box(unclaimed=None)).state == "unknown"


def test_what_the_verb_spares_needs_no_scan():
    spared = tuple(dataclasses.replace(t, survives=True) for t in TIERS)
    assert clauses.unclaimed(green_box(action="stop", tiers=spared, unclaimed=None)).state == "green"
    unsure = (dataclasses.replace(TIERS[0], survives=None),)
    assert clauses.unclaimed(green_box(action="stop", tiers=unsure, unclaimed=None)).state == "unknown"
    assert clauses.unclaimed(green_box(action="stop", tiers=(), unclaimed=Unclaimed(complete=True))).state == "unknown"


# ---- 7: price ----


def test_price_and_clocks_are_in_the_sentence():
    clocks = (DangerClock("released", 1_800_000_000.0), DangerClock("the disk bills for ever"))
    claims = green_box(costs=Costs(1.89, "USD", 12.5, still_bills=("disk 0.10 USD/GB",)), danger_clocks=clocks)
    assert clauses.price(claims).sentence == (
        "1.89 USD/h; 12.50 USD so far; goes on billing: disk 0.10 USD/GB; "
        "released on 2027-01-15 08:00 UTC; the disk bills for ever"
    )


def test_a_price_said_to_be_unknown_was_shown():
    clause = clauses.price(green_box(costs=Costs(why_unknown="no price was given at up")))
    assert (clause.state, clause.sentence) == ("green", "price not known (no price was given at up)")


def test_clocks_that_were_not_looked_up_are_unknown():
    assert clauses.price(green_box(danger_clocks=None)).state == "unknown"


# ---- delivery ----


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({}, "proved"),
        ({"proofs": ()}, "complete"),
        ({"copies": green_run().copies[:1]}, "partial"),
        ({"manifest": dataclasses.replace(green_run().manifest, frozen=False)}, "partial"),
        ({"changed": ("out/best.pt",)}, "partial"),
        ({"changed": None}, "proved"),
        ({"copies": ()}, "none"),
        ({"manifest": None, "checkpoints": ()}, "none"),
    ],
)
def test_delivery_from_the_same_evidence(change, want):
    assert delivery(green_run(**change), green_box()) == want
