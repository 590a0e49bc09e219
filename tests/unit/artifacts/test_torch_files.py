"""Files by torch and safetensors themselves. The readers know these formats without either library."""

import collections
import os
import struct

import pytest

try:
    import safetensors.torch
    import torch
except ImportError as err:  # collected, then failed below: a missing library must not look like a pass
    torch, MISSING = None, str(err)

from outlive.artifacts.pickle_allow import ALLOWED, DTYPES, ITEM_BYTES, STORAGES
from outlive.artifacts.structure import check, prove

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _libraries():
    if torch is None:
        pytest.fail("%s; run: python -m pip install 'torch==2.13.0' 'safetensors>=0.4'" % MISSING)
    torch.manual_seed(0)


def codes(result):
    return [f["code"] for f in result.findings]


def training_state():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "rng": torch.get_rng_state(),
        "step": 3,
        "args": collections.OrderedDict(name="模型"),
    }


@pytest.mark.parametrize("zipped", [True, False])
def test_training_state_is_proved_to_its_values(tmp_path, zipped):
    path = str(tmp_path / "ckpt.pt")
    torch.save(training_state(), path, _use_new_zipfile_serialization=zipped)
    proof = prove(path, "tensors")
    assert (proof.level, proof.kind) == ("tensors", "torch-zip" if zipped else "torch-legacy")
    assert proof.findings == ()


@pytest.mark.parametrize("zipped", [True, False])
def test_nan_in_an_optimizer_state_is_named(tmp_path, zipped):
    state = training_state()
    state["optimizer"]["state"][2]["exp_avg_sq"].view(-1)[5] = float("nan")
    path = str(tmp_path / "ckpt.pt")
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    proof = prove(path, "tensors")
    assert codes(proof) == ["nonfinite"] and not proof.ok
    assert "'optimizer.state.2.exp_avg_sq': 1 NaN of 16 values" in proof.findings[0]["text"]


def test_every_dtype_that_torch_saves(tmp_path):
    skipped = set()
    for name, element in DTYPES.items():
        dtype = getattr(torch, name, None)
        if dtype is None:
            skipped.add(name)
            continue
        path = str(tmp_path / (name + ".pt"))
        raw = torch.arange(1, 33, dtype=torch.uint8) % 2
        torch.save({"t": raw.view(dtype) if dtype != torch.bool else raw.bool()}, path)
        proof = prove(path, "tensors")
        assert (proof.level, proof.findings) == ("tensors", ()), (name, proof)
        assert ITEM_BYTES[element] == dtype.itemsize, name
    assert not skipped


@pytest.mark.parametrize(
    "name", ["float64", "float32", "float16", "bfloat16", "complex64", "float8_e5m2", "float8_e4m3fn"]
)
def test_nan_in_every_float(tmp_path, name):
    values = torch.ones(40, dtype=torch.float32)
    values[7] = float("nan")
    path = str(tmp_path / "x.pt")
    torch.save([values.to(getattr(torch, name))], path)
    assert "1 NaN" in prove(path, "tensors").findings[0]["text"]
    safe = str(tmp_path / "x.safetensors")
    safetensors.torch.save_file({"v": values.to(getattr(torch, name))}, safe)
    assert "'v': 1 NaN" in prove(safe, "tensors").findings[0]["text"]


def test_views_subclasses_and_odd_tensors(tmp_path):
    base = torch.randn(10, 10)
    whole = {
        "view": base[2:4, ::3],
        "transposed": base.t(),
        "tied": base,
        "scalar": torch.tensor(1.5),
        "none": torch.empty(0, 4),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "expanded": torch.ones(1).expand(1000),
        "sparse": torch.eye(4).to_sparse(),
        "meta": torch.empty(3, device="meta"),
        "quantized": torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
        "mask": torch.full((4, 4), float("-inf")).triu(1),
        "size": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        "dtype": torch.float32,
    }
    for zipped in (True, False):
        path = str(tmp_path / "odd.pt")
        items = whole if zipped else {k: v for k, v in whole.items() if k not in ("meta",)}
        torch.save(items, path, _use_new_zipfile_serialization=zipped)
        proof = prove(path, "tensors")
        assert (proof.level, proof.findings) == ("tensors", ()), proof


def test_whole_modules_name_their_code(tmp_path):
    path = str(tmp_path / "module.pt")
    torch.save(torch.nn.Linear(2, 2), path)
    proof = prove(path, "tensors")
    assert (proof.level, codes(proof), proof.ok) == ("bytes", ["pickle_globals"], True)
    assert "torch.nn.modules.linear.Linear" in proof.findings[0]["text"]


def test_scripted_module(tmp_path):
    path = str(tmp_path / "script.pt")
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)), path)
    proof = prove(path, "tensors")
    assert (proof.kind, proof.ok) == ("torch-zip", True), proof
    assert proof.level in ("structure", "tensors"), proof


def test_allow_list_covers_what_torch_itself_loads_weights_only():
    from torch._weights_only_unpickler import _get_allowed_globals

    assert set(_get_allowed_globals()) - ALLOWED == set()


def test_storage_classes_and_sizes():
    for name, element in STORAGES.items():
        assert hasattr(torch, name) or name == "UntypedStorage", name
        assert element in ITEM_BYTES


def test_file_cut_by_a_kill_in_the_middle_of_a_save(tmp_path):
    path = str(tmp_path / "ckpt.pt")
    torch.save({"w": torch.randn(300, 300)}, path)
    size = os.path.getsize(path)
    for keep in (0.1, 0.5, 0.99):
        with open(path, "rb") as f:
            head = f.read(int(size * keep))
        cut = tmp_path / "cut.pt"
        cut.write_bytes(head)
        assert codes(check(str(cut))) == ["truncated"]
        with pytest.raises((RuntimeError, OSError)):
            torch.load(str(cut), weights_only=True)


def test_agrees_with_torch_about_flipped_bits(tmp_path):
    """Whatever torch refuses to read we refuse, unless the flip is in bytes that only it looks at."""
    path = str(tmp_path / "ckpt.pt")
    torch.save({"w": torch.randn(16, 16)}, path)
    data = open(path, "rb").read()
    start = data.find(b"data.pkl")
    for at in range(start + 60, start + 200, 3):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        flipped = tmp_path / "flipped.pt"
        flipped.write_bytes(bytes(damaged))
        try:
            torch.load(str(flipped), weights_only=True)
            loads = True
        except Exception:
            loads = False
        assert loads or not check(str(flipped)).ok, at


def test_safetensors_file(tmp_path):
    path = str(tmp_path / "m.safetensors")
    tensors = {"a": torch.randn(3, 5), "b": torch.arange(4), "c": torch.ones(2, dtype=torch.bfloat16)}
    safetensors.torch.save_file(tensors, path, metadata={"step": "3"})
    assert prove(path, "tensors").findings == () and prove(path, "tensors").level == "tensors"
    data = open(path, "rb").read()
    (tmp_path / "cut.safetensors").write_bytes(data[:-4])
    assert codes(check(str(tmp_path / "cut.safetensors"))) == ["truncated"]
    (tmp_path / "long.safetensors").write_bytes(data + struct.pack("<f", 1))
    assert codes(check(str(tmp_path / "long.safetensors"))) == ["corrupt"]


def test_distributed_checkpoint(tmp_path):
    import torch.distributed.checkpoint as dcp

    dcp.save({"model": {"w": torch.randn(50, 50), "b": torch.ones(7)}, "step": 5}, checkpoint_id=str(tmp_path / "d"))
    shards = [p for p in (tmp_path / "d").iterdir() if p.suffix == ".distcp"]
    assert shards
    for shard in shards:
        proof = prove(str(shard), "tensors")
        assert (proof.kind, proof.level, proof.findings) == ("torch-zip", "tensors", ()), proof
    meta = prove(str(tmp_path / "d" / ".metadata"), "tensors")
    assert meta.ok and meta.kind == "pickle"


@pytest.mark.parametrize("length", [640, 896, 1152, 1408])
def test_a_safetensors_header_whose_length_begins_like_a_pickle(tmp_path, length):
    path = str(tmp_path / "model.safetensors")
    for padding in range(length):
        safetensors.torch.save_file({"w": torch.zeros(2)}, path, {"padding": "x" * padding})
        with open(path, "rb") as file:
            if struct.unpack("<Q", file.read(8))[0] == length:
                break
    proof = prove(path, "tensors")
    assert (proof.level, proof.kind, proof.findings) == ("tensors", "safetensors", ())
