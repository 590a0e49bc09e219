"""Turn ``diagnose/rules/<family>/<slug>.yaml`` into JSON files, which is what the program reads at run time.

``diagnose/patterns.json`` holds what the engine needs and travels to boxes; ``advice/pages.json`` holds the
pages: prose, probes, code checks, sources; ``advice/search.json`` is what `explain` searches, made of the pages and of
``advice/asked`` and ``advice/lexicon``; ``advice/zh.json`` is what `explain` says in Chinese. They stay at home.

python -m outlive.advice.compile            write what changed
python -m outlive.advice.compile --check    write nothing; exit 1 when something is stale or wrong
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from outlive.advice import index, rulelint
from outlive.advice.index import INDEX, ZH
from outlive.advice.literals import MIN_CHARS, alternatives, required
from outlive.advice.pages import PAGES
from outlive.advice.rulelint import ROLES
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


def compact(rule: dict[str, Any]) -> list[Any] | None:
    """Return what the engine needs of a rule, or None when it reads no line of a log by itself.

    [id, class, severity, remedy, depth, [[regex, role, strings], ...], [anti, ...], needs_error]: one small regex
    for each alternative, so that a box compiles only those whose strings stand in its log.
    """
    evidence = rule.get("evidence") or {}
    if rule.get("depth") is None or rule["class"] is None:
        return None
    pieces = []
    for pattern in evidence.get("patterns") or []:
        role = ROLES.index(pattern.get("role", "conclusive"))
        for piece in alternatives(pattern["re"]):
            strings = required(piece)
            if strings is None:
                raise BadConfig(
                    f"{piece!r} asks for no string of {MIN_CHARS} letters: every line would have to be tried",
                    file=f"{rule['family']}/{rule['slug']}.yaml",
                    key="evidence.patterns",
                )
            pieces.append([piece, role, strings])
    small = [rule["id"], rule["class"], rule["severity"], rule["remedy"], rule["depth"], pieces]
    return [*small, evidence.get("anti_patterns") or [], int(rule.get("needs_error", False))]


def render(folder: Path = RULES) -> dict[Path, bytes]:
    """Return the compiled files by path."""
    rules = read_rules(folder)
    small = [s for s in (compact(rule) for rule in rules.values()) if s is not None]
    return {
        PATTERNS: (json.dumps({"v": 1, "rules": small}, ensure_ascii=False, separators=(",", ":")) + "\n").encode(),
        PAGES: (json.dumps({"v": 1, "pages": rules}, ensure_ascii=False, indent=0) + "\n").encode(),
        INDEX: index.render(rules),
        ZH: index.render_zh(),
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
