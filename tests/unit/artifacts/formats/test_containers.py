"""What each container refuses, one disaster at a time."""

import io
import json
import pickle
import struct
import tarfile
import zipfile

import pytest

from outlive.artifacts.structure import check, prove


def codes(result):
    return [f["code"] for f in result.findings]


def header(**tensors):
    return {name: {"dtype": "F32", "shape": [1], "data_offsets": list(span)} for name, span in tensors.items()}


@pytest.mark.parametrize(
    "fields, tail_bytes, code",
    [
        (header(a=(0, 4), b=(4, 8)), 8, None),
        (header(a=(0, 4), b=(0, 4)), 4, "corrupt"),  # the same bytes twice
        (header(a=(0, 4), b=(2, 6)), 6, "corrupt"),  # overlap
        (header(a=(0, 4), b=(8, 12)), 12, "corrupt"),  # hole
        (header(a=(0, 4), b=(4, 8)), 6, "truncated"),
        (header(a=(0, 4)), 8, "corrupt"),  # bytes that belong to nobody
        (header(a=(4, 0)), 4, "corrupt"),
        (header(a=(-4, 0)), 4, "corrupt"),
        (header(a=(0, 8)), 8, "corrupt"),  # eight bytes for one float
        (header(a=(0, 1 << 60)), 4, "corrupt"),
        ({"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}}, 4, "corrupt"),
        ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, 4, "corrupt"),
        ({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, 4, "unknown_type"),
        ({"a": 7}, 0, "corrupt"),
        ({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, 4, "corrupt"),
        ({}, 0, None),
    ],
)
def test_safetensors_extents(forge, put, fields, tail_bytes, code):
    result = check(put("m.safetensors", forge.safetensors({}, header=fields, tail=b"\0" * tail_bytes)))
    assert codes(result) == ([code] if code else []), result


def test_safetensors_headers(put):
    for text in (b'{"a":1,"a":2}', b"{" * 5000, b'{"a": [[[[', b"[]      ", b'{"a":"\xff"}'):
        result = check(put("m.safetensors", struct.pack("<Q", len(text)) + text))
        assert codes(result) == ["corrupt"], text
    assert codes(check(put("m.safetensors", struct.pack("<Q", 1 << 50) + b"{}"))) == ["corrupt"]
    assert codes(check(put("m.safetensors", struct.pack("<Q", 1000) + b"{}"))) == ["truncated"]


def test_torch_extents(forge, put):
    good = {"0": forge.floats(1, 2, 3, 4)}
    for spec in (
        ("0", "f4", 4, 0, (5,), (1,)),  # more values than the storage
        ("0", "f4", 4, 2, (3,), (1,)),
        ("0", "f4", 4, 0, (2, 2), (3, 1)),
        ("0", "f4", 8, 0, (8,), (1,)),  # more than the entry has
        ("7", "f4", 4, 0, (4,), (1,)),  # no such entry
    ):
        assert codes(check(put("m.pt", forge.torch_zip({"w": spec}, good)))) == ["corrupt"], spec
    for spec in (("0", "f4", 4, 0, (2, 2), (1, 2)), ("0", "f4", 4, 4, (0, 3), (3, 1)), ("0", "f4", 4, 0, (), ())):
        assert check(put("m.pt", forge.torch_zip({"w": spec}, good))).level == "structure", spec


def test_torch_pickle_that_was_cut_before_it_was_packed(forge, put):
    whole = forge.torch_pickle({"w": ("0", "f4", 1, 0, (1,), (1,))})
    result = check(put("m.pt", forge.torch_zip({}, {"0": forge.floats(1)}, pickled=whole[:-9])))
    assert codes(result) == ["corrupt"]


def test_torch_archives_behind_each_other_are_all_checked(forge, put):
    parts = [
        forge.torch_zip({"w%d" % n: ("0", "f4", 512, 0, (512,), (1,))}, {"0": forge.floats(n, *[1] * 511)})
        for n in range(3)
    ]
    whole = b"".join(parts)
    path = put("__0_0.distcp", whole)
    assert (prove(path, "tensors").level, check(path).kind) == ("tensors", "torch-zip")
    damaged = bytearray(whole)
    damaged[len(parts[0]) // 2] ^= 1
    assert codes(check(put("__0_0.distcp", bytes(damaged)))) == ["corrupt"]


def test_torch_legacy(forge, put):
    data = forge.torch_legacy()
    assert codes(check(put("m.pt", data + b"xx"))) == ["corrupt"]
    assert codes(check(put("m.pt", data[:-1]))) == ["truncated"]
    other = data.replace(struct.pack("<q", 3), struct.pack("<q", 4))
    assert codes(check(put("m.pt", other))) == ["corrupt"]


def test_npy(forge, put):
    assert codes(check(put("x.npy", forge.npy() + b"junk"))) == ["corrupt"]
    assert check(put("x.npy", forge.npy() + forge.npy())).level == "structure", "two saved into one file"
    assert codes(check(put("x.npy", forge.npy()[:-1]))) == ["truncated"]
    records = forge.npy(b"\0" * 24, [("a", "<f4"), ("b", "<i2", (4,))], (2,))
    assert check(put("x.npy", records)).level == "structure"
    assert check(put("x.npy", forge.npy(b"\0" * 24, "<U3", (2,)))).level == "structure"
    objects = forge.npy(pickle.dumps([1, "a"], 4), "|O", (2,))
    assert check(put("x.npy", objects)).level == "structure"
    assert codes(check(put("x.npy", forge.npy(b"", "__import__('os')", (0,))))) == ["unknown_type"]
    evil = b"\x93NUMPY\x01\x00" + struct.pack("<H", 60000) + b"(" * 60000
    assert codes(check(put("x.npy", evil))) == ["corrupt"]
    assert codes(check(put("x.npy", forge.npy(b"", "<f4", (-1,))))) == ["corrupt"]


def test_npz_array_shorter_than_its_header_says(forge, put):
    for packing in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        data = forge.npz({"x": forge.npy()[:-4], "y": forge.npy()}, packing)
        assert codes(check(put("x.npz", data))) == ["corrupt"]


@pytest.mark.parametrize(
    "text, code",
    [
        (b'{"a": 1}', None),
        (b'\xef\xbb\xbf{"a": 1}\n', None),
        ('{"a": "é"}'.encode("utf-16"), None),
        (b'{"loss": NaN, "x": -Infinity}', None),
        (b"12" * 5000, None),  # a number of many digits
        (b'{"a": 1', "truncated"),
        (b'{"a": "unfinis', "truncated"),
        (b'{"a": tru', "truncated"),
        (b'{"a": -', "truncated"),
        (b'{"a"', "truncated"),
        (b"[1, 2,", "truncated"),
        (b"   \n", "truncated"),
        (b'{"a" 1}', "corrupt"),
        (b"[1 2]", "corrupt"),
        (b"[1, ]", "corrupt"),
        (b'{"a": 1}}', "corrupt"),
        (b"{1: 2}", "corrupt"),
        (b"[1}", "corrupt"),
        (b'{"a": \xff}', "corrupt"),
        (b'{"a": 1}\0\0\0', "corrupt"),
        (b"[" * 100000 + b"]" * 100000, None),
        (b"[" * 100000 + b"]" * 99999, "truncated"),
        (b'{"step": 1}\n{"step": 2}\n', None),  # lines under the wrong name
        (b'{"step": 1}\n{"st', "truncated"),
    ],
)
def test_json(put, text, code):
    result = check(put("a.json", text))
    assert codes(result) == ([code] if code else []), result


def test_large_json_gives_the_same_answers_in_pieces(put, monkeypatch):
    from outlive.artifacts.formats import json_texts

    monkeypatch.setattr(json_texts, "WHOLE_BYTES", 100)
    value = [{"text": 'x\\"y' * 50, "n": [n, -1.5e-9, True, None]} for n in range(9000)]
    data = json.dumps(value).encode()
    assert len(data) > 2 << 20
    assert check(put("a.json", data)).level == "structure"
    assert codes(check(put("a.json", data[:-1]))) == ["truncated"]
    assert codes(check(put("a.json", data[: 1 << 20]))) == ["truncated"]
    broken = data[: 1 << 20] + b"}{" + data[1 << 20 :]
    assert codes(check(put("a.json", broken))) == ["corrupt"]


def test_jsonl(put):
    assert check(put("m.jsonl", b'{"a":1}\n\n{"b":2}')).level == "structure", "no last newline, and whole"
    torn = check(put("m.jsonl", b'{"a":1}\n{"b":'))
    assert codes(torn) == ["truncated"] and "line 2" in torn.findings[0]["text"]
    middle = check(put("m.jsonl", b'{"a":1}\n{"b":{"c":3}\n{"d":4}\n'))
    assert codes(middle) == ["bad_lines"] and middle.ok and "1 of 3" in middle.findings[0]["text"]
    assert codes(check(put("m.jsonl", b'{"a":1}\n' + b"\0" * 50))) == ["truncated"]


@pytest.mark.parametrize(
    "text, code",
    [
        (b"a,b\n1,2\n3,4\n", None),
        (b"a,b\r\n1,2\r\n", None),
        (b"a;b\n1,5;2\n", None),
        (b"# made by x\na,b\n1,2\n\n", None),
        (b"only\n1\n2\n", None),
        (b"a,b\n1,2\n3", "truncated"),
        (b"a,b\n1\n3,4\n", "bad_lines"),
        (b"a,b\n1,2\n3\n", "bad_lines"),
        (b"a,b\n1,2,3\n", "bad_lines"),
        (b"a,b\n1,\0\n", "corrupt"),
        ("名,值\n".encode("gbk") + b"1,2\n", "unknown_type"),
        (b"a,b\n1," + b"x" * 300000 + b"\n", None),
    ],
)
def test_csv(put, text, code):
    result = check(put("t.csv", text))
    assert codes(result) == ([code] if code else []), result


def test_texts(put):
    assert codes(check(put("c.yaml", b"a: 1\n" + b"\0" * 4096))) == ["corrupt"]
    assert codes(check(put("c.yaml", "a: é".encode()[:-1]))) == ["truncated"]
    assert codes(check(put("c.yaml", "a: 模型 é\n".encode("gbk")))) == ["unknown_type"]
    assert check(put("run.log", "tail é".encode()[:-1])).ok, "a log may end anywhere"
    assert check(put("run.log", b"x\0y")).ok
    assert check(put("noext", "wide".encode("utf-16"))).kind == "unknown"


def test_tar(forge, put):
    data = forge.tar()
    first = data[:512]
    flipped = bytes([first[0] ^ 1]) + data[1:]
    assert codes(check(put("a.tar", flipped))) == ["corrupt"]
    assert codes(check(put("a.tar", data[:1024]))) == ["truncated"]
    without_end = data.rstrip(b"\0")
    without_end += b"\0" * (-len(without_end) % 512)
    assert codes(check(put("a.tar", without_end))) == ["truncated"]
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w", format=form) as archive:
            member = tarfile.TarInfo("x" * 90)
            member.size, member.mtime = 3, 1.5 if form == tarfile.PAX_FORMAT else 1
            archive.addfile(member, io.BytesIO(b"abc"))
        assert check(put("a.tar", held.getvalue())).level == "structure", form


def test_packed_tar_cut_in_the_middle(forge, put):
    for packing in ("gz", "bz2", "xz"):
        data = forge.tar(packing)
        assert codes(check(put("a.tar." + packing, data[:-10]))) == ["truncated"], packing


def test_tfevents(forge, put):
    data = forge.tfevents()
    assert codes(check(put("e.tfevents.1", data[:-1]))) == ["truncated"]
    assert codes(check(put("e.tfevents.1", data + b"\x05"))) == ["truncated"]
    assert codes(check(put("e.tfevents.1", b"\x01" + data[1:]))) == ["corrupt"]
    damaged = bytearray(data)
    damaged[-100] ^= 4
    assert codes(check(put("e.tfevents.1", bytes(damaged)))) == ["corrupt"]


def test_crc32c_of_known_strings():
    from outlive.artifacts.formats.tfevents import crc32c

    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"\0" * 32) == 0x8A9136AA
    long = bytes(range(256)) * 65 + b"odd"
    assert len(long) > 1 << 14
    assert crc32c(long) == _slow_crc32c(long)


def _slow_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_images(forge, put):
    assert codes(check(put("p.png", forge.png()[:-12]))) == ["truncated"]
    damaged = bytearray(forge.png())
    damaged[45] ^= 1
    assert codes(check(put("p.png", bytes(damaged)))) == ["corrupt"]
    assert codes(check(put("p.jpg", forge.jpeg()[:-2]))) == ["truncated"]
    assert check(put("p.jpg", forge.jpeg() + b"\0" * 9)).ok, "some writers add bytes behind the end"
    assert codes(check(put("p.gif", forge.gif()[:-1]))) == ["truncated"]
    assert codes(check(put("p.webp", forge.webp()[:-1]))) == ["truncated"]


def test_parquet_and_hdf5(forge, put):
    data = forge.parquet()
    assert codes(check(put("t.parquet", data[:-4]))) == ["truncated"]
    assert codes(check(put("t.parquet", data[:-8] + struct.pack("<I", 10**6) + b"PAR1"))) == ["corrupt"]
    assert codes(check(put("t.parquet", data[:-4] + b"PARE"))) == ["encrypted"]
    assert codes(check(put("m.h5", forge.hdf5()))) == ["unknown_type"]
    assert codes(check(put("m.h5", forge.hdf5(4096)))) == ["unknown_type", "truncated"]
