"""``--then``: what is said before, and that nothing happens that nobody approved."""

from types import SimpleNamespace

import pytest

from outlive import errors
from outlive.platforms.load import load
from outlive.runs import then
from outlive.runs.job import Job, Stage
from outlive.runs.spec import _then


def place(platform):
    return SimpleNamespace(name="box", platform=load(platform))


def job(tmp_path, do):
    return Job("j", (Stage("main", ("true",)),), tmp_path, then=do)


def test_pause_names_the_clock_that_it_starts(tmp_path):
    spec = {"then": _then(job(tmp_path, "pause"), place("autodl"))}
    assert spec["then"]["do"] == "pause" and spec["then"]["argv"]
    said = then.sentence(place("autodl"), spec)
    assert "parks itself" in said and "15 days after that" in said


@pytest.mark.parametrize("platform", ["ssh", "local", "lambda", "featurize"])
def test_pause_is_refused_where_a_box_cannot_park_itself_reversibly(tmp_path, platform):
    with pytest.raises(errors.UsageError, match="no reversible stop"):
        _then(job(tmp_path, "pause"), place(platform))


def test_down_is_left_to_a_client_with_an_approval(tmp_path):
    spec = {"then": _then(job(tmp_path, "down"), place("ssh"))}
    assert spec["then"] == {"do": "down", "argv": []}
    assert "approve down box --when-proved" in then.sentence(place("ssh"), spec)


@pytest.mark.parametrize(
    "status", [{}, {"then": {"do": "keep"}, "ended": True}, {"then": {"do": "down"}, "ended": False}]
)
def test_nothing_follows_what_was_not_asked_or_has_not_ended(status):
    assert then.after_end(None, None, status) is None
