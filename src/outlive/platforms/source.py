"""Read a fact file that a person wrote: YAML with JSON's idea of truth, or JSON.

Only `true` and `false` are booleans: `yes` and `no` stay the words that the facts are made of. A key written twice
is an error. PyYAML is imported here and nowhere else, and only when a YAML file is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outlive.errors import BadConfig


def read(path: Path) -> dict[str, Any]:
    """Return the mapping in ``path`` (``.yaml``, ``.yml`` or ``.json``).

    Raises BadConfig: not readable, not valid (with its line), not a mapping, or YAML without PyYAML installed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"cannot be read: {error}", file=str(path)) from error
    data = _json(text, path) if path.suffix == ".json" else _yaml(text, path)
    if not isinstance(data, dict):
        raise BadConfig("a fact file is one mapping of keys to values", file=str(path))
    return data


def line_of(path: Path, key: str) -> int | None:
    """Return the line, from 1, where ``key`` (as ``evidence.patterns[0].re``) stands in a YAML file that can be read.

    Of a key that is not there, the line of what should hold it.
    """
    import re

    import yaml

    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return None
    line: int | None = None
    for word in ["", *re.findall(r"[^.\[\]]+", key)]:
        if line is None:
            line = node.start_mark.line + 1 if node is not None else None
        elif isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == word), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and word.isdigit() and int(word) < len(node.value):
            node = node.value[int(word)]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadConfig(f"not valid JSON: {error.msg}", file=str(path), line=error.lineno) from error


def _yaml(text: str, path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise BadConfig(
            "reading YAML needs PyYAML, which is not installed here",
            file=str(path),
            safe="nothing was changed; the shipped facts need no YAML",
            next=[["pip", "install", "outlive[yaml]"]],
        ) from error

    class Loader(yaml.SafeLoader):
        """SafeLoader without YAML 1.1's yes/no/on/off, and strict about repeated keys."""

        yaml_implicit_resolvers = {
            first: [(tag, regexp) for tag, regexp in rules if tag != "tag:yaml.org,2002:bool"]
            for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise BadConfig(
                        "this key is written twice", file=str(path), line=key.start_mark.line + 1, key=str(key.value)
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    import re

    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        raise BadConfig(
            f"not valid YAML: {what}", file=str(path), line=mark.line + 1 if mark is not None else None
        ) from error
