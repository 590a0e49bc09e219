"""Turn ``diagnose/rules/<family>/<slug>.yaml`` into two JSON files, which is what the program reads at run time.

``diagnose/patterns.json`` holds what the engine needs and travels to boxes; ``advice/pages.json`` holds the
pages: prose, probes, code checks, sources. It stays at home.

python -m outlive.advice.compile            write what changed
python -m outlive.advice.compile --check    write nothing; exit 1 when something is stale or wrong
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from outlive.advice import rulelint
from outlive.advice.pages import PAGES
from outlive.errors import BadConfig, OutliveError
from outlive.platforms import source

RULES = Path(__file__).parent.parent / "diagnose" / "rules"
PATTERNS = Path(__file__).parent.parent / "diagnose" / "patterns.json"


def read_rules(folder: Path = RULES) -> dict[str, dict[str, Any]]:
    """Return every page by id, with ``family`` and ``slug`` from its place. Raises BadConfig with file and key."""
    rules: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*/*.yaml")):
        data = source.read(path)
        faults = rulelint.faults(data)
        if faults:
            raise BadConfig(
                faults[0][1], file=str(path), key=faults[0][0], why=[f"{key}: {what}" for key, what in faults[1:]]
            )
        if data["id"] in rules:
            raise BadConfig(f"the id {data['id']} is taken by another page", file=str(path), key="id")
        rules[data["id"]] = {"id": data["id"], "family": path.parent.name, "slug": path.stem, **data}
    for id, data in rules.items():
        for name in _listed(data.get("refines")) + _listed(data.get("beats")):
            if name not in rules:
                raise BadConfig(f"there is no rule {name}", file=f"{data['family']}/{data['slug']}.yaml", key=id)
    return rules


def compact(rule: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the engine needs of a rule, or None when it reads no line."""
    evidence = rule.get("evidence") or {}
    patterns = evidence.get("patterns") or []
    if not patterns or rule["class"] is None:
        return None
    small: dict[str, Any] = {
        "id": rule["id"],
        "c": rule["class"],
        "s": rule["severity"],
        "r": rule["remedy"],
        "p": [[p["re"], p.get("role", "conclusive")] for p in patterns],
    }
    if evidence.get("anti_patterns"):
        small["a"] = evidence["anti_patterns"]
    if rule.get("refines"):
        small["f"] = rule["refines"]
    if rule.get("depth") is not None:
        small["d"] = rule["depth"]
    if rule.get("stays"):
        small["k"] = 1
    if evidence.get("extract"):
        small["x"] = evidence["extract"]
    return small


def render(folder: Path = RULES) -> dict[Path, bytes]:
    """Return the compiled files by path."""
    rules = read_rules(folder)
    small = [s for s in (compact(rule) for rule in rules.values()) if s is not None]
    return {
        PATTERNS: (json.dumps({"v": 1, "rules": small}, ensure_ascii=False, separators=(",", ":")) + "\n").encode(),
        PAGES: (json.dumps({"v": 1, "pages": rules}, ensure_ascii=False, indent=0) + "\n").encode(),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m outlive.advice.compile", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is stale")
    args = parser.parse_args(argv)
    try:
        files = render()
    except OutliveError as error:
        print(error.sentence(), file=sys.stderr)
        return 1
    changed = [path for path, data in files.items() if not path.exists() or path.read_bytes() != data]
    for path in changed:
        if not args.check:
            path.write_bytes(files[path])
        print(f"{'stale' if args.check else 'wrote'}: {path}", file=sys.stderr)
    if args.check and changed:
        print("next: python -m outlive.advice.compile", file=sys.stderr)
    return 1 if args.check and changed else 0


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


if __name__ == "__main__":
    sys.exit(main())
