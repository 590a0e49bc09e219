"""footprint.py: what an installation of the core weighs: packages and bytes, without extras.

Counted from what is installed beside this interpreter: the closure of what outlive requires, each with its own files.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

PACKAGES_WANTED, MB_WANTED = 12, 20.0


def closure(name: str, found: dict[str, int]) -> None:
    """Add a distribution and what it requires here, with the bytes of its files."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return
    try:
        dist = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return  # required elsewhere only: another system, an older Python
    found[key] = sum(size(Path(str(dist.locate_file(file)))) for file in dist.files or ())
    for line in dist.requires or ():
        wanted, _, marker = line.partition(";")
        if "extra ==" in marker:
            continue
        closure(re.split(r"[\s<>=!~\[(]", wanted.strip())[0], found)


def size(path: Path) -> int:
    """Return a file's bytes; bytecode is made by the user's own Python."""
    try:
        return 0 if path.suffix == ".pyc" else path.stat().st_size
    except OSError:
        return 0


def main() -> int:
    """Print the table; 1 when an aim is missed."""
    found: dict[str, int] = {}
    closure("outlive", found)
    import outlive

    found["outlive"] = sum(size(p) for p in Path(outlive.__file__).parent.rglob("*") if p.is_file())
    for name, count in sorted(found.items(), key=lambda item: -item[1]):
        print(f"  {name:24} {count / 1e6:7.2f} MB")
    total = sum(found.values()) / 1e6
    ok = len(found) <= PACKAGES_WANTED and total <= MB_WANTED
    print(
        f"  {len(found)} packages, {total:.1f} MB   wanted: at most {PACKAGES_WANTED} and {MB_WANTED:.0f} MB   ", end=""
    )
    print("ok" if ok else "too much")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
