"""The model's weights as one safetensors file that any reader of that format loads; what it cannot hold stays apart.

Tied weights are stored once, under their first name: the format knows no two names for the same bytes. The others
are listed in the file's ``__metadata__`` and in the state, and come back tied.
"""

from typing import Any, Dict, Tuple

import torch

from outlive.checkpoints import safetensors_format
from outlive.checkpoints.errors import Damaged
from outlive.checkpoints.torch.torch_zip import pieces

NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""torch dtype -> its name in the format."""


def divide(model: Any) -> Tuple[Dict[str, torch.Tensor], Any]:
    """Return (tensors for the safetensors file, the rest as the state keeps it).

    ``model`` is a state dict of CPU tensors, or a list or dict of several; names of several begin with their place.
    """
    tensors: Dict[str, torch.Tensor] = {}
    first: Dict[Tuple[Any, ...], str] = {}
    prefix = "" if is_one(model) else "%s."

    def one(state: Dict[str, Any], place: str) -> Dict[str, Any]:
        rest: Dict[str, Any] = {"in_file": [], "tied": {}, "here": {}}
        for key, value in state.items():
            name = (prefix % place if prefix else "") + str(key)
            if not fits(value):
                rest["here"][key] = value
                continue
            identity = (value.data_ptr(), value.numel(), tuple(value.shape), value.dtype)
            if value.numel() and identity in first:
                rest["tied"][key] = first[identity]
                continue
            first[identity] = name
            tensors[name] = value
            rest["in_file"].append([key, name])
        rest["order"] = list(state)
        return rest

    if is_one(model):
        return tensors, one(model, "")
    if isinstance(model, list):
        return tensors, [one(state, str(i)) for i, state in enumerate(model)]
    return tensors, {key: one(state, key) for key, state in model.items()}


def join(rest: Any, tensors: Dict[str, torch.Tensor]) -> Any:
    """Undo ``divide``."""
    if isinstance(rest, list):
        return [join(one, tensors) for one in rest]
    if "in_file" not in rest:
        return {key: join(one, tensors) for key, one in rest.items()}
    found = dict(rest["here"])
    found.update((key, tensors[name]) for key, name in rest["in_file"])
    found.update((key, tensors[name]) for key, name in rest["tied"].items())
    return {key: found[key] for key in rest["order"]}


def is_one(model: Any) -> bool:
    """Whether this is one state dict, not a list or dict of several."""
    return isinstance(model, dict) and not (model and all(isinstance(v, dict) for v in model.values()))


def fits(value: Any) -> bool:
    """Whether the format can hold this value."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not value.is_quantized
        and dtype_name(value.dtype) in NAMES
    )


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


def write(file: Any, tensors: Dict[str, torch.Tensor], metadata: Dict[str, str]) -> None:
    """Write contiguous CPU tensors to ``file``, which only needs ``write``, in pieces."""
    rows = [(name, NAMES[dtype_name(t.dtype)], list(t.shape)) for name, t in tensors.items()]
    head, order = safetensors_format.encode_header(rows, metadata)
    file.write(head)
    for name in order:
        for piece in pieces(tensors[name]):
            file.write(piece)


def read(path: str) -> Dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file, on the CPU, in memory of their own. Raises Damaged, OSError."""
    types = {short: getattr(torch, long) for long, short in NAMES.items() if hasattr(torch, long)}
    known = safetensors_format.header(path)
    found: Dict[str, torch.Tensor] = {}
    with open(path, "rb", buffering=0) as file:
        for name, one in sorted(known.tensors.items(), key=lambda pair: pair[1].start):
            if one.dtype not in types:
                raise Damaged(path, "%s is %s, which this torch does not have" % (name, one.dtype))
            tensor = torch.empty(one.shape, dtype=types[one.dtype])
            file.seek(one.start)
            for piece in pieces(tensor):
                _fill(file, piece, path)
            found[name] = tensor
    return found


def _fill(file: Any, piece: memoryview, path: str) -> None:
    done = 0
    while done < len(piece):
        got = file.readinto(piece[done:])
        if not got:
            raise Damaged(path, "it ends too early")
        done += got
