"""Specs: the same meaning has the same digest, another one is told apart in words."""

import random

import pytest

from outlive.wire import spec

SMALL = {"job": "tiny", "stages": [{"name": "main", "run": ["python", "train.py"]}]}


def shuffled(value, rng):
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {k: shuffled(value[k], rng) for k in keys}
    return value


def test_what_is_left_out_is_the_default():
    whole = spec.complete(SMALL)
    assert spec.complete(whole) == whole
    assert whole["retry"] == {"max": 3}
    assert spec.complete(dict(SMALL, retry={"max": 3})) == whole
    assert set(whole) == set(spec.DEFAULTS)


def test_completing_does_not_touch_the_defaults():
    first = spec.complete(dict(SMALL, env={"A": "1"}, limits={"grace_s": 1.0}))
    first["artifacts"]["roster"].append("x")
    assert spec.complete(SMALL)["env"] == {} and spec.complete(SMALL)["artifacts"]["roster"] == []


def test_the_digest_is_of_the_meaning():
    rng = random.Random(1)
    whole = spec.complete(dict(SMALL, env={"A": "1", "Ä": "é"}))
    for _ in range(20):
        assert spec.digest(shuffled(whole, rng)) == spec.digest(whole)
    for other in ({"env": {"A": "2"}}, {"retry": {"max": 4}}, {"job": "tiny2"}, {"snapshot": "0" * 64}):
        assert spec.digest(spec.complete(dict(SMALL, **other))) != spec.digest(spec.complete(SMALL))


def test_differences_name_what_differs_and_nothing_else():
    old = spec.complete(dict(SMALL, env={"LR": "1", "OLD": "x"}))
    new = spec.complete(dict(SMALL, env={"LR": "2", "NEW": "y"}, retry={"max": 5}))
    assert spec.differences(old, new) == [
        'env.LR: "1" -> "2"',
        'env.NEW: null -> "y"',
        'env.OLD: "x" -> null',
        "retry.max: 3 -> 5",
    ]
    assert spec.differences(old, old) == []


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"job": "Has Space"}, "job name"),
        ({"job": "x" * 41}, "job name"),
        ({"job": "../up"}, "job name"),
        ({"stages": []}, "nothing to run"),
        ({"stages": [{"name": "a", "run": []}]}, "must be a command"),
        ({"stages": [{"name": "a", "run": ["x", 3]}]}, "must be a command"),
        ({"stages": [{"name": "a", "run": ["x\0y"]}]}, "zero byte"),
        ({"stages": [{"name": "", "run": "true"}]}, "needs a name"),
        ({"stages": [{"name": "a", "run": "true"}, {"name": "a", "run": "false"}]}, "one name"),
        ({"stages": [{"name": "setup", "run": "true"}], "setup": {"run": "x", "digest": "d"}}, "setup"),
        ({"setup": {"run": "x", "digest": "../../x"}}, "setup"),
        ({"setup": {"digest": "d"}}, "setup"),
        ({"colour": 1}, "no key 'colour'"),
        ({"retry": {"most": 1}}, "no key 'most'"),
        ({"schema": "outlive/spec/9"}, "version"),
        ({"pty": True}, "terminal"),
        ({"secrets": {"keep": "cloud"}}, "keep"),
        ({"env": {"A=B": "1"}}, "environment"),
        ({"env": {"A": "1\0"}}, "environment"),
    ],
)
def test_what_cannot_be_executed_is_refused_in_words(keys, said):
    with pytest.raises(ValueError, match=said):
        spec.complete(dict(SMALL, **keys))


def test_any_variable_of_the_environment_may_be_set():
    assert spec.complete(dict(SMALL, env={"anything at all": "中文"}))["env"] == {"anything at all": "中文"}
