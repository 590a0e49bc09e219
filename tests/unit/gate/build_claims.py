"""A box on which everything is green, to be spoilt in one place by each test."""

import dataclasses
from typing import Any

from outlive.gate import BoxClaims, Costs, RunClaims, SafePlace, Tier, Unclaimed
from outlive.wire.values import Copy, Entry, Manifest, Proof

NOW_S = 1_800_000_000.0
HOME = "here:/home/u/results"

TIERS = (
    Tier("system disk", "/", survives=False, survives_destroy=False, own_disk=True),
    Tier("file storage", "/root/shared", survives=True, survives_destroy=True, own_disk=False),
)

BEST = Entry("out/best.pt", 100, "b" * 64, 1, role="artifact")
CKPT = Entry("out/ckpt/9.pt", 100, "c" * 64, 1, role="checkpoint", step=9)
METRICS = Entry("out/metrics.json", 10, "d" * 64, 1)
LOG = Entry("log", 50, "e" * 64, 1, role="log")


def copy_of(entry: Entry, place: str = HOME, read_back: str = "cache") -> Copy:
    return Copy(entry.sha256, place, entry.path, read_back)


def proof_of(entry: Entry, level: str = "tensors", kind: str = "torch-zip", **more: Any) -> Proof:
    return Proof(entry.sha256, entry.bytes, level, kind, **more)


def green_run(**change: Any) -> RunClaims:
    run = RunClaims(
        run="tiny-260801-abcd",
        state="succeeded",
        live=False,
        spec_digest="5" * 64,
        roster=("out/best.pt", "out/metrics.json"),
        manifest=Manifest("tiny-260801-abcd", (BEST, METRICS), frozen=True),
        checkpoints=(CKPT,),
        changed=(),
        drift=(),
        logs=(LOG,),
        copies=tuple(copy_of(e) for e in (BEST, CKPT, METRICS, LOG)),
        proofs=(proof_of(BEST), proof_of(CKPT), proof_of(METRICS, "structure", "json")),
        best=("out/best.pt",),
        latest=("out/ckpt/9.pt",),
        work_dir="/root/.outlive/runs/tiny-260801-abcd/work",
    )
    return dataclasses.replace(run, **change)


def green_box(**change: Any) -> BoxClaims:
    box = BoxClaims(
        box="rented-1",
        action="destroy",
        platform="somewhere",
        provider_id="i-123",
        box_id="0f" * 8,
        verb="terminate",
        tiers=TIERS,
        reachable=True,
        evidence_age_s=10.0,
        box_wall_s=1000.0,
        runs=(green_run(),),
        places=(SafePlace(HOME, "local"),),
        processes=(),
        gpu_holders=(),
        unclaimed=Unclaimed(complete=True),
        costs=Costs(0.5, "USD", 3.25),
        danger_clocks=(),
    )
    return dataclasses.replace(box, **change)


def box_with_run(**change: Any) -> BoxClaims:
    return green_box(runs=(green_run(**change),))
