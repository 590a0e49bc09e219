"""Which platform a box is on, from readings of that box. It only ever proposes: the user's word wins."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from outlive.platforms.load import COMPILED, all_ids, data_of, index, index_entry
from outlive.platforms.model import Hint, Platform


def wanted(*, overrides: Path | None = None, compiled: Path = COMPILED) -> dict[str, list[str]]:
    """Return what to read on a box, by kind of probe: variables, files, paths, DMI fields and mount points.

    Besides the hints that tell a platform these are the hints of conditions and the paths and variables of storage
    tiers, so that one round of readings also says which tiers are there. `hostname` and `address` name nothing: they
    are always asked for.
    """
    names: dict[str, set[str]] = {}
    for entry in _entries(overrides, compiled).values():
        for hint in entry["recognise"]:
            names.setdefault(hint["probe"], set()).add(hint["name"])
        for probe, name in entry["reads"]:
            names.setdefault(probe, set()).add(name)
    return {probe: sorted(n for n in found if n) for probe, found in sorted(names.items())}


def recognise(
    readings: Mapping[str, Any], *, overrides: Path | None = None, compiled: Path = COMPILED
) -> list[tuple[str, str]]:
    """Return (id, why) for each platform that the readings speak for, the likeliest first; [] when none does.

    ``readings`` holds what was read, each part optional: ``env`` (variable to value), ``file`` (path to content),
    ``path`` (the paths that exist), ``hostname``, ``dmi`` (field to value), ``mount`` (mount point to "source fstype")
    and ``address`` (the host that was connected to). One strong hint outweighs any number of weak ones, and a
    platform with weak hints only is named only when no other has a strong one.
    """
    found = []
    for id, entry in _entries(overrides, compiled).items():
        hints = entry["recognise"]
        hits = [(hint["strong"], why) for hint in hints if (why := seen(hint, readings))]
        if hits:
            strong = sum(1 for is_strong, _ in hits if is_strong)
            hits.sort(key=lambda hit: not hit[0])
            found.append((-strong, -len(hits), id, "; ".join(why for _, why in hits)))
    found.sort()
    if found and found[0][0] < 0:
        found = [entry for entry in found if entry[0] < 0]
    return [(id, why) for _, _, id, why in found]


def holding(platform: Platform, readings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids of the platform's conditions that hold by the readings, and of those that they do not tell."""
    yes: list[str] = []
    unknown: list[str] = []
    for condition in platform.conditions:
        hint = condition.hint
        if hint is None or hint.probe not in readings:
            unknown.append(condition.id)
        elif seen(_plain(hint), readings):
            yes.append(condition.id)
    return yes, unknown


def seen(hint: Mapping[str, Any], readings: Mapping[str, Any]) -> str:
    """Return the words for why ``hint`` fits the readings, or "" if it does not."""
    probe, name, match = hint["probe"], hint["name"], hint["match"]
    reading = readings.get(probe)
    if reading is None:
        return ""
    if probe == "path":
        return f"{name} exists" if name in reading else ""
    if probe in ("hostname", "address"):
        return f"{probe} is {reading}" if _fits(str(reading).lower(), match) else ""
    value = reading.get(name)
    if value is None or value == "":
        return ""
    if probe == "file":
        text = str(value)
        return f"{name} says `{match}`" if match and match in text else ("" if match else f"{name} exists")
    label = {"env": f"{name} is set", "dmi": f"{name} is {value}", "mount": f"{name} is mounted from {value}"}[probe]
    return label if _fits(str(value), match) else ""


def _fits(value: str, match: str | None) -> bool:
    return bool(value) and (match is None or fnmatchcase(value, match))


def _plain(hint: Hint) -> dict[str, Any]:
    return {"probe": hint.probe, "name": hint.name, "match": hint.match, "strong": hint.strong}


def _entries(overrides: Path | None, compiled: Path) -> dict[str, dict[str, Any]]:
    """Index entries of all platforms; those of the shipped ones are ready, so that no fact file is opened for them."""
    entries: dict[str, dict[str, Any]] = dict(index(compiled)["platforms"])
    if overrides is not None:
        for id in all_ids(overrides=overrides, compiled=compiled):
            data, changed = data_of(id, overrides=overrides, compiled=compiled)
            if changed or id not in entries:
                entries[id] = index_entry(data)
    return entries
