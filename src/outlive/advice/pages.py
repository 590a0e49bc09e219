"""The pages of the rules, compiled: what is seen, why, what to do. Loaded when the first one is asked for."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

PAGES = Path(__file__).with_name("pages.json")


@functools.cache
def pages() -> dict[str, dict[str, Any]]:
    """Return every page by its id."""
    data: dict[str, dict[str, Any]] = json.loads(PAGES.read_text("utf-8"))["pages"]
    return data


def page(id: str) -> dict[str, Any] | None:
    """Return the page of a rule, or None when there is no such rule."""
    return pages().get(id)
