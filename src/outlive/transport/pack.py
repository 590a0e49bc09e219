"""Packs the travelling code into ``supervisor-<digest>.pyz``.

The archive is the same for the same sources, byte for byte, so its digest is its version. What nobody reads on a box
stays at home (`outlive.transport.lean`). The sources are one block, compressed as a whole, which
`outlive.onbox.boot` reads.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import json
import zipfile
import zlib
from importlib import resources
from importlib.resources.abc import Traversable

from outlive.onbox.boot import BLOCK, module_of
from outlive.transport.lean import lean

PACKAGES = ("artifacts", "checkpoints", "diagnose", "onbox", "probes", "wire")
CHECKPOINTS = ("__init__", "errors", "readback", "record")
TRAIN = "outlive/onbox/train.json"
"""Names the archive for the work that goes with this program: who installs the one installs the other first."""

BOOT = "outlive/onbox/boot.py"
FIRST = ("outlive.onbox.__main__", "outlive.onbox.calls", "outlive.onbox.supervisor")
"""What is started, the most frequent first: its imports lie in front in the block."""


@functools.cache
def supervisor_pyz() -> tuple[str, bytes]:
    """Return (digest, bytes) of the program for the box."""
    files: dict[str, bytes] = {"outlive/__init__.py": b""}
    top = resources.files("outlive")
    for package in PACKAGES:
        collect(top / package, "outlive/" + package, files)
    files = {name: data for name, data in files.items() if name not in _of_the_work(files)}
    from outlive.transport.pack_train import train_zip

    files[TRAIN] = json.dumps({"digest": train_zip()[0]}).encode("ascii")
    sources = {name: data for name, data in files.items() if name.endswith(".py")}
    packed = {name: data for name, data in files.items() if name not in sources}
    packed["__main__.py"] = sources.pop(BOOT)
    packed[BLOCK] = block_of(sources)
    return archive_of(packed)


def block_of(sources: dict[str, bytes]) -> bytes:
    """Return the sources as `outlive.onbox.boot.unpacked` reads them."""
    names = {module_of(path): path for path in sorted(sources)}
    order: dict[str, None] = {}
    for name in (*FIRST, *names):
        _in_order(name, names, sources, order)
    head = " ".join(f"{path} {len(sources[path])}" for path in order)
    flow = zlib.compressobj(9, zlib.DEFLATED, 15, 9)
    return flow.compress(b"".join([head.encode("ascii"), b"\n", *map(sources.__getitem__, order)])) + flow.flush()


def _in_order(name: str, names: dict[str, str], sources: dict[str, bytes], order: dict[str, None]) -> None:
    """Add a module's file to ``order``, after its package and before what it imports at once."""
    path = names.get(name)
    if path is None or path in order:
        return
    _in_order(name.rpartition(".")[0], names, sources, order)
    order[path] = None
    for node in ast.parse(sources[path]).body:
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".")[: -node.level + (path.endswith("/__init__.py")) or None] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            found = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for other in found:
            _in_order(other, names, sources, order)


def _of_the_work(files: dict[str, bytes]) -> set[str]:
    """Return what of `checkpoints` only the work needs: the supervisor reads records and leaves the rest alone."""
    ours = {f"outlive/checkpoints/{name}.py" for name in CHECKPOINTS}
    return {name for name in files if name.startswith("outlive/checkpoints/")} - ours


def archive_of(files: dict[str, bytes]) -> tuple[str, bytes]:
    """Return (digest, bytes) of an archive of ``files``, the same for the same ones."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_STORED if name == BLOCK else zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, files[name])
    data = out.getvalue()
    return hashlib.sha256(data).hexdigest()[:16], data


def collect(folder: Traversable, name: str, files: dict[str, bytes]) -> None:
    """Add a package's files, without documentation, to ``files``."""
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            collect(item, f"{name}/{item.name}", files)
        elif item.name.endswith(".py"):
            files[f"{name}/{item.name}"] = lean(item.read_text("utf-8")).encode("utf-8")
        elif item.name.endswith((".sh", ".json")):
            files[f"{name}/{item.name}"] = item.read_bytes()
