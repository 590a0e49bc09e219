"""Drafts of rules: a file of the user's own that fires on its sample, holds no secret and is never written over."""

import datetime
import re
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive import errors
from outlive.advice import drafts, rulelint
from outlive.platforms import source

LOG = """step 10 loss 2.1
Traceback (most recent call last):
  File "/home/alice/project/train.py", line 12, in <module>
FrobnicatorError: widget 17 of 40 at /home/alice/data/part-3.bin answered 'no', key=hf_abcdefghijklmnopqrstuvwxyz0123
"""
DAY = datetime.date(2026, 11, 2)


def test_a_draft_compiles_and_fires_on_its_sample(tmp_path):
    made = drafts.draft(LOG, directory=tmp_path, today=DAY)
    rule = source.read(made.rule)
    assert not rulelint.faults(rule)
    assert rule["sources"] == [{"what": "a run of ours", "month": "2026-11"}]
    expression = re.compile(rule["evidence"]["patterns"][0]["re"])
    assert any(expression.search(line) for line in made.sample.read_text("utf-8").splitlines())
    assert expression.search('FrobnicatorError: widget 3 of 8 at /srv/x/y.bin answered "yes", key=REDACTED')
    assert not expression.search("FrobnicatorError: gadget 3 of 8")
    assert made.open == ["title", "cause", "fix"]


def test_what_was_said_is_in_it(tmp_path):
    made = drafts.draft(LOG, name="widget-says-no", title="T", cause="C: why", fix=["one", "# two"], directory=tmp_path)
    rule = source.read(made.rule)
    assert (made.rule.name, rule["id"], rule["cause"], rule["fix"]) == (
        "widget-says-no.yaml",
        "user-widget-says-no",
        "C: why",
        ["one", "# two"],
    )
    assert made.open == []


def test_no_secret_and_no_person_in_it(tmp_path):
    secret = (
        LOG
        + "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 https://bob:hunter22@host/x me@example.org 10.1.2.3\n"
    )
    made = drafts.draft(secret, directory=tmp_path)
    text = made.rule.read_text("utf-8") + made.sample.read_text("utf-8")
    for private in ("hf_abcdef", "0123456789abcdef", "hunter22", "alice", "me@example", "10.1.2.3"):
        assert private not in text
    assert stat.S_IMODE(made.sample.stat().st_mode) == 0o600


def test_a_second_draft_does_not_touch_the_first(tmp_path):
    first = drafts.draft(LOG, directory=tmp_path)
    before = first.rule.read_bytes()
    second = drafts.draft(LOG, directory=tmp_path)
    assert second.rule != first.rule and first.rule.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("nothing", ["", "\n \n"])
def test_nothing_to_make_a_rule_from(tmp_path, nothing):
    with pytest.raises(errors.UsageError):
        drafts.draft(nothing, directory=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "A b", "-x", "x/y"])
def test_a_name_that_is_none(tmp_path, name):
    with pytest.raises(errors.UsageError):
        drafts.draft(LOG, name=name, directory=tmp_path / "rules")
    assert not (tmp_path / "rules").exists()


def test_the_place_is_the_users_configuration():
    assert str(drafts.user_rules({"XDG_CONFIG_HOME": "/c", "HOME": "/h"})) == "/c/outlive/rules"
    assert str(drafts.user_rules({"HOME": "/h"})) == "/h/.config/outlive/rules"


@settings(max_examples=150, deadline=None)
@given(st.text(min_size=1, max_size=80).filter(lambda text: text.strip()))
def test_an_expression_fires_on_the_line_it_was_made_from(line):
    line = " ".join(line.split())
    assert re.search(drafts.pattern_of(line), line)
