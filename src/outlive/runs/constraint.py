"""What a job asks of a GPU (``A100:1``, ``A100|H100:8``, ``40GB+``, ``2``), held against what a box has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from outlive import errors


@dataclass(frozen=True)
class Gpu:
    """One GPU of a box as far as it is known."""

    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Constraint:
    """``names``: any of them, empty for any GPU; ``count`` at least; ``memory_bytes`` at least, on each."""

    names: tuple[str, ...] = ()
    count: int = 1
    memory_bytes: int = 0

    def missing(self, gpus: Sequence[Gpu]) -> str:
        """Return what the box lacks, or an empty string. Memory that is not known does not fail."""
        fitting = [gpu for gpu in gpus if self._fits(gpu)]
        if len(fitting) >= self.count:
            return ""
        wanted = f"{self.count} x {' or '.join(self.names) or 'GPU'}"
        if self.memory_bytes:
            wanted += f" with {self.memory_bytes / 1e9:g} GB or more"
        have = ", ".join(gpu.name for gpu in gpus) or "no GPU"
        return f"the job asks for {wanted}; the box has {have}"

    def _fits(self, gpu: Gpu) -> bool:
        squeezed = re.sub(r"[^a-z0-9]", "", gpu.name.lower())
        named = not self.names or any(re.sub(r"[^a-z0-9]", "", name.lower()) in squeezed for name in self.names)
        # a card sold as 40 GB shows a little less
        roomy = gpu.memory_bytes is None or gpu.memory_bytes >= 0.93 * self.memory_bytes
        return named and roomy


def parse(text: str) -> Constraint:
    """Return the constraint of ``resources.gpu``. An empty text asks for nothing (count 0). Raises UsageError."""
    names: tuple[str, ...] = ()
    count, memory = (1, 0) if text.strip() else (0, 0)
    for part in filter(None, (p.strip() for p in text.split(","))):
        size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|GiB)\s*\+", part, re.I)
        if size:
            memory = int(float(size[1]) * (2**30 if size[2].lower() == "gib" else 1e9))
            continue
        if part.isdigit():
            count = int(part)
            continue
        match = re.fullmatch(r"([A-Za-z0-9 ._-]+(?:\|[A-Za-z0-9 ._-]+)*)(?::(\d+))?", part)
        if not match:
            raise errors.UsageError(
                f"resources.gpu = {text!r} is not understood; write A100:1, A100|H100:8, 40GB+ or 2",
                safe="Nothing was pushed or started.",
            )
        names = tuple(name.strip() for name in match[1].split("|"))
        count = int(match[2] or 1)
    return Constraint(names, count, memory)
