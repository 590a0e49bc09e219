"""Pickles are followed, never run."""

import io
import os
import pickle

import pytest

from outlive.artifacts.findings import Bad, Layout
from outlive.artifacts.formats.pickles import Walk
from outlive.artifacts.structure import check, prove


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, ("touch " + self.path,)


def codes(result):
    return [f["code"] for f in result.findings]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_bomb_is_named_and_not_run(tmp_path, put, protocol):
    flag = str(tmp_path / "ran")
    result = prove(put("a.pkl", pickle.dumps({"w": Bomb(flag)}, protocol)), "tensors")
    assert (result.level, result.kind, codes(result)) == ("bytes", "pickle", ["pickle_globals"])
    assert result.ok, "not refuted: it is whole, only never to be loaded"
    assert "posix.system" in result.findings[0]["text"]
    assert not os.path.exists(flag)


def test_bomb_inside_a_torch_zip(forge, put, tmp_path):
    flag = str(tmp_path / "ran")
    bomb = pickle.dumps(Bomb(flag), 2)[2:-1]
    data = forge.torch_zip(extra=b"X\x01\0\0\0k" + bomb)
    result = prove(put("m.pt", data), "tensors")
    assert (result.level, codes(result), result.ok) == ("bytes", ["pickle_globals"], True)
    assert not os.path.exists(flag)


@pytest.mark.parametrize(
    "hidden",
    [
        b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x85R.",  # memoised names
        b"\x80\x04\x8c\x05built0\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        b"\x80\x04N\x8c\x04eval\x93.",  # a module that is no string
        b"(S'id'\nios\nsystem\n.",  # INST
        b"\x80\x02\x82\x07.",  # an extension code
        b"c__builtin__\ngetattr\n.",
    ],
)
def test_globals_cannot_hide(put, hidden):
    assert codes(check(put("a.pkl", hidden))) in (["pickle_globals"], ["corrupt", "pickle_globals"])


def test_allowed_ones_pass(put):
    import collections
    import datetime
    import pathlib

    value = {
        "o": collections.OrderedDict(a=1),
        "d": collections.defaultdict(list, b=[2]),
        "when": datetime.datetime(2020, 1, 2),
        "where": pathlib.PurePosixPath("/x"),
        "set": {1, frozenset([2])},
        "bytes": b"\0\xff",
        "huge": 10**400,
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        result = check(put("a.pkl", pickle.dumps(value, protocol)))
        assert (result.level, result.findings) == ("structure", ()), protocol


def test_several_dumps_in_one_file(put):
    data = pickle.dumps([1]) + pickle.dumps({"a": 2})
    assert check(put("a.pkl", data)).level == "structure"
    assert codes(check(put("a.pkl", data + b"\xff\xff"))) == ["corrupt"]


def test_long_strings_are_skipped_not_held(put):
    data = pickle.dumps({"raw": b"\x01" * (3 << 20), "text": "y" * (1 << 20)}, 4)
    assert check(put("a.pkl", data), budget_bytes=1 << 16).level == "structure"
    assert codes(check(put("a.pkl", data[: 2 << 20]))) == ["truncated"]


def test_joblib_arrays_between_opcodes_are_not_called_damage(put):
    data = (
        b"\x80\x04\x8c\x13joblib.numpy_pickle\x94\x8c\x11NumpyArrayWrapper\x94\x93\x94)\x81\x94" + b"\xee" * 400 + b"."
    )
    result = check(put("a.pkl", data))
    assert (codes(result), result.ok) == (["pickle_globals"], True)


def test_lying_lengths_and_loops():
    for raw in (
        b"\x80\x04\x8e" + b"\xff" * 8 + b".",  # BINBYTES8 of 2**64-1
        b"\x80\x04\x8b\xff\xff\xff\xff.",  # LONG4 of -1
        b"\x80\x02h\x05.",  # memo never set
        b"\x80\x02u.",
        b"\x80\x02(.",
        b"\x80\x02\x85.",
        b"\x80\x09.",
        b"\x80\x02]q\x00h\x00a",  # a list inside itself, without STOP
    ):
        with pytest.raises(Bad) as bad:
            Walk(Layout("pickle", "structure")).run(io.BytesIO(raw), len(raw))
        assert bad.value.code in ("corrupt", "truncated")
