"""``outlive version``: versions of everything that takes part."""

from __future__ import annotations

import argparse
from typing import Any

from outlive.cli.printing import columns, result


def add_parser(subparsers: Any) -> None:
    """Register the verb."""
    parser = subparsers.add_parser(
        "version",
        help="versions of everything that takes part",
        description="Versions of this program, of what it sends to boxes and of the programs that it uses here.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the versions."""
    from outlive.views import labelled

    data = versions()
    result(args, data, lambda: labelled.lines(_rows(data), columns()))
    return 0


def versions() -> dict[str, Any]:
    """Return what ``version --json`` prints."""
    import importlib.metadata
    import platform
    import sys

    from outlive import __version__
    from outlive.probes.tools import tools
    from outlive.runs.home import state_dir
    from outlive.transport.packed import program
    from outlive.wire import WIRE_MAJOR, WIRE_MINOR

    digest, data = program()
    packages: dict[str, str | None] = {}
    for name in ("rich", "pathspec", "PyYAML"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    found: dict[str, str | None] = {"ssh": _ssh_version()}
    every = tools(budget_s=3.0)
    for name in ("rsync", "tar", "zstd", "rclone"):
        found[name] = (every[name].version or "of unknown version") if every[name].path else None
    return {
        "schema": "outlive/version/1",
        "outlive": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "wire": [WIRE_MAJOR, WIRE_MINOR],
        "supervisor": {"digest": digest, "bytes": len(data)},
        "state": str(state_dir()),
        "packages": packages,
        "tools": found,
    }


def _ssh_version() -> str | None:
    import subprocess

    try:
        done = subprocess.run(["ssh", "-V"], capture_output=True, text=True, timeout=3, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stderr or done.stdout).strip().split(",")[0] or "of unknown version"


def _rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    def listed(found: dict[str, str | None]) -> str:
        return ", ".join(f"{name} {version}" if version else f"{name}: not here" for name, version in found.items())

    supervisor = data["supervisor"]
    return [
        ("", f"outlive {data['outlive']}"),
        ("python", f"{data['python']} ({data['executable']})"),
        ("system", data["system"]),
        (
            "on boxes",
            f"supervisor {supervisor['digest']}, {supervisor['bytes']} bytes; wire {data['wire'][0]}.{data['wire'][1]}",
        ),
        ("packages", listed(data["packages"])),
        ("tools", listed(data["tools"])),
        ("state", data["state"]),
    ]
