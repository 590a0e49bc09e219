"""Packs what the work may import into ``train-<digest>.zip``: `outlive.checkpoints` and what it stands on.

On a box nothing has to be installed for it: the supervisor puts the archive at the end of the work's PYTHONPATH.
"""

from __future__ import annotations

import functools
from importlib import resources

from outlive.transport.pack import archive_of, collect

PACKAGES = ("artifacts", "checkpoints", "probes", "wire")

INIT = b"from pkgutil import extend_path\n\n__path__ = extend_path(__path__, __name__)\n"
"""Where outlive is installed as well, its other packages stay importable."""


@functools.cache
def train_zip() -> tuple[str, bytes]:
    """Return (digest, bytes) of the archive for the work."""
    files: dict[str, bytes] = {"outlive/__init__.py": INIT}
    top = resources.files("outlive")
    for package in PACKAGES:
        collect(top / package, "outlive/" + package, files)
    return archive_of(files)
