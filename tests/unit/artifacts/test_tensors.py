"""NaN and infinity in every float layout, found where they are and only there."""

import struct

import pytest

from outlive.artifacts.structure import prove
from outlive.artifacts.tensors import FORMS, ValueScan

NAN, INF = float("nan"), float("inf")


def test_counts_by_kind_of_value():
    for letter, form in (("d", "f64"), ("f", "f32"), ("e", "f16")):
        for order, little in (("<", True), (">", False)):
            scan = ValueScan("w", form, little)
            scan.feed(struct.pack(order + "6" + letter, 1, NAN, INF, -INF, -0.0, 2))
            scan.feed(struct.pack(order + "2" + letter, -NAN, 65000))
            assert (scan.nan, scan.infinite, scan.negative_infinite, scan.values) == (2, 2, 1, 8), form
            assert scan.sentence() == "tensor 'w': 2 NaN and 2 infinite of 8 values"


@pytest.mark.parametrize("form", sorted(FORMS))
def test_every_16_and_8_bit_pattern_against_the_definition(form):
    size = FORMS[form].itemsize
    masks = FORMS[form].exponent
    exponent = int.from_bytes(bytes(masks), "little")
    patterns = range(1 << 8 * min(size, 2))
    shift = 8 * (size - min(size, 2))
    block = b"".join((n << shift).to_bytes(size, "little") for n in patterns)
    scan = ValueScan("all", form)
    scan.feed(block)
    bad = [n << shift for n in patterns if (n << shift) & exponent == exponent]
    inf = [n for n in bad if not n & ~exponent & ((1 << 8 * size - 1) - 1)] if FORMS[form].has_inf else []
    assert (scan.nan, scan.infinite) == (len(bad) - len(inf), len(inf))


def test_largest_finite_values_pass():
    for letter, form, value in (("f", "f32", 3.4028234663852886e38), ("d", "f64", 1.7976931348623157e308)):
        scan = ValueScan("w", form)
        scan.feed(struct.pack("<2" + letter, value, -value))
        assert scan.sentence() == ""


def test_attention_masks_are_left_alone():
    mask = ValueScan("mask", "f32")
    mask.feed(b"\0" * 64)
    mask.feed(struct.pack("<4f", 0, -INF, -INF, 0))
    assert mask.is_mask and mask.sentence() == ""
    for spoiled in ((0, -INF, 1.0), (0, -INF, NAN), (0, INF), (NAN, 0)):
        scan = ValueScan("w", "f32")
        scan.feed(struct.pack("<%df" % len(spoiled), *spoiled))
        assert scan.sentence(), spoiled
    late = ValueScan("w", "f32")
    late.feed(struct.pack("<2f", 0, -INF))
    late.feed(struct.pack("<2f", 0, 1))
    assert late.sentence()


def _with_nan(forge):
    bad = forge.floats(1, NAN, 3, INF)
    yield "m.safetensors", forge.safetensors({"layer.w": ("F32", [4], bad)}), "'layer.w'"
    yield "m.pt", forge.torch_zip({"layer.w": ("0", "f4", 4, 0, (4,), (1,))}, {"0": bad}), "'layer.w'"
    yield "m.pth", forge.torch_legacy((1, NAN, 3, INF)), "'w'"
    yield "x.npy", forge.npy(bad), "'x.npy'"
    yield "x.npz", forge.npz({"arr": forge.npy(bad)}), "'arr'"
    yield "packed.npz", forge.npz({"arr": forge.npy(bad)}, 8), "'arr'"


def test_found_in_every_container_and_named(forge, put):
    for name, data, tensor in _with_nan(forge):
        proof = prove(put(name, data), "tensors")
        assert [f["code"] for f in proof.findings] == ["nonfinite"], (name, proof)
        assert tensor in proof.findings[0]["text"] and "1 NaN and 1 infinite of 4" in proof.findings[0]["text"]
        assert proof.level == "structure" and not proof.ok
        assert prove(put(name, data), "structure").ok, "structure does not look at values"


def test_values_beyond_one_block(forge, put):
    count = (3 << 20) // 4 + 5
    data = bytearray(forge.floats(*([1.0] * count)))
    data[-4:] = forge.floats(NAN)
    data[4 << 18 : (4 << 18) + 4] = forge.floats(INF)
    proof = prove(put("m.safetensors", forge.safetensors({"w": ("F32", [count], bytes(data))})), "tensors")
    assert "1 NaN and 1 infinite of %d" % count in proof.findings[0]["text"]


def test_integers_and_the_unused_rest_of_a_storage_are_not_values(forge, put):
    ones = b"\xff" * 32
    assert prove(put("m.safetensors", forge.safetensors({"i": ("I64", [4], ones)})), "tensors").level == "tensors"
    view = forge.torch_zip({"w": ("0", "f4", 4, 1, (2,), (1,))}, {"0": forge.floats(NAN, 1, 2, NAN)})
    assert prove(put("m.pt", view), "tensors").level == "tensors"


def test_tied_tensors_are_reported_once(forge, put):
    tensors = {"a": ("0", "f4", 4, 0, (4,), (1,)), "b": ("0", "f4", 4, 0, (2, 2), (2, 1))}
    proof = prove(put("m.pt", forge.torch_zip(tensors, {"0": forge.floats(1, NAN, 1, 1)})), "tensors")
    assert len(proof.findings) == 1
