import hashlib
import io
import os

import pytest

from outlive.artifacts.digest import CHUNK_BYTES, Changed, digest_file, digest_stream


def test_whole_file_in_chunks(put):
    data = os.urandom(2 * CHUNK_BYTES + 17)
    seen = []
    assert digest_file(put("a", data), on_bytes=seen.append) == (hashlib.sha256(data).hexdigest(), len(data))
    assert seen == [CHUNK_BYTES, CHUNK_BYTES, 17]
    assert digest_file(put("b", b"")) == (hashlib.sha256(b"").hexdigest(), 0)


def test_limit_reads_a_prefix_of_a_growing_log(put):
    path = put("log", b"x" * 100)

    def grow(_):
        with open(path, "ab") as f:
            f.write(b"y")

    assert digest_file(path, limit=60, on_bytes=grow) == (hashlib.sha256(b"x" * 60).hexdigest(), 60)
    assert digest_file(path, limit=1000)[1] == 101
    assert digest_file(path, limit=0)[1] == 0


def _append(path):
    with open(path, "ab") as f:
        f.write(b"y")


def _cut(path):
    os.truncate(path, 10)


def _rewrite(path):
    with open(path, "r+b") as f:
        f.write(b"z")
    os.utime(path, ns=(1, 1))


def _replace(path):
    with open(path + ".new", "wb") as f:
        f.write(b"x" * (CHUNK_BYTES + 5))
    os.replace(path + ".new", path)


@pytest.mark.parametrize("change", [_append, _cut, _rewrite, _replace, os.unlink])
def test_change_while_read(put, change):
    path = put("a", b"x" * (CHUNK_BYTES + 5))
    done = []

    def once(_):
        if not done:
            done.append(1)
            change(path)

    with pytest.raises(Changed):
        digest_file(path, on_bytes=once)


def test_a_hard_link_made_meanwhile_changes_no_byte(put):
    path = put("a", b"x" * 10)
    assert digest_file(path, on_bytes=lambda _: os.link(path, path + ".copy"))[1] == 10


def test_stream_takes_no_more_than_its_limit():
    stream = io.BytesIO(b"abcdef")
    assert digest_stream(stream, 4) == (hashlib.sha256(b"abcd").hexdigest(), 4)
    assert stream.read() == b"ef"
