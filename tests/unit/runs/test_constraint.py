import pytest

from outlive import errors
from outlive.runs.constraint import Constraint, Gpu, parse

A100 = Gpu("NVIDIA A100-SXM4-40GB", 42_285_268_992)
H100 = Gpu("NVIDIA H100 80GB HBM3", 85_520_809_984)


@pytest.mark.parametrize(
    "text, constraint",
    [
        ("", Constraint((), 0, 0)),
        ("2", Constraint((), 2, 0)),
        ("A100:1", Constraint(("A100",), 1, 0)),
        ("A100|H100:8, 40GB+", Constraint(("A100", "H100"), 8, 40_000_000_000)),
        ("RTX 4090", Constraint(("RTX 4090",), 1, 0)),
        ("24GiB+", Constraint((), 1, 24 * 2**30)),
    ],
)
def test_what_a_job_may_write(text, constraint):
    assert parse(text) == constraint


@pytest.mark.parametrize("text", ["A100:", ":2", "A100:x", "40TB++"])
def test_what_is_not_understood_is_a_usage_error(text):
    with pytest.raises(errors.UsageError, match="is not understood"):
        parse(text)


@pytest.mark.parametrize(
    "text, gpus, lacks",
    [
        ("A100:1", [A100], False),
        ("A100:2", [A100, H100], True),
        ("A100|H100:2", [A100, H100], False),
        ("40GB+", [A100], False),
        ("80GB+", [A100], True),
        ("1", [], True),
        ("RTX 4090", [Gpu("NVIDIA GeForce RTX 4090")], False),
        ("24GB+", [Gpu("unreadable", None)], False),
    ],
)
def test_a_box_that_lacks_something_is_named(text, gpus, lacks):
    sentence = parse(text).missing(gpus)
    assert bool(sentence) is lacks
    assert not lacks or "the box has" in sentence
