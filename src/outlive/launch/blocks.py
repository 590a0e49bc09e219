"""Which class is one block of a model: what full sharding and recompute are done by."""

from __future__ import annotations

import json
from pathlib import Path

TABLE = Path(__file__).with_name("blocks.json")


def block_class(model: str) -> str:
    """Return the class of a model named like ``meta-llama/Llama-3-8B``; "" where it is not known."""
    blocks: dict[str, str] = json.loads(TABLE.read_text("utf-8"))["blocks"]
    name = model.rsplit("/", 1)[-1].lower()
    matches = [known for known in blocks if name.startswith(known)]
    return blocks[max(matches, key=len)] if matches else ""
