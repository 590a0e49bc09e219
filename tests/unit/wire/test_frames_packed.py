"""Compressed payloads come out as they went in, and cannot unpack to more than they announced."""

import io
import zlib

import pytest

from outlive.wire.frames import MAX_INFLATED_BYTES, Torn, deflated, read_frames, write_end, write_frame


def sent(*frames):
    out = io.BytesIO()
    for header, payload in frames:
        write_frame(out, header, payload)
    write_end(out)
    return io.BytesIO(out.getvalue())


def test_round_trip_beside_plain_frames():
    data = b"line\n" * 10000
    packed = deflated(data)
    assert len(packed) < len(data) / 10
    source = sent(({"t": "data", "z": len(data)}, packed), ({"t": "data"}, b"plain"))
    assert [payload for _, payload in read_frames(source)] == [data, b"plain"]


@pytest.mark.parametrize(
    "n,payload",
    [
        (MAX_INFLATED_BYTES + 1, deflated(b"x")),
        (-1, deflated(b"x")),
        (10, deflated(b"\0" * 1000)),
        (1000, deflated(b"\0" * 10)),
        (10, b"not packed at all"),
        (1000, deflated(b"\0" * 1000)[:-3]),
    ],
)
def test_what_does_not_unpack_to_its_word_is_torn(n, payload):
    with pytest.raises(Torn):
        list(read_frames(sent(({"t": "data", "z": n}, payload))))


def test_a_bomb_is_not_unpacked():
    bomb = zlib.compress(b"\0" * (64 * 1024 * 1024), 9)
    with pytest.raises(Torn):
        list(read_frames(sent(({"t": "data", "z": 100}, bomb))))
