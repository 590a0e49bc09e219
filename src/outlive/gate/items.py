"""One thing that stands in the way: what a person must see before giving it up."""

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Item:
    """A file, process or run, or a gap in the evidence (its path then stands in parentheses)."""

    path: str
    bytes: int | None = None
    age_s: float | None = None
    last_known_copy: str = ""
    why: str = ""
    unknown: bool = False
    """A gap in the evidence, not a known fault."""
    sha256: str = ""

    def identity(self) -> list[Any]:
        """Return what makes it this item: not its age, which moves, nor the words about it."""
        return [self.path, self.bytes, self.sha256, self.unknown]

    def to_wire(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
