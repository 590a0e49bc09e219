"""Checkpoints of torch trainings: torch 2.0 or later, Python 3.8 or later.

``Checkpointer`` saves and resumes, ``ResumableLoader`` makes a DataLoader's place part of the state, ``load`` returns
what a checkpoint holds.
"""

from typing import Any, Dict

from outlive.checkpoints.errors import (
    CheckpointError,
    ConfigChanged,
    Damaged,
    DurableUnavailable,
    Locked,
    Mismatch,
    NoGoodCheckpoint,
    NoRoom,
)
from outlive.checkpoints.retention import Keep
from outlive.checkpoints.torch.checkpointer import Checkpointer
from outlive.checkpoints.torch.loader import ResumableLoader
from outlive.checkpoints.torch.plain import NotPlain


def load(path: str) -> Dict[str, Any]:
    """Return the state in a checkpoint directory (``step-...``), on the CPU, its weights under ``model``."""
    from outlive.checkpoints.torch import files

    return files.read(path)


__all__ = [
    "CheckpointError",
    "Checkpointer",
    "ConfigChanged",
    "Damaged",
    "DurableUnavailable",
    "Keep",
    "Locked",
    "Mismatch",
    "NoGoodCheckpoint",
    "NoRoom",
    "NotPlain",
    "ResumableLoader",
    "load",
]
