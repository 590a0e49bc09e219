"""Checks of every kind: whole files reach their level, damaged ones are refuted, hostile ones run nothing."""

import gzip
import hashlib
import os
import pickle
import random
import struct
import zipfile

import pytest

from outlive.artifacts.digest import Changed
from outlive.artifacts.findings import CODES, Check
from outlive.artifacts.kinds import HIGHEST
from outlive.artifacts.structure import INSPECTORS, check, highest_level, prove
from outlive.wire.values import LEVELS, REFUTING, Proof


def codes(result):
    return [f["code"] for f in result.findings]


def test_every_kind_has_an_inspector_and_a_level():
    assert set(INSPECTORS) == set(HIGHEST) - {"unknown"}
    assert set(HIGHEST.values()) <= set(LEVELS)
    assert highest_level("torch-zip") == "tensors"
    assert highest_level("never heard of") == "bytes"
    assert set(CODES) >= REFUTING


def test_whole_files_reach_the_highest_level_of_their_kind(forge, put):
    for name, (kind, data) in forge.every_kind().items():
        path = put(name, data)
        proof = prove(path, "tensors")
        want = "structure" if name == "packed.pt" else highest_level(kind)
        assert (proof.kind, proof.level, proof.ok) == (kind, want, True), (name, proof)
        assert proof.sha256 == hashlib.sha256(data).hexdigest() and proof.bytes == len(data)
        assert check(path, "structure").level == min("structure", want, key=LEVELS.index)
        assert prove(path, "bytes").level == "bytes"


def test_content_decides_before_the_name(forge, put):
    for name, (kind, data) in forge.every_kind().items():
        if kind not in ("yaml", "text", "log", "csv", "tsv", "json", "jsonl"):
            assert check(put("renamed.dat", data)).kind == kind, name


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_cut_files_are_refuted(forge, put, keep):
    for name, (kind, data) in forge.every_kind().items():
        if kind in ("yaml", "text", "log", "csv", "tsv"):
            continue  # a shorter text is a text
        if name == "a.tar" and keep > 0.9:
            continue  # only padding is lost
        result = check(put(name, data[: int(len(data) * keep)]))
        if kind == "jsonl":
            assert codes(result) == ["truncated"]
        assert not result.ok and result.level == "bytes", (name, result)


def test_each_flipped_bit_of_a_checked_payload_is_seen(forge, put):
    rng = random.Random(7)
    payload = bytes(rng.getrandbits(8) for _ in range(4096))
    storage = {"w": ("0", "f4", 1024, 0, (1024,), (1,))}
    for name, data in (
        ("a.pt", forge.torch_zip(storage, {"0": payload})),
        ("a.npz", forge.npz({"x": forge.npy(payload, shape=(1024,))})),
        ("a.zip", forge.zipped({"x": payload}, zipfile.ZIP_STORED)),
        ("a.gz", gzip.compress(payload)),
        ("e.tfevents.1", forge.tfevents([payload])),
    ):
        at = (data.find(payload[:16]) if payload[:16] in data else 100) + rng.randrange(100, 1000)
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        for result in (check(put(name, bytes(damaged))), prove(put(name, bytes(damaged)), "tensors")):
            assert codes(result)[:1] == ["corrupt"] and result.level == "bytes", (name, result)


def test_random_damage_never_raises_and_never_lies_about_cut_ends(forge, put):
    rng = random.Random(20)
    for name, (_kind, data) in forge.every_kind().items():
        for _ in range(25):
            damaged = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 8))):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            if rng.random() < 0.4:
                del damaged[rng.randrange(len(damaged)) :]
            proof = prove(put(name, bytes(damaged)), "tensors", budget_bytes=1 << 22)
            assert proof.level in ("bytes", "structure", "tensors")
            assert set(codes(proof)) <= set(CODES)
            assert not any("gave up" in f["text"] for f in proof.findings), (name, proof)


def test_empty_files(put):
    assert codes(prove(put("m.pt", b""), "structure")) == ["empty"]
    assert codes(check(put("what", b""))) == ["empty"]
    assert not check(put("metrics.json", b"")).ok
    for name in ("run.log", "_SUCCESS", "__init__.py", "stage.done"):
        assert check(put(name, b"")) == Check("structure", "log" if name == "run.log" else "text")


def test_promised_container_that_is_something_else(put):
    page = b"<html><body>502 Bad Gateway</body></html>"
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    for name in (
        "m.pt",
        "m.pth",
        "m.safetensors",
        "x.npy",
        "x.npz",
        "p.png",
        "p.jpg",
        "a.gz",
        "a.zip",
        "t.parquet",
        "a.pkl",
    ):
        for junk in (page, pointer, b"\0" * 5000):
            result = check(put(name, junk))
            assert not result.ok, (name, junk[:10], result)
    raw = check(put("weights.bin", b"\0" * 5000))
    assert (raw.level, raw.kind, codes(raw), raw.ok) == ("bytes", "unknown", ["unknown_type"], True)


def test_unreadable(tmp_path, put):
    missing = prove(str(tmp_path / "nothing.pt"))
    assert (missing.level, missing.sha256, codes(missing)) == ("none", "", ["unreadable"])
    assert check(str(tmp_path)).level == "none"
    os.mkfifo(str(tmp_path / "pipe.log"))
    assert codes(check(str(tmp_path / "pipe.log"))) == ["unreadable"]


def test_level_must_be_one_we_can_reach(put):
    for level in ("none", "loaded", "thorough"):
        with pytest.raises(ValueError):
            check(put("a.txt", b"x"), level)


def test_file_that_grows_while_proved(forge, put):
    path = put("m.pt", forge.torch_zip())

    def grow(_):
        with open(path, "ab") as f:
            f.write(b"more")

    with pytest.raises(Changed):
        prove(path, "structure", on_bytes=grow)


def test_progress_counts_every_byte_once(forge, put):
    data = forge.torch_zip()
    seen = []
    prove(put("m.pt", data), "tensors", on_bytes=seen.append)
    assert sum(seen) == len(data)


def test_proof_goes_round_the_wire(forge, put):
    proof = prove(put("m.pt", forge.torch_zip()), "tensors", where="here", read_back="storage")
    assert Proof.from_wire(proof.to_wire()) == proof
    assert (proof.where, proof.read_back) == ("here", "storage")
    result = check(put("m.json", b"{"))
    assert Check.from_wire(result.to_wire()) == result


def test_many_findings_are_counted_not_listed(forge, put):
    tensors = {"t%03d" % n: ("F32", [1], struct.pack("<f", float("nan"))) for n in range(60)}
    proof = prove(put("m.safetensors", forge.safetensors(tensors)), "tensors")
    assert len(proof.findings) == 20 and "(and 40 more)" in proof.findings[-1]["text"]
    assert proof.level == "structure" and not proof.ok


def test_bombs_stay_within_the_budget(forge, put):
    zeros = b"\0" * (8 << 20)
    for name, data in (
        ("a.zip", forge.zipped({"z": zeros})),
        ("a.gz", gzip.compress(zeros)),
        ("a.npz", forge.npz({"z": forge.npy(zeros, "<f4", (2 << 20,))}, zipfile.ZIP_DEFLATED)),
        ("a.json", b"[" * 200000 + b"]" * 200000),
        ("a.jsonl", b"[" * 200000 + b"]" * 200000 + b"\n"),
        ("a.pkl", pickle.dumps(list(range(50000)))),
    ):
        path = put(name, data)
        small = check(path, "structure", budget_bytes=1 << 20)
        assert (small.level, codes(small)) == ("bytes", ["over_budget"]), (name, small)
        assert small.ok, "large is no damage"
        assert check(path).level == "structure", name


def test_entries_that_share_their_bytes_are_refused(forge, put):
    data = bytearray(forge.zipped({"a": b"x" * 100, "b": b"x" * 100}, zipfile.ZIP_STORED))
    second = data.rfind(b"PK\x01\x02")
    data[second + 42 : second + 46] = struct.pack("<I", 0)  # the directory's offset of the second entry
    assert codes(check(put("a.zip", bytes(data)))) == ["corrupt"]


def test_encrypted_zip(forge, put):
    data = bytearray(forge.zipped({"a": b"secret" * 10}))
    data[data.find(b"PK\x01\x02") + 8] |= 1
    result = check(put("a.zip", bytes(data)))
    assert (codes(result), result.level, result.ok) == (["encrypted"], "bytes", True)
