"""Templates are filled strictly."""

import pytest

from outlive.launch.fill import TEMPLATES, TemplateError, fill_text, placeholders


def test_a_missing_and_an_unused_value_are_errors():
    with pytest.raises(TemplateError, match="no value for \\['b'\\]"):
        fill_text("@{a} @{b}", {"a": "1"})
    with pytest.raises(TemplateError, match="no place for \\['c'\\]"):
        fill_text("@{a}", {"a": "1", "c": "2"})


def test_a_block_keeps_its_indentation_and_an_empty_one_goes():
    text = fill_text("x:\n  @{block}\n  @{none}\ny\n", {"block": "a\nb:\n  c", "none": ""})
    assert text == "x:\n  a\n  b:\n    c\ny\n"


def test_a_value_is_not_read_again():
    assert fill_text("@{a} $b ${c} {d}\n", {"a": "@{a} \\1"}) == "@{a} \\1 $b ${c} {d}\n"


def test_two_on_one_line():
    assert fill_text("@{a}@@{b}\n", {"a": "1", "b": "2"}) == "1@2\n"


@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_templates_are_named_by_what_comes_out(path):
    text = path.read_text("utf-8")
    assert path.suffix in {".sh", ".yaml", ".json", ".txt"} and text.endswith("\n") and "\t" not in text
    assert "@{" not in fill_text(text, dict.fromkeys(placeholders(text), "x"))
