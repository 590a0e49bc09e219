"""Secrets never enter the ledger: declared values are refused there and redacted in what we print."""

from collections.abc import Iterable
from typing import Any

REDACTED = "[redacted]"

SUBSTRING_BYTES = 6
"""A shorter secret is looked for as a whole value only: inside other text it would match by chance."""


class SecretInLedger(ValueError):
    """A record holds a declared secret. A bug of ours: the record was not written."""


class Secrets:
    """The declared secret values of this process, and the forms in which they could slip in."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._whole: set[str] = set()
        self._inside: set[str] = set()
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Declare a value; the empty one is ignored."""
        if not value:
            return
        raw = value.encode("utf-8", "surrogateescape")
        self._whole.add(value)
        if len(raw) >= SUBSTRING_BYTES:
            import base64
            import urllib.parse

            encoded = base64.b64encode(raw).decode("ascii").rstrip("=")
            # The bytes after the last whole group of three change their letters with what follows.
            self._inside |= {value, urllib.parse.quote(value, safe="", errors="surrogateescape"), encoded[:-1]}

    def found_in(self, value: Any, at: str = "") -> str | None:
        """Return where in a plain value a secret stands, or None. Keys are looked at too."""
        if not self._whole:
            return None
        if isinstance(value, str):
            hit = value in self._whole or any(secret in value for secret in self._inside)
            return (at or "value") if hit else None
        if isinstance(value, dict):
            for key, inner in value.items():
                if self.found_in(str(key)) is not None:
                    return f"{at}: a key" if at else "a key"
                where = self.found_in(inner, f"{at}.{key}" if at else str(key))
                if where is not None:
                    return where
        elif isinstance(value, (list, tuple)):
            for index, inner in enumerate(value):
                where = self.found_in(inner, f"{at}[{index}]")
                if where is not None:
                    return where
        return None

    def redact(self, value: Any) -> Any:
        """Return a plain value with every secret replaced; lists and tuples become lists."""
        if isinstance(value, str):
            if value in self._whole:
                return REDACTED
            for secret in sorted(self._inside, key=len, reverse=True):
                value = value.replace(secret, REDACTED)
            return value
        if isinstance(value, dict):
            return {self.redact(str(key)): self.redact(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact(inner) for inner in value]
        return value
