"""A platform that does not exist, made from a real file, as somebody who adds one would make it."""

import copy
import json
from pathlib import Path

import pytest

from outlive.platforms import compile as compiler
from outlive.platforms import source
from outlive.platforms.load import COMPILED


@pytest.fixture
def autodl() -> dict:
    return json.loads((COMPILED / "autodl.json").read_bytes())


@pytest.fixture
def moonbase(autodl: dict) -> dict:
    """Facts of a fictitious lender: other id, paths, hints and clocks."""
    data = copy.deepcopy(autodl)
    data["id"] = "moonbase"
    data["names"] = {"en": "Moonbase", "zh": "月面基地"}
    data["recognise"] = [
        {"probe": "env", "name": "MOONBASE_BOX", "match": None, "strong": True},
        {"probe": "file", "name": "/etc/moon-release", "match": "lunar", "strong": False},
    ]
    for tier in data["tiers"]:
        if tier["path"] is not None and tier["path"] != "/root":
            tier["path"] = tier["path"].replace("/root/autodl", "/crater/moon")
    for i, gotcha in enumerate(data["gotchas"]):
        gotcha["id"] = f"MOON{i}"
    for i, clock in enumerate(data["danger_clocks"]):
        clock["id"] = f"moon-{i}"
    return data


@pytest.fixture
def with_moonbase(moonbase: dict, tmp_path: Path) -> Path:
    """A compiled directory with all shipped platforms and one file more."""
    facts = tmp_path / "facts"
    facts.mkdir()
    for path in compiler.FACTS.glob("*.yaml"):
        (facts / path.name).write_bytes(path.read_bytes())
    (facts / "moonbase.yaml").write_text(json.dumps(moonbase, ensure_ascii=False))  # JSON is YAML
    assert source.read(facts / "moonbase.yaml") == moonbase
    compiled = tmp_path / "compiled"
    compiler.write(compiler.render(facts), compiled)
    return compiled
