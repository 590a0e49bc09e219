"""From what a person types (`H100:8`, `a100-80gb`, `4090`) to what is known about the accelerator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from outlive.errors import UnknownName, UsageError

COMPILED = Path(__file__).with_name("compiled")


class Gpu(NamedTuple):
    """What the planner knows about one kind of accelerator; units are in the names, rates are dense."""

    key: str
    name: str
    form: str
    memory_gb: float
    usable_gib: float
    bandwidth_gb_s: float
    fp32_tflops: float | None
    tf32_tflops: float | None
    fp16_tflops: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    nvlink_gb_s: float
    bridge: bool
    pcie_gen: int
    network_gb_s: float
    compute_capability: str | None
    bf16: bool
    flash_attention_2: bool
    tdp_w: int

    @property
    def usable_bytes(self) -> float:
        """What driver and framework report as total."""
        return self.usable_gib * 2**30


def table() -> dict[str, dict[str, Any]]:
    """Return the rows by key."""
    found: dict[str, dict[str, Any]] = json.loads((COMPILED / "gpus.json").read_bytes())
    return found


def by_name(name: str, rows: dict[str, dict[str, Any]] | None = None) -> Gpu:
    """Return the accelerator called ``name``: its key, an alias, or its printed name. Raises UnknownName."""
    rows = rows or table()
    wanted = _plain(name)
    for key, row in rows.items():
        if wanted in (_plain(key), _plain(row["name"])) or any(wanted == _plain(alias) for alias in row["aliases"]):
            return build(key, row)
    error = UnknownName.of("GPU", name, rows)
    raise UnknownName(error.what, name=name, candidates=rows, safe="Nothing was done.")


def build(key: str, row: dict[str, Any]) -> Gpu:
    """Return the Gpu of a row of the table."""
    fields = {field: row[field] for field in Gpu._fields if field != "key"}
    return Gpu(key=key, **fields)


def parse(text: str) -> tuple[str, int | None]:
    """Split ``H100:8`` into name and count; the count is None where none was written."""
    name, colon, count = text.partition(":")
    if not colon:
        return name, None
    if not count.isdigit() or int(count) < 1:
        raise UsageError(f"`{text}`: the count after `:` is a whole number from 1", safe="Nothing was done.")
    return name, int(count)


def _plain(name: str) -> str:
    plain = "".join(char for char in name.casefold() if char.isalnum())
    for word in ("nvidia", "geforce", "tesla"):
        plain = plain.replace(word, "")
    return plain
