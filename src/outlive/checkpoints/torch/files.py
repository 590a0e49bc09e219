"""The two files of a checkpoint that is not sharded: ``model.safetensors`` and ``state.pt``."""

import os
from typing import Any, Dict

import torch

from outlive.checkpoints.commit import Writing
from outlive.checkpoints.errors import Damaged
from outlive.checkpoints.torch import torch_zip, weights

WEIGHTS = "model.safetensors"
STATE = "state.pt"


def write(writing: Writing, tree: Dict[str, Any], metadata: Dict[str, str]) -> None:
    """Write a captured state of CPU tensors. The weights go into the safetensors file, everything else beside it."""
    rest = dict(tree)
    tensors: Dict[str, torch.Tensor] = {}
    if isinstance(tree.get("model"), (dict, list)):
        tensors, rest["model"] = weights.divide(tree["model"])
    if tensors:
        with writing.open(WEIGHTS) as file:
            weights.write(file, tensors, dict(metadata, format="pt"))
    else:
        rest["model"] = tree.get("model")
    rest["divided"] = bool(tensors)
    with writing.open(STATE) as file:
        torch_zip.write(file, rest)


def read(directory: str) -> Dict[str, Any]:
    """Return the state that ``write`` was given, on the CPU. Raises Damaged when a file cannot be loaded.

    Nothing but plain types and tensors is built: the pickle is loaded with ``weights_only``.
    """
    path = os.path.join(directory, STATE)
    try:
        state: Dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if state.pop("divided", False):
            path = os.path.join(directory, WEIGHTS)
            state["model"] = weights.join(state["model"], weights.read(path))
        if state.get("model", 0) is None:
            del state["model"]
        return state
    except MemoryError:
        raise  # says nothing about the file
    except Exception as error:  # torch raises what its readers raise: RuntimeError, UnpicklingError, KeyError ...
        raise Damaged(path, "it cannot be loaded: %s" % (str(error).splitlines() or [type(error).__name__])[0])
