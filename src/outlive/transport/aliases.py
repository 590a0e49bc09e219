"""Questions to the user's ssh configuration, answered by ssh itself (``ssh -G``): never parsed into decisions by us."""

from __future__ import annotations

import glob
import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from outlive.errors import BadAddress, Unreachable
from outlive.transport.address import Address

_NOWHERE = "outlive-name-that-no-configuration-has"


def settings(destination: str, config: Path | None = None, options: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return ssh's effective settings for ``destination``: lower-case name to its values in order.

    ``config`` replaces the user's configuration file. ``options`` are ``Name=value``. Opens no connection.
    Raises Unreachable when ssh is missing or refuses its configuration.
    """
    return {name: list(values) for name, values in _settings(destination, config, tuple(options))}


@lru_cache(maxsize=64)
def _settings(
    destination: str, config: Path | None, options: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    argv = ["ssh", "-G", *(["-F", str(config)] if config else [])]
    for option in options:
        argv += ["-o", option]
    try:
        done = subprocess.run([*argv, "--", destination], capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Unreachable(
            "ssh is not installed on this machine", next=[["apt-get", "install", "openssh-client"]]
        ) from None
    except subprocess.TimeoutExpired:
        raise Unreachable("ssh did not finish reading its own configuration within 20 s") from None
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "replace").strip()
        raise Unreachable("ssh does not accept its configuration", place=destination, why=text.splitlines()[-3:])
    found: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return tuple((name, tuple(values)) for name, values in found.items())


def alias_exists(alias: str, config: Path | None = None) -> bool:
    """Say whether the user's ssh configuration treats ``alias`` differently from a name that it cannot know."""
    own, other = settings(alias, config), settings(_NOWHERE, config)
    if own.get("hostname", [alias])[0].lower() != alias.lower():
        return True
    for found in (own, other):
        for name in ("host", "hostname"):
            found.pop(name, None)
    return own != other or any(alias == known for known in known_aliases(config))


def known_aliases(config: Path | None = None) -> list[str]:
    """Return the plain names on ``Host`` lines of the user's configuration and its included files, for suggestions."""
    names: list[str] = []
    seen: set[Path] = set()
    queue = [config or Path.home() / ".ssh" / "config"]
    while queue and len(seen) < 50:
        path = queue.pop(0)
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for line in path.read_text("utf-8", "replace").splitlines():
            word, _, rest = re.sub(r"\s*[=\s]\s*", " ", line.strip(), count=1).partition(" ")
            if word.lower() == "host":
                names += [n.strip('"') for n in rest.split() if not set(n) & set("*?!")]
            elif word.lower() == "include":
                base = Path.home() / ".ssh"
                for pattern in rest.split():
                    full = Path(pattern).expanduser()
                    full = full if full.is_absolute() else base / full
                    queue += [Path(found) for found in sorted(glob.glob(str(full)))]
    return sorted(set(names))


def check(address: Address, config: Path | None = None) -> None:
    """Raise BadAddress, with the nearest names, for an alias that neither ssh's configuration nor a resolver knows."""
    if address.kind != "alias" or alias_exists(address.alias, config) or _resolves(address.alias):
        return
    import difflib

    known = known_aliases(config)
    near = difflib.get_close_matches(address.alias, known, n=3, cutoff=0.6)
    why = [
        f"your ssh configuration knows: {', '.join(known[:12])}" if known else "your ssh configuration names no hosts"
    ]
    why.append("understood: an ssh alias, because there is no user@ and no dot")
    raise BadAddress(
        f"no machine called {address.alias!r}: not in your ssh configuration, and the name does not resolve",
        address=address.original,
        why=why,
        next=[["outlive", "up", name] for name in near] or [["outlive", "up", "ssh -p 12345 root@connect.example.com"]],
    )


def _resolves(name: str) -> bool:
    import socket

    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True
