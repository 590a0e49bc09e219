"""Laws of artifacts: what is found again, what is never claimed, what agrees with the libraries that write files."""

import importlib.util
import io
import json
import math
import pathlib
import pickle
import struct
import tempfile

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlive.artifacts.findings import CODES, Bad
from outlive.artifacts.formats.json_texts import Scanner
from outlive.artifacts.manifest import Roster, infer, relative_path, stamps
from outlive.artifacts.structure import check, prove
from outlive.artifacts.tensors import ValueScan
from outlive.wire.values import Entry

_path = pathlib.Path(__file__).parents[1] / "unit" / "artifacts" / "forge.py"
_spec = importlib.util.spec_from_file_location("forge", _path)
assert _spec and _spec.loader
forge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(forge)

WHOLE = sorted(forge.every_kind().items())

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=200, deadline=None)


_folder = tempfile.TemporaryDirectory()  # removed with the process: a fixture would be shared by all examples anyway


def on_disk(name, data):
    path = pathlib.Path(_folder.name) / name
    path.write_bytes(data)
    return str(path)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(WHOLE), st.data())
def test_damage_is_a_finding_never_an_error(whole, data):
    name, (_kind, raw) = whole
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(0, 6))):
        damaged[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    proof = prove(on_disk(name, bytes(damaged[:cut])), "tensors", budget_bytes=1 << 22)
    assert {f["code"] for f in proof.findings} <= set(CODES)
    assert proof.level in ("bytes", "structure", "tensors")
    assert not any("gave up" in f["text"] for f in proof.findings), proof


@few
@given(st.binary(max_size=400), st.sampled_from([name for name, _ in WHOLE] + ["x.pkl", "x.dat"]))
def test_junk_under_any_name_is_survived(junk, name):
    proof = prove(on_disk(name, junk), "tensors", budget_bytes=1 << 22)
    assert not any("gave up" in f["text"] for f in proof.findings), proof


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.frozensets(st.text())
    ),
    max_leaves=25,
)


@many
@given(plain, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_pickles_of_plain_values_are_whole_at_any_protocol(value, protocol):
    raw = pickle.dumps(value, protocol)
    assert check(on_disk("a.pkl", raw)).findings == ()
    assert not check(on_disk("a.pkl", raw[:-1])).ok


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=25,
)


@many
@given(json_values, st.integers(1, 9), st.booleans())
def test_json_scanner_accepts_what_json_writes_in_any_pieces(value, piece, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    scanner = Scanner()
    for at in range(0, len(text), piece):
        scanner.feed(text[at : at + piece])
    scanner.feed("", last=True)


@many
@given(st.text(alphabet='{}[],:"\\ 01-.eEtrufalsn\n', max_size=20))
def test_json_scanner_agrees_with_the_parser(text):
    try:
        json.loads(text)
        parses = True
    except ValueError:
        parses = False
    scanner = Scanner()
    try:
        scanner.feed(text)
        scanner.feed("", last=True)
        accepted = True
    except Bad:
        accepted = False
    # The scanner does not look at escapes; the parser does, and small texts go through the parser.
    assert accepted == parses or ("\\" in text and accepted)


@many
@given(
    st.sampled_from([("f32", "f"), ("f64", "d"), ("f16", "e")]),
    st.lists(st.floats(width=16, allow_subnormal=False)),
    st.booleans(),
)
def test_value_scan_counts_what_math_counts(form, values, little):
    scan = ValueScan("w", form[0], little)
    scan.feed(struct.pack(f"{'<' if little else '>'}{len(values)}{form[1]}", *values))
    assert scan.nan == sum(math.isnan(v) for v in values)
    assert scan.infinite == sum(math.isinf(v) for v in values)
    only_mask = all(v == -math.inf or (v == 0 and math.copysign(1, v) > 0) for v in values)
    assert (scan.sentence() == "") == (all(map(math.isfinite, values)) or only_mask)


DTYPES = ["f2", "f4", "f8", "c8", "c16", "i1", "i4", "u8", "?", "S5", "U3", "M8[ns]", ">f4", ">i2", "V7"]


@few
@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=3), st.booleans(), st.booleans())
def test_arrays_by_numpy_are_whole(dtype, shape, fortran, packed):
    array = np.zeros(shape, dtype, order="F" if fortran else "C")
    held = io.BytesIO()
    np.save(held, array)
    assert check(on_disk("x.npy", held.getvalue()), "tensors").findings == ()
    assert array.nbytes == 0 or not check(on_disk("x.npy", held.getvalue()[:-1])).ok
    held = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(held, a=array, b=array)
    result = check(on_disk("x.npz", held.getvalue()), "tensors")
    assert (result.level, result.findings) == ("tensors", ())


def test_pickled_numpy_and_generator_states_are_allowed():
    state = {
        "rng": np.random.RandomState(1).get_state(),
        "a": np.arange(5.0),
        "scalar": np.float32(2),
        "masked": np.array([True, False]),
        "dtype": np.dtype("f4"),
    }
    for protocol in range(6):
        result = check(on_disk("state.pkl", pickle.dumps(state, protocol)))
        assert (result.level, result.findings) == ("structure", ()), (protocol, result)
    objects = np.array([{"a": 1}, None], dtype=object)
    held = io.BytesIO()
    np.save(held, objects)
    assert check(on_disk("o.npy", held.getvalue())).level == "structure"


names = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=6).filter(lambda n: n not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@many
@given(st.sets(paths, max_size=8))
def test_every_file_is_found_by_its_name_its_folder_and_all(files):
    entries = [Entry(p, 1) for p in sorted(files)]
    for entry in entries:
        matched, missing = Roster((entry.path,)).match(entries)
        assert entry in matched and not missing
        top = entry.path.split("/")[0]
        assert entry in Roster((top,)).match(entries)[0]
    assert Roster(("**",)).match(entries)[0] == entries


@many
@given(st.text(max_size=12))
def test_a_relative_path_stays_below_or_is_refused(text):
    try:
        path = relative_path(text)
    except ValueError:
        return
    assert relative_path(path) == path
    assert not path.startswith("/") and ".." not in path.split("/")


stamped = st.dictionaries(paths, st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)


@many
@given(stamped, stamped)
def test_infer_is_exactly_the_difference(before, after):
    entries = [Entry(p, size, mtime_ns=t) for p, (size, t) in sorted(after.items())]
    changed = {e.path for e in infer(before, entries)}
    assert changed == {p for p in after if before.get(p) != after[p]}
    assert infer(stamps(entries), entries) == []
