"""What a person should hear before a snapshot leaves this machine. Values; they refuse nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

MANY_FILES = 20_000
LARGE_TOTAL_BYTES = 500 * 10**6
LARGE_FILE_BYTES = 200 * 10**6
SECRET_SCAN_BYTES = 256 * 1024
"""Files up to this size are looked into."""


@dataclass(frozen=True)
class Caution:
    """Base. ``kind`` is a stable slug, ``sentence`` one line for a person."""

    kind: ClassVar[str] = ""

    def sentence(self) -> str:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "sentence": self.sentence(), **asdict(self)}


@dataclass(frozen=True)
class SecretsFound(Caution):
    """Files that look like secrets: (path, why). They are in the snapshot; what they hold is not repeated here."""

    kind = "secrets"
    files: tuple[tuple[str, str], ...]

    def sentence(self) -> str:
        named = "; ".join(f"{path} ({why})" for path, why in self.files[:5])
        more = f" and {len(self.files) - 5} more" if len(self.files) > 5 else ""
        return f"looks like secrets: {named}{more}; keep them out with .outliveignore and use [secrets]"


@dataclass(frozen=True)
class TooBig(Caution):
    """The snapshot is larger than code is: totals, and the biggest (path, bytes)."""

    kind = "size"
    files: int
    total_bytes: int
    biggest: tuple[tuple[str, int], ...]

    def sentence(self) -> str:
        named = ", ".join(f"{path} {size / 1e6:.0f} MB" for path, size in self.biggest)
        return (
            f"{self.files} files and {self.total_bytes / 1e6:.0f} MB is much for code (biggest: {named}); "
            "ignore them in .outliveignore and send data once with `outlive push --data SRC:DST`"
        )


@dataclass(frozen=True)
class LinesNormalised(Caution):
    """Scripts whose Windows line ends (which no shell understands) were made Unix ones in the snapshot only."""

    kind = "crlf"
    paths: tuple[str, ...]

    def sentence(self) -> str:
        return f"Windows line ends were changed in the snapshot, not here: {', '.join(self.paths[:5])}"


@dataclass(frozen=True)
class LeftOut(Caution):
    """Entries that no archive carries: (path, why)."""

    kind = "left-out"
    files: tuple[tuple[str, str], ...]

    def sentence(self) -> str:
        return "left out: " + "; ".join(f"{path} ({why})" for path, why in self.files[:5])


_NAMES = re.compile(
    r"""(?ix) ^(?: \.env(?:\..+)? | id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)? | \.netrc | _netrc | \.pgpass | \.htpasswd
    | \.git-credentials | \.pypirc | credentials(?:\.json)? | kaggle\.json | kubeconfig | service[-_]account.*\.json
    | .*\.(?:kdbx|p12|pfx|jks|keystore|ppk|ovpn) | secrets?\.(?:ya?ml|json|toml|env|txt) )$"""
)
_EXAMPLES = re.compile(r"(?i)\.(?:example|sample|template|dist|tmpl)$")
_KEY_FILES = re.compile(r"(?i)\.(?:pem|key)$")
_ASSIGNED = re.compile(
    r"""(?ix) \b ([a-z0-9_.-]* (?:token|secret|password|passwd|api_?key|access_?key|private_?key)) ["']? \s* [:=] \s*
    ["'] ([^"'\s]{12,200}) ["']"""
)
_PLACEHOLDER = re.compile(r"(?i)x{4,}|\*{3,}|<|\$|\{|your|example|changeme|placeholder|dummy|\.\.\.")


def looks_secret_file(name: str, head: bytes | None) -> str:
    """Return why a file looks like a secret, "" if it does not. ``head`` is its content, None where it is large."""
    if _EXAMPLES.search(name):
        return ""
    if head is not None and b"PRIVATE KEY-----" in head:
        return "holds a private key"
    if _NAMES.match(name):
        return "by its name"
    if head is None or b"\0" in head[:8192]:
        return "by its name" if head is None and _KEY_FILES.search(name) else ""
    from outlive.sync.suspects import may_hold_secret

    return _searched(head) if may_hold_secret(head) else ""


def _searched(head: bytes) -> str:
    """The exact test of a content, line by line. What it can find `suspects` must not clear."""
    from outlive.probes.secret_values import looks_secret

    text = head.decode("utf-8", "replace")
    for line in text.splitlines():
        if len(line) <= 2000 and not _PLACEHOLDER.search(line) and " " in line and looks_secret("", line):
            return "holds what looks like a token"
    for found in _ASSIGNED.finditer(text):
        value = found[2]
        if _PLACEHOLDER.search(value) or not (re.search("[0-9]", value) and re.search("[A-Za-z]", value)):
            continue
        if looks_secret(found[1], value):
            return f"assigns {found[1]}"
    only = text.strip()
    if "\n" not in only and len(only) <= 400 and not _PLACEHOLDER.search(only) and looks_secret("", only):
        return "holds what looks like a token"
    return ""


def too_big(files: Sequence[tuple[str, int]]) -> TooBig | None:
    """Return the warning for these (path, bytes), None where they are of ordinary size."""
    total = sum(size for _, size in files)
    largest = max((size for _, size in files), default=0)
    if len(files) <= MANY_FILES and total <= LARGE_TOTAL_BYTES and largest <= LARGE_FILE_BYTES:
        return None
    return TooBig(len(files), total, biggest(files))


def biggest(files: Sequence[tuple[str, int]], count: int = 5) -> tuple[tuple[str, int], ...]:
    """Return the largest (path, bytes), largest first."""
    return tuple(sorted(files, key=lambda f: (-f[1], f[0]))[:count])
