"""Turn ``facts/*.yaml`` into ``compiled/*.json``, which is what the program reads at run time.

python -m outlive.platforms.compile            write what changed, remove what has no source
python -m outlive.platforms.compile --check    write nothing; exit 1 when something is stale or wrong
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from outlive.errors import OutliveError
from outlive.platforms import lint, source
from outlive.platforms.load import COMPILED, INDEX, index_entry
from outlive.platforms.words import SCHEMA_VERSION

FACTS = Path(__file__).with_name("facts")


def render(facts: Path = FACTS) -> dict[str, bytes]:
    """Return the compiled files by name, from the YAML sources in ``facts``.

    Raises BadConfig for a file that cannot be read or does not pass lint. Age is no error here: a program must not
    stop building because a month has passed.
    """
    files: dict[str, bytes] = {}
    entries: dict[str, Any] = {}
    everything: dict[str, dict[str, Any]] = {}
    for path in sorted(facts.glob("*.yaml")):
        everything[path.stem] = source.read(path)
    lint.must_pass(everything, str(facts))
    for id, data in everything.items():
        path = facts / f"{id}.yaml"
        files[f"{id}.json"] = _dump(data)
        entries[id] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), **index_entry(data)}
    whole = hashlib.sha256("".join(sorted(e["sha256"] for e in entries.values())).encode()).hexdigest()
    files[INDEX] = _dump({"schema_version": SCHEMA_VERSION, "digest": whole, "platforms": entries})
    return files


def stale(files: dict[str, bytes], compiled: Path = COMPILED) -> list[str]:
    """Return the names in ``compiled`` that differ from ``files``, are missing, or have no source any more."""
    there = {p.name for p in compiled.glob("*.json")} if compiled.is_dir() else set()
    differs = [n for n, content in files.items() if n not in there or (compiled / n).read_bytes() != content]
    return sorted({*differs, *(there - set(files))})


def write(files: dict[str, bytes], compiled: Path = COMPILED) -> list[str]:
    """Make ``compiled`` hold exactly ``files``; returns the names that changed."""
    changed = stale(files, compiled)
    compiled.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in files:
            (compiled / name).write_bytes(files[name])
        else:
            (compiled / name).unlink()
    return changed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m outlive.platforms.compile", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is stale")
    parser.add_argument("--facts", type=Path, default=FACTS, help="the YAML sources")
    parser.add_argument("--to", type=Path, default=COMPILED, help="the directory of the compiled files")
    args = parser.parse_args(argv)
    try:
        files = render(args.facts)
    except OutliveError as error:
        print(error.sentence(), file=sys.stderr)
        return 1
    changed = stale(files, args.to) if args.check else write(files, args.to)
    for name in changed:
        print(f"{'stale' if args.check else 'wrote'}: {args.to / name}", file=sys.stderr)
    if args.check and changed:
        print("next: python -m outlive.platforms.compile", file=sys.stderr)
    return 1 if args.check and changed else 0


def _dump(data: Any) -> bytes:
    def plain(value: Any) -> str:
        # YAML reads an unquoted full date as a date; no fact is one, so lint will name the place.
        if isinstance(value, (datetime.date, datetime.datetime)):
            return value.isoformat()
        raise TypeError(f"{type(value).__name__} in a fact file")

    return (json.dumps(data, ensure_ascii=False, indent=1, default=plain) + "\n").encode()


if __name__ == "__main__":
    sys.exit(main())
