"""Packs the travelling code into ``supervisor-<digest>.pyz``.

The archive is the same for the same sources, byte for byte, so its digest is its version.
"""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable

PACKAGES = ("artifacts", "diagnose", "onbox", "probes", "wire")
MAIN = b"import sys\nfrom outlive.onbox.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"


@functools.cache
def supervisor_pyz() -> tuple[str, bytes]:
    """Return (digest, bytes) of the program for the box."""
    files: dict[str, bytes] = {"__main__.py": MAIN, "outlive/__init__.py": b""}
    top = resources.files("outlive")
    for package in PACKAGES:
        _collect(top / package, "outlive/" + package, files)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, files[name])
    data = out.getvalue()
    return hashlib.sha256(data).hexdigest()[:16], data


def _collect(folder: Traversable, name: str, files: dict[str, bytes]) -> None:
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            _collect(item, f"{name}/{item.name}", files)
        elif item.name.endswith((".py", ".sh", ".json")):
            files[f"{name}/{item.name}"] = item.read_bytes()
