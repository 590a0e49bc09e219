import random

import pytest

from outlive.diagnose.lines import MAX_LINE_BYTES, LineSplitter, clean, last_state


def split(data, size=None, **options):
    splitter = LineSplitter(**options)
    size = size or max(1, len(data))
    out = []
    for i in range(0, len(data), size):
        out += splitter.feed(data[i : i + size])
    return out + splitter.flush()


def texts(data, **options):
    return [line.text for line in split(data, **options) if not line.bar]


def test_lines_carry_their_offsets():
    lines = split(b"one\ntwo\r\n\nlast", start=100)
    assert [(x.text, x.start, x.end) for x in lines] == [
        ("one", 100, 104), ("two", 104, 109), ("", 109, 110), ("last", 110, 114)
    ]  # fmt: skip


def test_a_progress_bar_is_one_line_with_its_states_offered():
    lines = split(b"\r 10%\r 50%\r100%\ndone\n")
    assert [(x.text, x.bar, x.repeat) for x in lines] == [
        (" 10%", True, False), (" 50%", True, False), ("100%", False, False), ("done", False, False)
    ]  # fmt: skip
    assert lines[2].start == 0


def test_a_bar_that_was_wiped_keeps_its_last_state():
    lines = split(b"\r 99%\r      \r\nnext\n")
    assert [(x.text, x.bar, x.repeat) for x in lines] == [
        (" 99%", True, False),
        (" 99%", False, True),
        ("next", False, False),
    ]


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b""])
def test_line_ends_are_one_thing(end):
    assert texts(b"loss 1" + end) == ["loss 1"]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_return_cut_from_its_newline_is_no_bar(cut):
    data = b"abc\r\ndef\r\n"
    splitter = LineSplitter()
    lines = splitter.feed(data[:cut]) + splitter.feed(data[cut:]) + splitter.flush()
    assert [(x.text, x.bar) for x in lines] == [("abc", False), ("def", False)]


def test_escapes_and_control_characters_go_and_tabs_stay():
    assert clean(b"\x1b[1;32mok\x1b[0m\x00\x08\ta\x1b]0;title\x07b\x1b[A") == "ok\tab"


def test_invalid_utf8_is_replaced():
    assert texts(b"\xff\xfeloss\n\xe2\x96") == ["��loss", "�"]


def test_memory_stays_bounded_without_a_newline():
    splitter = LineSplitter(max_bytes=1000)
    for _ in range(200):
        assert splitter.feed(b"x" * 10_000) == []
    assert len(splitter._part) == 1000
    (line,) = splitter.feed(b"\n")
    assert line.truncated and len(line.text) == 1000 and line.end == 2_000_001


def test_ten_million_returns_give_nothing():
    splitter = LineSplitter()
    for _ in range(10):
        assert splitter.feed(b"\r" * 1_000_000) == []
    assert len(splitter._part) == 0
    assert [x.text for x in splitter.feed(b"end\n")] == ["end"]


def test_pending_shows_the_state_in_progress():
    splitter = LineSplitter()
    splitter.feed(b"\r 10%\r 50%")
    assert splitter.pending() == " 50%"
    splitter.feed(b"\r")
    assert splitter.pending() == " 50%"


def test_needles_give_the_same_as_a_filter():
    data = b"a\nLOSS 1\nb loss 2\r\n\r1 loss\r2 x\r3 loss\nzz\r\nloss" * 7
    whole = [x for x in split(data) if "loss" in x.text.lower()]
    for size in (1, 2, 3, 5, 1000):
        assert split(data, size, needles=(b"loss",)) == whole


def test_the_last_state_of_a_line_is_what_the_splitter_says():
    random.seed(11)
    parts = [b"\r", b"\r", b"  ", b"a 1", b"\x1b[2K", b"\x1b[31m", b"\xff", b"\t", b"b" * (MAX_LINE_BYTES + 3)]
    for _ in range(300):
        raw = b"".join(random.choice(parts) for _ in range(random.randrange(12)))
        line = LineSplitter().feed(raw + b"\n")[-1]
        assert clean(last_state(raw)) == line.text
