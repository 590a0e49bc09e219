"""Turn ``data/*.yaml`` into ``compiled/*.json``, which is what the planner reads at run time.

python -m outlive.plan.compile            write what changed
python -m outlive.plan.compile --check    write nothing; exit 1 when something is stale
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from outlive.platforms import source

HERE = Path(__file__).parent
NAMES = ("gpus", "models", "constants")


def render(data: Path = HERE / "data") -> dict[str, bytes]:
    """Return the compiled files by name. Raises BadConfig for a file that cannot be read."""
    return {f"{name}.json": _dump(_shaped(name, source.read(data / f"{name}.yaml"))) for name in NAMES}


def _shaped(name: str, data: dict[str, Any]) -> dict[str, Any]:
    if name == "gpus":
        return dict(data["gpus"])
    if name == "models":
        flat: dict[str, Any] = {}
        for family, part in data["families"].items():
            for model, row in part["models"].items():
                flat[model] = {"family": family, **part["defaults"], **row}
        return flat
    return {key: entry["value"] for key, entry in data["constants"].items()}


def _dump(data: dict[str, Any]) -> bytes:
    rows = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for key, value in data.items()
    )
    return ("{\n" + rows + "\n}\n").encode()


def main(argv: list[str] | None = None) -> int:
    """Write the compiled files, or with ``--check`` say which are stale."""
    check = "--check" in (sys.argv[1:] if argv is None else argv)
    target = HERE / "compiled"
    changed = [
        (target / name, content)
        for name, content in render().items()
        if not (target / name).exists() or (target / name).read_bytes() != content
    ]
    for path, content in changed:
        print(f"{'stale' if check else 'wrote'}: {path}", file=sys.stderr)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    if check and changed:
        print("next: python -m outlive.plan.compile", file=sys.stderr)
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
