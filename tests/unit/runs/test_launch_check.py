"""When a launch is not called good."""

import datetime

import pytest

from outlive.platforms.lint import WARN_AFTER_MONTHS, age
from outlive.platforms.load import load
from outlive.runs.run import launch_check

GOOD = {
    "ended": False,
    "state": "running",
    "why": "",
    "first_line": "step 1/10 loss 3.2",
    "alarms": [],
    "outcome": None,
}


def test_a_good_launch_has_nothing_to_say():
    assert launch_check(GOOD) == []
    assert launch_check({**GOOD, "ended": True, "state": "succeeded"}) == []


@pytest.mark.parametrize(
    "change, said",
    [
        (
            {"ended": True, "state": "failed", "outcome": {"sentence": "ended with status 1"}},
            "it ended at once: failed",
        ),
        ({"first_line": "Traceback (most recent call last):"}, "traceback"),
        ({"alarms": [{"alarm": "step_regressed", "sentence": "it began at step 0"}]}, "it began at step 0"),
    ],
)
def test_what_is_wrong_is_named(change, said):
    (found,) = launch_check({**GOOD, **change})
    assert said in found


def test_old_facts_are_named_before_they_decide_about_money():
    platform = load("autodl")
    year, month = (int(part) for part in platform.verified.storage.split("-"))
    assert age(platform, datetime.date(year, month, 28)) == []
    later = year * 12 + month - 1 + WARN_AFTER_MONTHS + 1
    found = age(platform, datetime.date(later // 12, later % 12 + 1, 1))
    assert {p.at for p in found} >= {"verified.storage"}
    assert "months ago" in str(found[0])
