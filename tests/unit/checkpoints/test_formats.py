"""The record, configurations, safetensors and the errors' words."""

import json
import struct

import pytest

from outlive.checkpoints import safetensors_format as st
from outlive.checkpoints.commit import letters
from outlive.checkpoints.errors import ConfigChanged, Damaged, Mismatch, NewerFormat, NoRoom, UnknownFormat
from outlive.checkpoints.record import (
    FileEntry,
    Record,
    clean_metrics,
    digest_config,
    inside,
    parse_record,
    plain_config,
    refuse_changed_config,
    seal,
    unseal,
)

RECORD = Record("id", 3, 12, 5.5, (FileEntry("b", 2, "f" * 64), FileEntry("a/c", 1, "0" * 64)), tokens=7)


def test_a_record_comes_back():
    assert parse_record(RECORD.to_json(), "here").files == tuple(sorted(RECORD.files))
    assert parse_record(RECORD.to_json(), "here").digest == RECORD.digest
    assert RECORD.bytes == 3


def test_every_bit_of_a_record_counts():
    raw = RECORD.to_json()
    for at in range(0, len(raw), 7):
        for bit in (0, 3, 6):
            broken = bytearray(raw)
            broken[at] ^= 1 << bit
            try:
                found = parse_record(bytes(broken), "here")
            except (Damaged, UnknownFormat, NewerFormat):
                continue
            # blanks between the words may differ; what is said may not
            assert found.to_json() == parse_record(raw, "here").to_json()


def resealed(**keys):
    data = unseal(RECORD.to_json())
    data.update(keys)
    return seal({key: value for key, value in data.items() if value is not None})


@pytest.mark.parametrize(
    "keys, error",
    [
        ({"version": 2}, NewerFormat),
        ({"version": "x"}, NewerFormat),
        ({"format": "other"}, UnknownFormat),
        ({"files": None}, Damaged),
        ({"files": [{"path": "../x", "bytes": 1, "sha256": "0"}]}, Damaged),
        ({"files": [{"path": "/etc/passwd", "bytes": 1, "sha256": "0"}]}, Damaged),
        ({"digest": "0"}, Damaged),
        ({"step": "many"}, Damaged),
    ],
)
def test_a_record_that_must_not_be_believed(keys, error):
    with pytest.raises(error) as said:
        parse_record(resealed(**keys), "there")
    assert "there" in str(said.value)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": NaN, "check": "x"}'])
def test_bytes_that_are_no_record(raw):
    with pytest.raises(Damaged):
        parse_record(raw, "there")


def test_names_that_leave():
    assert inside("a/b") and not any(inside(p) for p in ("", "/a", "a/../b", "..", "a//b", "a\0b", "./a"))


def test_metrics_are_finite_numbers():
    class Tensor:
        def item(self):
            return 2.5

    given = {"a": 1, "b": float("inf"), "c": "x", "d": Tensor(), "e": None}
    assert clean_metrics(given) == {"a": 1.0, "d": 2.5}
    assert clean_metrics(None) == {}


def test_a_changed_configuration_is_named():
    then = {"lr": 0.1, "optim": {"name": "adam", "betas": [0.9, 0.95]}, "out": "a"}
    refuse_changed_config(then, json.loads(json.dumps(then)))
    now = {"lr": 0.2, "optim": {"name": "adam", "betas": [0.9, 0.99], "eps": 1e-8}}
    with pytest.raises(ConfigChanged) as error:
        refuse_changed_config(then, now)
    assert [row[0] for row in error.value.rows] == ["lr", "optim.betas", "optim.eps", "out"]
    assert "lr: 0.1, now 0.2" in str(error.value) and "not there" in str(error.value)
    refuse_changed_config(then, now, allow=["lr", "optim", "out"])


def test_what_json_cannot_say_still_compares():
    refuse_changed_config({"f": len, "nan": float("nan")}, {"f": len, "nan": float("nan")})


def test_odd_configurations_compare_by_what_they_say():
    def odd():
        return {1: "a", "b": {2: (1, 2), None: {3, 1}}, "f": lambda: None, "inf": float("-inf"), "big": 10**30}

    refuse_changed_config(odd(), odd())
    refuse_changed_config(json.loads(json.dumps(plain_config(odd())["values"])), odd())
    assert digest_config(odd()) == digest_config(odd())
    with pytest.raises(ConfigChanged, match="inf"):
        refuse_changed_config(odd(), dict(odd(), inf=1.0))


def test_letters_are_never_digits():
    made = [letters(n) for n in range(1, 2000)]
    assert made[:3] == ["b", "c", "d"] and len(set(made)) == len(made)
    assert all(name.isalpha() for name in made)


def test_errors_carry_their_numbers():
    assert "3.0 GB (3000000000 bytes) needed" in str(NoRoom("/x", "bytes", 3 * 10**9, 5))
    assert "7 inodes needed, 0 inodes free" in str(NoRoom("/x", "inodes", 7, 0))
    table = str(Mismatch("/x", [("layer.%d" % i, "[2]", "[3]") for i in range(20)]))
    assert "20 differences" in table and "and 8 more" in table and "in the model" in table


# ---- safetensors ----


def tensors():
    return {
        "w": ("F32", (2, 3), struct.pack("<6f", *range(6))),
        "flag": ("BOOL", (), b"\1"),
        "half": ("BF16", (4,), b"\0\1" * 4),
        "none": ("F64", (0, 5), b""),
    }


def test_safetensors_come_back(tmp_path):
    path = str(tmp_path / "x.safetensors")
    st.write(path, tensors(), {"step": "3"})
    head = st.header(path)
    assert head.metadata == {"step": "3"} and set(head.tensors) == set(tensors())
    for name, (dtype, shape, data) in tensors().items():
        assert st.read(path, name, head) == (dtype, shape, data)
    assert head.data_start % 8 == 0 and head.tensors["w"].start % 4 == 0
    from outlive.artifacts.structure import check

    assert check(path, "tensors").level == "tensors"


def test_safetensors_that_lie(tmp_path):
    path = tmp_path / "x.safetensors"
    st.write(str(path), tensors())
    raw = path.read_bytes()
    for broken in (
        b"",
        raw[:5],
        raw[:30],
        raw[:-1],
        raw + b"x",
        struct.pack("<Q", 2**63) + raw[8:],
        raw[:8] + b"{" * 9,
    ):
        path.write_bytes(broken)
        with pytest.raises(Damaged):
            st.header(str(path))
    with pytest.raises(ValueError):
        st.write(str(path), {"w": ("F32", (2,), b"1")})
