"""From a job and a box to the spec: placeholders, money as time, set-up digests, what cannot be meant here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outlive import errors
from outlive.ledger import Box
from outlive.platforms.load import load as load_platform
from outlive.runs.home import Home
from outlive.runs.job import Job, Stage
from outlive.runs.place import Place
from outlive.runs.push import Pushed
from outlive.runs.spec import durable_to, lease_s, make, setup_digest
from outlive.wire import spec as specs

JOB = Job("count", (Stage("main", "python train.py --data {data} --n {vcpu}"),), Path("/nowhere"))
FACTS = {"python": "/usr/bin/python3", "data": "/fast", "durable": "/mnt/keep", "cores": 2.0}


def place(tmp_path: Path, platform: str = "ssh", price: dict[str, Any] | None = None, **facts: Any) -> Place:
    box = Box("lab", box_id="b" * 32, platform=platform, address="root@h:1", root="/root", facts={**FACTS, **facts})
    box.price = price
    return Place(Home(tmp_path), box, SimpleNamespace(), load_platform(platform))  # type: ignore[arg-type]


def test_placeholders_of_a_command_and_of_the_environment(tmp_path: Path) -> None:
    job = replace(JOB, env={"HF_HOME": "{data}/hf", "OUT": "{work}/{run}"}, setup_run="echo {work}")
    spec = make(job, place(tmp_path), Pushed("d" * 64), [])
    assert spec["stages"] == [
        {"name": "main", "run": "python train.py --data /fast --n 2", "produces": [], "always": False}
    ]
    assert spec["env"] == {"HF_HOME": "/fast/hf", "OUT": "{work}/{run}"}  # known on the box only
    assert spec["setup"]["run"] == "echo $OUTLIVE_WORK"


def test_words_reach_the_program_exactly(tmp_path: Path) -> None:
    words = ("python", "-c", "print('{data} $HOME')")
    spec = make(JOB.with_command(words), place(tmp_path), Pushed(None), [])
    assert spec["stages"][0]["run"] == list(words)


def test_the_safe_place(tmp_path: Path) -> None:
    assert durable_to(JOB, place(tmp_path)) == "/mnt/keep"
    assert durable_to(JOB, place(tmp_path, durable="")) == "none"
    assert durable_to(replace(JOB, durable_to="{durable}/me"), place(tmp_path)) == "/mnt/keep/me"
    with pytest.raises(errors.UsageError, match="needs a durable place") as caught:
        durable_to(replace(JOB, durable_to="{durable}/me"), place(tmp_path, durable=""))
    assert ["outlive", "up", "lab", "--durable", "/mnt/volume"] in caught.value.next


def test_money_becomes_time_at_the_recorded_price(tmp_path: Path) -> None:
    dear = place(tmp_path, price={"per_h": 2.0, "currency": "USD"})
    job = replace(JOB, max_cost=(10.0, "USD"))
    assert lease_s(job, dear)[0] == 5 * 3600
    assert "5.00 h for 10 USD" in lease_s(job, dear)[1]
    assert lease_s(replace(job, max_s=60.0), dear) == (60.0, "0.0166667 h by budget.max_hours")
    assert lease_s(JOB, dear) == (None, "")
    with pytest.raises(errors.UsageError, match="needs a known price"):
        lease_s(job, place(tmp_path))
    with pytest.raises(errors.UsageError, match="is in USD, the box's price in CNY"):
        lease_s(job, place(tmp_path, price={"per_h": 2.0, "currency": "CNY"}))


def test_a_free_box_has_no_end_by_money(tmp_path: Path) -> None:
    free = place(tmp_path, price={"per_h": 0.0, "currency": "USD"})
    assert lease_s(replace(JOB, max_cost=(10.0, "USD")), free) == (None, "")


def test_setup_digest_follows_its_inputs_only(tmp_path: Path) -> None:
    job = replace(JOB, setup_run="pip install -r requirements.txt", setup_inputs=("requirements.txt",))
    files = [{"path": "requirements.txt", "sha256": "a" * 64}, {"path": "train.py", "sha256": "b" * 64}]
    one = setup_digest(job, files)
    assert one == setup_digest(job, [files[0], {"path": "train.py", "sha256": "c" * 64}])
    assert one != setup_digest(job, [{"path": "requirements.txt", "sha256": "d" * 64}])
    assert one != setup_digest(replace(job, setup_run="pip install -U -r requirements.txt"), files)
    with pytest.raises(errors.UsageError, match="requirements.txt") as caught:
        setup_digest(job, files[1:])
    assert caught.value.safe == "Nothing was pushed or started."


def test_smoke_is_a_first_stage_without_trackers(tmp_path: Path) -> None:
    spec = make(replace(JOB, smoke="python train.py --limit 2"), place(tmp_path), Pushed(None), [])
    assert [s["name"] for s in spec["stages"]] == ["smoke", "main"]
    assert spec["stages"][0]["run"].startswith("export WANDB_MODE=disabled")


def test_the_same_job_has_the_same_digest(tmp_path: Path) -> None:
    one, two = (make(JOB, place(tmp_path), Pushed("d" * 64), names) for names in (["B", "A"], ["A", "B"]))
    assert specs.digest(one) == specs.digest(two)
    other = make(replace(JOB, env={"LR": "1"}), place(tmp_path), Pushed("d" * 64), ["A", "B"])
    assert specs.differences(one, other) == ['env.LR: null -> "1"']


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"then": "explode"}, "keep, pause or down"),
        ({"then": "pause"}, "no reversible stop"),
        ({"pty": True}, "cannot be done yet"),
        ({"env": {"A=B": "1"}}, "cannot be a variable"),
        ({"stages": (Stage("a", "x"), Stage("a", "y"))}, "two stages have one name"),
        ({"stages": (Stage("a", ("x", "\0")),)}, "zero byte"),
    ],
)
def test_what_cannot_be_meant_is_usage(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.UsageError, match=match) as caught:
        make(replace(JOB, **changes), place(tmp_path), Pushed(None), [])
    assert caught.value.safe == "Nothing was pushed or started." and caught.value.exit_code == 2
