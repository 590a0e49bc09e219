"""A part file has one writer at a time, without locks: who finds another end than its own gives way."""

import os

import pytest

from outlive.onbox.part import Part
from outlive.wire.frames import Torn


def test_continues_where_it_was_told(tmp_path):
    path = str(tmp_path / "part")
    with Part(path, 0) as one:
        one.write(b"abc")
        one.sync()
    with pytest.raises(Torn):
        Part(path, 2)
    with Part(path, 3) as two:
        two.write(b"de")
    with open(path, "rb") as handle:
        assert handle.read() == b"abcde"


def test_a_writer_whose_client_is_gone_gives_way_to_the_next(tmp_path):
    path = str(tmp_path / "part")
    old = Part(path, 0)
    old.write(b"abc")
    new = Part(path, 3)
    new.write(b"def")
    with pytest.raises(Torn):
        old.write(b"late")
    new.write(b"g")
    old.close()
    old.close()
    new.close()
    assert os.path.getsize(path) == 7
