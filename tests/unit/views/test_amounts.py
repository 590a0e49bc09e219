import math

import pytest

from outlive.views import amounts


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (999_950, "1.0 MB"),
        (83_100_000_000, "83.1 GB"),
        (271e9, "271 GB"),
    ],
)
def test_sizes(value, said):
    assert amounts.size(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "unknown"),
        (-5, "0 s"),
        (61, "61 s"),
        (720, "12 min"),
        (3 * 3600 + 300, "3 h 05 min"),
        (52 * 3600, "2 d 4 h"),
        (math.inf, "unknown"),
    ],
)
def test_spans(seconds, said):
    assert amounts.span(seconds) == said


def test_an_age_is_never_negative_and_unknown_is_said():
    assert amounts.ago(-3) == "just now"
    assert amounts.ago(None) == "at an unknown time"
    assert amounts.ago(720) == "12 min ago"


def test_a_bar_without_a_total_claims_nothing():
    assert amounts.bar(5, None, 4, plain=True) == "...."
    assert amounts.bar(5, 10, 4, plain=True) == "##.."
    assert amounts.bar(99, 10, 4, plain=True) == "####"


def test_nan_is_seen_in_a_course_and_the_end_is_never_dropped():
    assert amounts.sparkline([1, math.nan, 3], 10, plain=True)[1] == "!"
    values = [1.0] * 99 + [50.0]
    assert amounts.sparkline(values, 10)[-1] == "█"
    assert amounts.sparkline([], 10) == "" and amounts.sparkline([2.0, 2.0], 10) != ""
    assert amounts.sparkline([math.nan], 10) == "!"
