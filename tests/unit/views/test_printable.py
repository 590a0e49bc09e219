import json

import pytest

from outlive.views.printable import cut, fold, json_safe, last_state_of, one_line, printable, table, width


def test_nothing_that_moves_a_cursor_or_sets_a_title_is_left():
    hostile = "a\x1b[2Jb\x1b]0;title\x07c\x1b[31mred\x1b[0m\x1b]52;c;ZXZpbA==\x1b\\d\x9b31me"
    assert printable(hostile) == "abcredd\\x9b31me"


def test_bell_backspace_and_direction_marks_become_visible():
    assert printable("x\x07\x08\u202ey") == "x\\x07\\x08\\u202ey"
    assert printable("tab\tand\nline") == "tab\tand\nline"


def test_one_line_never_has_two():
    assert one_line("a\r\nb\tc\x00") == "a b c\\x00"


def test_of_a_progress_bar_the_last_state_is_shown():
    assert last_state_of("10%\r20%\r30%\r") == "30%"
    assert last_state_of("plain") == "plain"


@pytest.mark.parametrize("text", ["\x9b31m", "\u202e", "\udcff", "模型", "\u2028"])
def test_json_safe_changes_how_it_is_written_and_not_what_it_says(text):
    raw = json.dumps({"k": text}, ensure_ascii=False)
    safe = json_safe(raw)
    assert json.loads(safe) == {"k": text}
    safe.encode("utf-8")
    assert "\x9b" not in safe and "\u202e" not in safe


def test_chinese_takes_two_columns_when_cut_and_aligned():
    assert width("模型a") == 5
    assert cut("模型模型", 5) == "模型~"
    rows = table([["模型", "x"], ["ab", "y"]], 40)
    assert width(rows[0].split("x")[0]) == width(rows[1].split("y")[0])


@pytest.mark.parametrize("columns", [24, 40, 80, 200])
def test_folded_and_tabled_lines_fit(columns):
    text = "one two three " * 12 + "x" * 90 + " 一二三四五六七八九十" * 6
    assert all(width(line) <= columns for line in fold(text, columns, "  "))
    lines = table([["name-of-a-run", "running", text], ["b", "c", "d"]], columns)
    assert all(width(line) <= columns for line in lines)


def test_folding_loses_nothing():
    text = "alpha beta " + "y" * 50 + " gamma"
    assert "".join(fold(text, 20)).replace(" ", "") == text.replace(" ", "")
