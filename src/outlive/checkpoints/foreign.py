"""Checkpoints of others: what kind one is, which step, and whether its files are whole. Nothing is loaded or executed.

Known: this package's own, torch .pt and .pth (zip and legacy), Lightning .ckpt, safetensors, Hugging Face folders (a
model, or a Trainer's checkpoint), torch.distributed.checkpoint folders and DeepSpeed folders.
"""

import json
import os
import pickletools
import re
import zipfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from outlive.artifacts.digest import Changed
from outlive.artifacts.structure import prove
from outlive.checkpoints.errors import CheckpointError, NewerFormat, UnknownFormat
from outlive.checkpoints.index import PREFIX
from outlive.checkpoints.record import INDEX, LOCK, RECORD, clean_metrics, read_record
from outlive.checkpoints.verify import Verdict, counts, verify_files
from outlive.wire.values import LEVELS

OWN = "outlive"
STEP = re.compile(r"(\d{1,12})(?!.*\d)")
NAMED_STEP = re.compile(r"(?:global_?step|step|iter|iteration|checkpoint)[=_-]?(\d{1,12})", re.I)
NAMED_METRIC = re.compile(r"([A-Za-z][A-Za-z0-9_./]*)=(-?\d+(?:\.\d+)?(?:[eE]-?\d+)?)")
TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".tar")
HF_WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json")
PICKLE_LIMIT_BYTES = 64 << 20


class Foreign(NamedTuple):
    """One checkpoint, whoever wrote it."""

    path: str
    kind: str
    """outlive, torch, lightning, safetensors, hf-model, hf-trainer, dcp, deepspeed."""
    step: Optional[int]
    bytes: int
    files: Tuple[str, ...]
    """Relative to ``path``; of a single file its own name."""
    time: float
    metrics: Dict[str, float]
    notes: Tuple[str, ...] = ()


def recognise(path: str) -> Foreign:
    """Return what lies at ``path``. Raises UnknownFormat, NewerFormat, and Damaged for one of our own."""
    try:
        if os.path.isdir(path):
            return _folder(path)
        return _file(path)
    except OSError as error:
        raise CheckpointError("%s cannot be read: %s" % (path, error.strerror or error))


def owned(directory: str) -> bool:
    """Return whether a directory is kept by ``Store``: its children are our checkpoints."""
    if any(os.path.exists(os.path.join(directory, name)) for name in (INDEX, LOCK)):
        return True
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    return any(n.startswith(PREFIX) and os.path.exists(os.path.join(directory, n, RECORD)) for n in names)


def children(directory: str) -> List[Foreign]:
    """Return the checkpoints that lie in a directory, the oldest first: by step where all have one, else by time."""
    found: List[Foreign] = []
    for name in sorted(os.listdir(directory)):
        if name.startswith("."):
            continue
        try:
            found.append(recognise(os.path.join(directory, name)))
        except CheckpointError:
            continue
    if all(one.step is not None for one in found):
        return sorted(found, key=lambda one: (one.step or 0, one.time))
    return sorted(found, key=lambda one: one.time)


def verify_path(path: str, level: str = "structure", on_bytes: Optional[Callable[[int], None]] = None) -> Verdict:
    """Check one checkpoint of any known kind: every file of it, and that no file it speaks of is missing."""
    found = recognise(path)
    if found.kind == OWN:
        return verify_files(path, read_record(path), level, on_bytes=on_bytes)
    missing = _missing(found)
    if missing:
        return Verdict(False, "none", "%s is missing" % missing[0])
    reached, looked, read = level, False, 0
    findings: List[Dict[str, str]] = []
    for name in found.files:
        full = os.path.join(path, name) if os.path.isdir(path) else path
        try:
            proof = prove(full, level, on_bytes=on_bytes)
        except Changed as error:
            return Verdict(None, "none", str(error), (), read)
        read += proof.bytes
        findings += [dict(one, path=name) for one in proof.findings if one["code"] != "unknown_type"]
        texts = "; ".join(one["text"] for one in proof.findings)
        if proof.level == "none":
            return Verdict(None, "none", "%s: %s" % (name, texts), tuple(findings), read)
        if not proof.ok:
            return Verdict(False, "none", "%s: %s" % (name, texts), tuple(findings), read)
        if counts(proof.kind):
            reached, looked = min(reached, proof.level, key=LEVELS.index), True
    return Verdict(True, reached if looked else "bytes", "", tuple(findings), read)


def _folder(path: str) -> Foreign:
    names = set(os.listdir(path))
    if RECORD in names:
        record = read_record(path)
        files = tuple(entry.path for entry in record.files)
        return Foreign(path, OWN, record.step, record.bytes, files, record.time, dict(record.metrics))
    files = _files(path)
    if ".metadata" in names and any(name.endswith(".distcp") for name in names):
        return _made(path, "dcp", files)
    if _deepspeed(path, names, files):
        step = None
        latest = _text(os.path.join(path, "latest"))
        if latest:
            step = _step_of_name(latest)
        return _made(path, "deepspeed", files, step)
    if "trainer_state.json" in names:
        state = _json(os.path.join(path, "trainer_state.json")) or {}
        step = state.get("global_step")
        metrics: Dict[str, Any] = {}
        for row in state.get("log_history") or []:
            if isinstance(row, dict) and row.get("step") == step:
                metrics.update(row)
        return _made(path, "hf-trainer", files, step if isinstance(step, int) else None, metrics)
    if names & set(HF_WEIGHTS) or ("config.json" in names and any(n.endswith(".safetensors") for n in names)):
        return _made(path, "hf-model", files)
    raise UnknownFormat(path, "a folder without the marks of any known kind")


def _file(path: str) -> Foreign:
    name = os.path.basename(path)
    proof = prove(path, "bytes")
    if proof.kind == "none" or proof.level == "none":
        raise CheckpointError("%s cannot be read: %s" % (path, "; ".join(f["text"] for f in proof.findings)))
    if proof.kind == "safetensors":
        return _made(path, "safetensors", (name,))
    if proof.kind in ("torch-zip", "torch-legacy") or name.endswith(TORCH_SUFFIXES):
        kind = "lightning" if _is_lightning(path) else "torch"
        return _made(path, kind, (name,))
    raise UnknownFormat(path, "a file of kind %s" % proof.kind)


def _made(
    path: str,
    kind: str,
    files: Tuple[str, ...],
    step: Optional[int] = None,
    metrics: Optional[Dict[str, Any]] = None,
) -> Foreign:
    base = path if os.path.isdir(path) else os.path.dirname(path)
    size, newest = 0, 0.0
    for name in files:
        info = os.stat(os.path.join(base, name))
        size, newest = size + info.st_size, max(newest, info.st_mtime)
    name = os.path.basename(os.path.abspath(path))
    if metrics is None:
        metrics = {key: float(value) for key, value in NAMED_METRIC.findall(name) if key not in ("step", "epoch")}
    return Foreign(
        path,
        kind,
        _step_of_name(name) if step is None else step,
        size,
        files,
        newest,
        clean_metrics({k: v for k, v in metrics.items() if k not in ("step", "epoch")}),
    )


def _step_of_name(name: str) -> Optional[int]:
    match = NAMED_STEP.search(name) or STEP.search(re.sub(r"=-?\d+\.\d+", "", os.path.splitext(name)[0]))
    return int(match.group(1)) if match else None


def _files(path: str) -> Tuple[str, ...]:
    found: List[str] = []
    for folder, dirs, names in os.walk(path):
        dirs.sort()
        for name in sorted(names):
            full = os.path.join(folder, name)
            if os.path.isfile(full):
                found.append(os.path.relpath(full, path))
    return tuple(found)


def _deepspeed(path: str, names: "set[str]", files: Tuple[str, ...]) -> bool:
    marks = ("model_states.pt", "optim_states.pt")
    if any(name.endswith(marks) for name in names):
        return True
    return "latest" in names and any(name.endswith(marks) for name in files)


def _missing(found: Foreign) -> List[str]:
    """Return files that a checkpoint names and does not hold."""
    if not os.path.isdir(found.path):
        return []
    named: List[str] = []
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        table = (_json(os.path.join(found.path, name)) or {}).get("weight_map")
        if isinstance(table, dict):
            named += [str(value) for value in table.values()]
    if found.kind == "dcp":
        named += _named_shards(os.path.join(found.path, ".metadata"))
    if found.kind == "deepspeed":
        latest = _text(os.path.join(found.path, "latest"))
        if latest and not os.path.isdir(os.path.join(found.path, latest)):
            named.append(latest)
    there = set(found.files)
    return sorted({name for name in named if name not in there})


def _named_shards(path: str) -> List[str]:
    """Return the shard names in a torch.distributed.checkpoint metadata file, by its opcodes and without loading it."""
    try:
        if os.path.getsize(path) > PICKLE_LIMIT_BYTES:
            return []
        with open(path, "rb") as handle:
            raw = handle.read()
        words = [arg for _op, arg, _at in pickletools.genops(raw) if isinstance(arg, str)]
    except Exception:  # the outer edge of a parser of foreign bytes; the structure check says what is wrong with them
        return []
    return [word for word in words if word.endswith(".distcp")]


def _is_lightning(path: str) -> bool:
    """Return whether a torch file holds Lightning's version key."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n == "data.pkl" or n.endswith("/data.pkl")]
            if not names:
                return False
            with archive.open(names[0]) as handle:
                return b"pytorch-lightning_version" in handle.read(PICKLE_LIMIT_BYTES)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, EOFError):
        return False


def _json(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, "rb") as handle:
            data = json.loads(handle.read(PICKLE_LIMIT_BYTES).decode("utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _text(path: str) -> str:
    try:
        with open(path, "rb") as handle:
            return handle.read(256).decode("utf-8", "replace").strip()
    except OSError:
        return ""


__all__ = ["Foreign", "NewerFormat", "children", "owned", "recognise", "verify_path"]
