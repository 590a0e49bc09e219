"""The random number generators of a training process, as tensors and numbers.

NumPy is only looked at when the program imported it: what was never used has no state worth an import.
"""

import random
import sys
from typing import Any, Dict, List

import torch


def capture() -> Dict[str, Any]:
    """Return the state of Python's, NumPy's, torch's and every CUDA device's generator."""
    version, words, gauss = random.getstate()
    state: Dict[str, Any] = {
        "python": {"version": version, "words": torch.tensor(words, dtype=torch.int64), "gauss": gauss},
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = list(torch.cuda.get_rng_state_all())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        if name == "MT19937":
            state["numpy"] = {
                "keys": torch.tensor(keys.tolist(), dtype=torch.int64),
                "position": int(position),
                "has_gauss": int(has_gauss),
                "cached": float(cached),
            }
    return state


def restore(state: Dict[str, Any]) -> List[str]:
    """Set the generators; return a sentence for each that could not be set."""
    said: List[str] = []
    python = state.get("python")
    if python:
        random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    if "torch" in state:
        torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state:
        devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for device, one in enumerate(state["cuda"][:devices]):
            torch.cuda.set_rng_state(one.cpu(), device)
        if devices != len(state["cuda"]):
            said.append("random numbers of %d CUDA devices were saved, %d are here" % (len(state["cuda"]), devices))
    if "numpy" in state:
        import numpy

        saved = state["numpy"]
        keys = numpy.array(saved["keys"].tolist(), dtype=numpy.uint32)
        numpy.random.set_state(("MT19937", keys, saved["position"], saved["has_gauss"], saved["cached"]))
    return said
