"""What our writer writes, torch reads: every type, mapped or not; and the structure check agrees."""

import io

import pytest
import torch

from outlive.artifacts.structure import prove
from outlive.checkpoints.torch import torch_zip


class OnlyWrite:
    """A file that can do nothing else, as the digesting one."""

    def __init__(self):
        self.held = io.BytesIO()

    def write(self, data):
        self.held.write(data)


def bits(value):
    return value.view(torch.uint8) if value.numel() else value


@pytest.mark.parametrize("mapped", [False, True])
def test_it_comes_back_as_it_was(tmp_path, mapped):
    names = (
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
        "complex64",
    )
    names += ("float8_e4m3fn", "uint16")  # of later versions
    tensors = {n: torch.arange(1, 6).to(getattr(torch, n)) for n in names if hasattr(torch, n)}
    base = torch.arange(12.0).reshape(3, 4)
    value = {
        "tensors": tensors,
        "empty": torch.empty(0, 5),
        "scalar": torch.tensor(2.5),
        "part": base[1:],
        "turned": base.t(),
        "large": torch.randn(3000, 1000),  # more than one piece
        1: (None, True, -3, 1.5, "模型", [1, {"deep": ()}]),
    }
    out = OnlyWrite()
    torch_zip.write(out, value)
    path = tmp_path / "state.pt"
    path.write_bytes(out.held.getvalue())
    found = torch.load(path, weights_only=True, mmap=mapped)
    assert list(found) == list(value) and found[1] == value[1]
    for name, tensor in tensors.items():
        assert found["tensors"][name].dtype == tensor.dtype
        assert torch.equal(bits(found["tensors"][name]), bits(tensor))
    for name in ("empty", "scalar", "part", "turned", "large"):
        assert torch.equal(found[name], value[name]) and found[name].shape == value[name].shape
    assert found["part"].data_ptr() - found["turned"].data_ptr() == 16  # they still share their storage
    proof = prove(str(path), "tensors")
    assert (proof.level, proof.findings) == ("tensors", ())
