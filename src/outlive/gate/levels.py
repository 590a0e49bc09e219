"""Which level of proof is asked of which file."""

from outlive.wire.values import LEVELS, Proof, level_at_least

TENSOR_KINDS = frozenset({"torch-zip", "torch-legacy", "safetensors", "npz", "npy"})
"""Containers whose values can be scanned, so that best and latest are asked for ``tensors``."""

BYTES_ONLY_KINDS = frozenset({"unknown", "hdf5"})
"""Nothing that the standard library could parse. A kind in neither set is asked for ``structure``: a new kind is
strict by itself. (A test compares both sets with what ``artifacts`` can check.)"""

PICKLE_GLOBALS = "pickle_globals"
"""A pickle that names globals outside the list: counts as ``bytes``, is never loaded, is not red."""


def asked_level(kind: str, best_or_latest: bool) -> str:
    """Return the level that a file of this kind must reach."""
    if kind in BYTES_ONLY_KINDS:
        return "bytes"
    return "tensors" if best_or_latest and kind in TENSOR_KINDS else "structure"


def asked_of(proof: Proof, best_or_latest: bool) -> str:
    """Return the level asked of these bytes, with what the proof itself found taken into account."""
    if any(f.get("code") == PICKLE_GLOBALS for f in proof.findings):
        return "bytes"
    return asked_level(proof.kind, best_or_latest)


def reached(proof: Proof, level: str) -> bool:
    """Return whether the proof reaches ``level``. A level word that we do not know reaches nothing."""
    return proof.level in LEVELS and level_at_least(proof.level, level)


def strongest(proofs: tuple[Proof, ...], sha256: str) -> Proof | None:
    """Return the proof that counts for a digest: a refutation over everything, else the highest level."""
    about = [p for p in proofs if sha256 and p.sha256 == sha256]
    refuting = [p for p in about if not p.ok]
    if refuting:
        return refuting[0]
    return max(about, key=lambda p: LEVELS.index(p.level) if p.level in LEVELS else -1, default=None)
