"""The little that a list of boxes shows of a platform, without building all that is known of it.

`ps` is typed all day; the whole model costs it more than the interpreter does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

COMPILED = Path(__file__).with_name("compiled")


def user_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the user's own facts: ``$XDG_CONFIG_HOME/outlive/platforms`` or under ``~/.config``."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return Path(base) / "outlive" / "platforms"


class Names:
    def __init__(self, en: str) -> None:
        self.en = en


class Brief:
    """What ``model.Platform`` says under the same names."""

    def __init__(self, en: str, has_meter: bool) -> None:
        self.names, self.has_meter = Names(en), has_meter


def brief(id: str, *, overrides: Path | None = None, compiled: Path = COMPILED) -> Brief:
    """Return a platform's name and whether it has a meter. Raises like ``load.load``."""
    if "/" not in id and (overrides is None or not overrides.exists()):
        try:
            data = json.loads((compiled / f"{id}.json").read_bytes())
            return Brief(str(data["names"]["en"]), data["meter_stop_verb"] != "none")
        except (OSError, ValueError, KeyError, TypeError):
            pass  # one that is not known, or not as it should be: `load` says what is wrong
    from outlive.platforms.load import load

    full = load(id, overrides=overrides, compiled=compiled)
    return Brief(full.names.en, full.has_meter)
