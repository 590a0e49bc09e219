"""The journal: what was written comes back, a torn tail is skipped and never spreads."""

import json
import os
import random

from outlive.wire.journal import JournalWriter, parse_line, read_all, read_records


def write_some(path, number):
    writer = JournalWriter(str(path))
    records = [writer.append("state", sync=False, state="running", why="because %d" % i) for i in range(number)]
    writer.close()
    return records


def test_a_missing_journal_has_no_records(tmp_path):
    assert read_all(str(tmp_path / "none")) == []


def test_what_is_written_comes_back(tmp_path):
    path = tmp_path / "journal"
    records = write_some(path, 5)
    assert read_all(str(path)) == records
    assert [r["n"] for r in records] == [0, 1, 2, 3, 4]


def test_text_of_any_kind_goes_round(tmp_path):
    """What work prints ends up in records: bytes that are no text, halves of surrogate pairs, line ends."""
    path = str(tmp_path / "journal")
    writer = JournalWriter(path)
    texts = [
        "",
        "中文 é 😀",
        "two\nlines\r\u2028\x00",
        b"\xff\xfe".decode("utf-8", "surrogateescape"),
        "\ud800 alone",
        "x" * 100000,
    ]
    rng = random.Random(4)
    for _ in range(200):
        texts.append(
            "".join(
                chr(rng.choice((rng.randrange(128), rng.randrange(0xD7FF), rng.randrange(0xDC00, 0x11000))))
                for _ in range(9)
            )
        )
    for text in texts:
        writer.append("first_line", sync=False, text=text)
    writer.close()
    assert [r["text"] for r in read_all(path)] == texts
    with open(path, "rb") as handle:
        assert handle.read().count(b"\n") == len(texts)


def test_every_cut_leaves_whole_records_and_a_journal_that_goes_on(tmp_path):
    whole = tmp_path / "whole"
    write_some(whole, 4)
    data = whole.read_bytes()
    ends = [i + 1 for i, b in enumerate(data) if b == 10]
    for cut in range(len(data) + 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:cut])
        complete = sum(1 for end in ends if end <= cut)
        assert len(read_all(str(path))) == complete
        writer = JournalWriter(str(path))
        added = writer.append("ended", sync=False, state="failed")
        writer.close()
        found = read_all(str(path))
        assert found[-1] == added and len(found) in (complete + 1, complete + 2)
        numbers = [r["n"] for r in found]
        assert numbers == sorted(numbers), "a record whose newline alone was missing is whole after all"
        os.unlink(str(path))


def test_garbage_is_skipped_not_believed(tmp_path):
    path = tmp_path / "journal"
    write_some(path, 2)
    with open(str(path), "ab") as handle:
        handle.write(b'\n\n[1, 2]\nnull\n{"no": "kind"}\n\xff\xfe\n{"k": "torn\n')
    later = write_some(path, 1)
    assert [r["n"] for r in read_all(str(path))] == [0, 1, 2]
    assert later[0]["n"] == 2


def test_offsets_continue_where_they_stopped(tmp_path):
    path = str(tmp_path / "journal")
    records = write_some(path, 6)
    for start in range(6):
        end = list(read_records(path, 0))[start][1]
        assert [r for r, _ in read_records(path, end)] == records[start + 1 :]


def test_a_record_can_be_made_first_and_written_later(tmp_path):
    path = str(tmp_path / "journal")
    writer = JournalWriter(path)
    first, second = writer.make("a"), writer.make("b")
    writer.write(first)
    writer.write(second)
    writer.write(second)  # its confirmation was lost
    writer.close()
    assert [r["n"] for r in read_all(path)] == [0, 1, 1]


def test_lines_that_are_not_ours():
    assert parse_line(b"") is None
    assert parse_line(json.dumps({"n": 1}).encode()) is None
    assert parse_line(b'{"k": "state"}\n') == {"k": "state"}
