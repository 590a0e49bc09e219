"""The templates' modules, loaded from where they lie."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TEMPLATES = Path(__file__).parents[3] / "src" / "outlive" / "scaffold" / "templates"


@pytest.fixture
def template(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a loader of template modules by path; they see each other as in a written project."""
    loaded: list[str] = []

    def load(path: str) -> ModuleType:
        name = Path(path).stem
        spec = importlib.util.spec_from_file_location(name, TEMPLATES / path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        loaded.append(name)
        spec.loader.exec_module(module)
        return module

    yield load
