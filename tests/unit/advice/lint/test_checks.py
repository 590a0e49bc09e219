"""Each check fires on its mistake and is silent on what mends it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from outlive.advice.lint.registry import CODE, NEEDS, SEVERITIES, TEXT, pages
from outlive.advice.lint.run import findings_of, parse

SNIPPETS = tomllib.loads(Path(__file__).with_name("snippets.toml").read_text("utf-8"))
CODE_PAIRS = [(pair["check"], pair["bad"], pair["good"]) for pair in SNIPPETS["code"]]
TEXT_PAIRS = [(pair["check"], pair["bad"], pair["good"]) for pair in SNIPPETS["text"]]


def checks_that_fire(text: str) -> set[str]:
    return {finding.check for finding in findings_of(parse(text))}


@pytest.mark.parametrize(("check", "bad", "good"), CODE_PAIRS)
def test_fires_on_the_mistake_and_not_on_what_mends_it(check: str, bad: str, good: str) -> None:
    assert check in checks_that_fire(bad)
    assert check not in checks_that_fire(good)


@pytest.mark.parametrize(("check", "bad", "good"), TEXT_PAIRS)
def test_text_checks(check: str, bad: str, good: str) -> None:
    look, _ = TEXT[check]
    assert list(look(bad))
    assert not list(look(good))


def test_every_check_has_a_page_and_every_page_a_check() -> None:
    assert set(CODE) | set(TEXT) == set(pages())
    assert list(CODE) == sorted(CODE)
    assert list(TEXT) == sorted(TEXT)


def test_every_check_has_a_pair() -> None:
    assert set(CODE) == {check for check, _, _ in CODE_PAIRS}
    assert set(TEXT) == {check for check, _, _ in TEXT_PAIRS}


def test_pages_are_whole() -> None:
    for page in pages().values():
        assert page.ids and page.title and page.message and page.fix
        assert page.severity in SEVERITIES and page.needs in NEEDS
        assert not page.message.endswith(".") and not page.fix.endswith(".")
