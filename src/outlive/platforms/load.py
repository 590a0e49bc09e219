"""From a platform's id to its facts: the compiled file of the package, corrected by the user's own file.

Standard library and JSON only; YAML is read only where the user wrote a correction in YAML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlive.errors import BadConfig, UnknownName
from outlive.platforms import shape
from outlive.platforms.brief import user_dir as user_dir
from outlive.platforms.model import Platform

COMPILED = Path(__file__).with_name("compiled")
INDEX = "index.json"
_SUFFIXES = (".yaml", ".yml", ".json")


def all_ids(*, overrides: Path | None = None, compiled: Path = COMPILED) -> list[str]:
    """Return the ids of all known platforms, sorted: shipped ones and those of ``overrides``."""
    return sorted({*index(compiled)["platforms"], *_user_files(overrides)})


def load(id: str, *, overrides: Path | None = None, compiled: Path = COMPILED) -> Platform:
    """Return the platform ``id``.

    A file ``<id>.yaml`` or ``<id>.json`` in ``overrides`` wins over the shipped facts, key by key (list items with a
    name or an id are matched by it, other lists replaced whole); ``Platform.overridden`` says which facts it changed.
    Raises UnknownName with the nearest id, and BadConfig when the user's file does not fit the schema.
    """
    mine = _user_files(overrides).get(id)
    if mine is None and id not in index(compiled)["platforms"]:
        raise UnknownName.of("platform", id, all_ids(overrides=overrides, compiled=compiled))
    data, changed = data_of(id, overrides=overrides, compiled=compiled)
    faults: shape.Faults = []
    platform = shape.build(Platform, data, "", faults)
    if platform is None:
        at, what = faults[0]
        raise BadConfig(
            f"{id}: {what}",
            file=str(mine or compiled / f"{id}.json"),
            key=at,
            why=[f"{a}: {w}" for a, w in faults[1:]],
            safe="the shipped facts are untouched" if mine else "",
            next=[["outlive", "platforms", "lint"]],
        )
    assert isinstance(platform, Platform)
    if changed:
        object.__setattr__(platform, "overridden", tuple(changed))
    return platform


def data_of(id: str, *, overrides: Path | None = None, compiled: Path = COMPILED) -> tuple[dict[str, Any], list[str]]:
    """Return the facts of ``id`` as plain data, unchecked, and the paths that the user's file changed."""
    shipped: dict[str, Any] = {}
    if id in index(compiled)["platforms"]:
        shipped = json.loads((compiled / f"{id}.json").read_bytes())
    mine = _user_files(overrides).get(id)
    if mine is None:
        return shipped, []
    from outlive.platforms import source

    changed: list[str] = []
    own = source.read(mine)
    if own.get("id", id) != id:
        raise BadConfig(f"the file is named for `{id}`", file=str(mine), key="id", suggestion=id)
    merged = _merge(shipped, own, "", changed)
    return {"id": id, **merged}, changed if shipped else []


def index(compiled: Path = COMPILED) -> dict[str, Any]:
    """Return the index of the compiled facts: digests, names, and the hints that tell a platform."""
    found: dict[str, Any] = json.loads((compiled / INDEX).read_bytes())
    return found


def index_entry(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the index says about a platform: names, kind, hints, and what else is to be read on a box."""
    reads = [[c["hint"]["probe"], c["hint"]["name"]] for c in data.get("conditions") or () if c.get("hint")]
    for tier in data.get("tiers") or ():
        if tier.get("path"):
            reads.append(["path", tier["path"]])
        probe = tier.get("probe")
        if probe and probe["by"] == "env":
            reads.append(["env", probe["value"]])
    return {
        "names": data.get("names"),
        "kind": data.get("kind"),
        "recognise": data.get("recognise") or [],
        "reads": [pair for i, pair in enumerate(reads) if pair not in reads[:i]],
    }


def _user_files(overrides: Path | None) -> dict[str, Path]:
    if overrides is None:
        return {}
    try:
        files = sorted(p for p in overrides.iterdir() if p.suffix in _SUFFIXES and not p.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {path.stem: path for path in files}


def _merge(shipped: Any, own: Any, at: str, changed: list[str]) -> Any:
    """Return ``shipped`` with what ``own`` says instead; neither is altered."""
    if isinstance(shipped, dict) and isinstance(own, dict):
        merged = dict(shipped)
        for key, value in own.items():
            merged[key] = _merge(shipped.get(key), value, f"{at}.{key}" if at else str(key), changed)
        return merged
    if isinstance(shipped, list) and isinstance(own, list):
        label = _label(shipped + own)
        if label:
            items = {item[label]: item for item in shipped}
            for item in own:
                name = item[label]
                items[name] = _merge(items.get(name), item, f"{at}[{name}]", changed)
            return list(items.values())
    if shipped != own:
        changed.append(at)
    return own


def _label(items: list[Any]) -> str:
    for label in ("name", "id"):
        if items and all(isinstance(item, dict) and item.get(label) for item in items):
            return label
    return ""
