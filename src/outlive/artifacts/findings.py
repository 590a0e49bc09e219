"""What a check says, and how the readers of containers say it."""

import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional, Tuple

from outlive.wire.values import REFUTING, Value

CODES = {
    "corrupt": "the bytes contradict themselves",
    "truncated": "the end is missing",
    "empty": "no bytes at all",
    "nonfinite": "a float tensor holds NaN or infinity",
    "pickle_globals": "a pickle names code outside the allow-list; it was not and must not be loaded",
    "bad_lines": "some lines or rows are broken, as an interrupted append leaves them",
    "unknown_type": "nothing here can check this type further",
    "unreadable": "the system refused to read it",
    "encrypted": "the content is encrypted",
    "over_budget": "checking further would have read or unpacked more than allowed",
}
"""Finding codes and what each says. Those in ``wire.values.REFUTING`` refute, the others only lower the level."""

DEFAULT_BUDGET_BYTES = 64 << 30
"""Bytes that one check may unpack: more than any single checkpoint shard, less than a bomb."""

PARSE_IN_C, PARSE_IN_PYTHON, CRC_IN_PYTHON = 4, 32, 32
"""What a byte costs of the budget, in unpacked bytes: by measured speed of json/csv, of opcode walks, of crc32c."""

MAX_FINDINGS = 20


@dataclass(frozen=True)
class Check(Value):
    """How far a file's content was checked, and what was found."""

    level: str
    """The strongest level that the content passed: none, bytes, structure or tensors."""
    kind: str
    """Container type: torch-zip, safetensors, npz, json ... or unknown."""
    findings: Tuple[Dict[str, str], ...] = ()
    """``{"code": one of CODES, "text": sentence}``."""

    @property
    def ok(self) -> bool:
        """False when the content was refuted: corrupt, truncated, empty or non-finite."""
        return not any(f["code"] in REFUTING for f in self.findings)

    @classmethod
    def from_wire(cls, data: Dict[str, Any]) -> "Check":
        return cls(data["level"], data["kind"], tuple(dict(f) for f in data.get("findings") or ()))


class Bad(Exception):
    """Raised by a reader to end its check with one finding."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Checksum(NamedTuple):
    """A stretch of the file whose crc32 is known."""

    offset: int
    nbytes: int
    crc32: int
    name: str


class Values(NamedTuple):
    """A stretch of the file that holds the values of a float tensor."""

    offset: int
    nbytes: int
    form: str
    """Key of ``tensors.FORMS``."""
    little: bool
    name: str


class Source(NamedTuple):
    """An open file under check."""

    f: BinaryIO
    size: int
    name: str
    """Base name, for the extension."""

    def at(self, offset: int, nbytes: int) -> bytes:
        """Return exactly ``nbytes`` bytes from ``offset``; raises ``Bad`` (truncated) when the file ends before.

        Reads past the buffer of ``f`` and leaves its position alone: headers are small and far apart.
        """
        if offset < 0:
            raise Bad("corrupt", "points before the start of the file")
        data = os.pread(self.f.fileno(), nbytes, min(offset, self.size))
        if len(data) < nbytes:
            raise Bad("truncated", "ends at byte %d, %d more were expected" % (self.size, nbytes - len(data)))
        return data


class Layout:
    """What a reader learnt of a file: findings so far, and stretches still to be read in the one pass over it."""

    def __init__(self, kind: str, level: str, budget_bytes: Optional[int] = None) -> None:
        self.kind = kind
        self.want_tensors = level == "tensors"
        self.level = "tensors" if self.want_tensors else "structure"
        self.findings: List[Dict[str, str]] = []
        self.unlisted = 0
        self.checksums: List[Checksum] = []
        self.values: List[Values] = []
        self._left = DEFAULT_BUDGET_BYTES if budget_bytes is None else budget_bytes

    def find(self, code: str, text: str, level: str = "bytes") -> None:
        """Note a finding; the level reached is at most ``level`` from now on."""
        self.cap(level)
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append({"code": code, "text": text})
        else:
            self.unlisted += 1

    def cap(self, level: str) -> None:
        """Say that no more than ``level`` can be reached."""
        order = ("bytes", "structure", "tensors")
        if order.index(level) < order.index(self.level):
            self.level = level

    def spend(self, nbytes: int, weight: int = 1) -> None:
        """Take from the budget; raises ``Bad`` (over_budget) when it is used up."""
        self._left -= nbytes * weight
        if self._left < 0:
            raise Bad("over_budget", "too large to check whole within the budget given")

    @property
    def ok(self) -> bool:
        """False once something refuting was found."""
        return not any(f["code"] in REFUTING for f in self.findings)
