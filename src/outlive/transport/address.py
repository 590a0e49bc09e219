"""What a person types or pastes to name a machine, as a value. Opens nothing.

``parse`` knows: ``local:``, ``local:/path``, ``.``; an ssh alias; ``user@host[:port]``, IPv6 in brackets or bare;
``ssh://user@host:port``; and a whole ``ssh ...`` line as consoles show it, with the password line below it. Passwords
are dropped here and reach nothing behind this module.
"""

# Every command reads an address: what only some forms of one need is imported where it is needed.
from __future__ import annotations

import os
import re
import shlex
import unicodedata
from dataclasses import dataclass
from typing import Literal

from outlive.errors import BadAddress

Kind = Literal["local", "alias", "url"]

EXAMPLES = ("mybox", "root@203.0.113.5:2222", "ssh -p 12345 root@connect.example.com", "local:")
"""One of each form, for messages."""

_HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?\Z"
_USER = r"[A-Za-z0-9_.][A-Za-z0-9_.@+=$\\-]*\Z"
_ALIAS = r"[^\s@:/\\'\"`$;&|<>(){}*?!#,-][^\s@:/\\'\"`$;&|<>(){}*?!#,]*\Z"
_PASSWORD = r"(?i)^\s*(password|passwd|pwd|pass|密码|登录密码|口令)\s*([:=：]|$)"
_INVISIBLE = "[\u200b-\u200f\u2028-\u202e\u2060\ufeff]"


@dataclass(frozen=True)
class Address:
    """Where a machine is.

    ``kind`` is ``local`` (``root`` is its directory, "" for the default one), ``alias`` (``alias`` is a name in the
    user's ssh configuration; ``user`` and ``port`` only if given beside it), or ``url`` (``host``; ``user`` None means
    ssh's default, ``port`` None means ssh's default). ``options`` are checked ssh settings ``Name=value`` in the order
    given. ``dropped`` names what was left out of a pasted line and why. ``original`` is what was typed, without
    passwords.
    """

    kind: Kind
    alias: str = ""
    user: str | None = None
    host: str = ""
    port: int | None = None
    root: str = ""
    options: tuple[str, ...] = ()
    original: str = ""
    dropped: tuple[str, ...] = ()

    @property
    def destination(self) -> str:
        """The word that ssh takes as its destination; "" for ``local``."""
        name = self.alias or self.host
        return f"{self.user}@{name}" if self.user else name

    def __str__(self) -> str:
        """The shortest text that ``parse`` turns into the same place."""
        if self.kind == "local":
            return f"local:{self.root}"
        if self.options or (self.kind == "alias" and (self.user or self.port)):
            words = ["ssh", *(["-p", str(self.port)] if self.port else [])]
            for option in self.options:
                words += ["-o", option]
            return shlex.join([*words, self.destination])
        host = f"[{self.host}]" if ":" in self.host else self.host
        name = self.alias or (f"{self.user}@{host}" if self.user else host)
        return f"{name}:{self.port}" if self.port else name


def parse(text: str) -> Address:
    """Return the address in ``text``.

    Raises BadAddress with what was understood and an example. A bare word without a dot is an alias; whether the
    user's ssh configuration has it is another question (``aliases.check``).
    """
    if not text.strip():
        raise _bad("the address is empty", text)
    if text.strip() == ".":
        return Address("local", root=os.getcwd(), original=".")
    if text.strip().startswith("local:"):
        return _local(text.strip())
    line = _the_line(text)
    words = _words(line)
    if words[0] in ("ssh", "ssh.exe") or words[0].endswith("/ssh"):
        return _pasted(words, line)
    if len(words) > 1:
        if words[0] in ("scp", "sftp", "rsync", "mosh", "sshpass"):
            raise _bad(f"this is a line for `{words[0]}`; paste the `ssh` line", line)
        raise _bad(f"{len(words)} words, and the first is not `ssh`", line)
    return _one_word(words[0], line)


def _local(text: str) -> Address:
    root = text[len("local:") :]
    if root.startswith("~"):
        root = os.path.expanduser(root)
    if root and not root.startswith("/"):
        raise _bad(
            f"`local:` takes an absolute directory, not {root!r}", text, example=f"local:{os.path.abspath(root)}"
        )
    return Address("local", root=os.path.normpath(root) if root else "", original=text)


def _the_line(text: str) -> str:
    """Pick the one line that names a machine out of a paste, with full-width and invisible characters undone."""
    plain = re.sub(_INVISIBLE, "", unicodedata.normalize("NFKC", text)).replace("\\\n", " ")
    lines = [re.sub(r"^[$>#%]\s+", "", raw.strip()).strip("`").strip() for raw in plain.splitlines()]
    lines = [line for line in lines if line and not re.match(_PASSWORD, line)]
    ssh_lines = [line for line in lines if re.match(r"(\S*/)?ssh(\.exe)?\s|ssh://", line)]
    if len(ssh_lines) > 1 and len(set(ssh_lines)) > 1:
        raise _bad(f"{len(ssh_lines)} ssh lines; paste the one that is meant", ssh_lines[0])
    if ssh_lines:
        return ssh_lines[0]
    with_host = [line for line in lines if "@" in line]
    found = with_host or lines
    if not found:
        raise _bad("only a password and no address", "")
    # A console shows the address first; what follows (a password without label) is never looked at or kept.
    return found[0]


def _words(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise _bad(f"the quotes do not match ({error})", line) from None
    if not words:
        raise _bad("the address is empty", line)
    return words


def _pasted(words: list[str], line: str) -> Address:
    from outlive.transport import sshline

    try:
        parts = sshline.read(words[1:])
    except sshline.NotTaken as error:
        fixed = ["outlive", "up", shlex.join(["ssh", *error.rest])] if error.rest else None
        raise BadAddress(
            f"`{error.word}` cannot be part of an address: {error.reason}",
            address=_hide_password(line),
            next=[fixed] if fixed else [],
        ) from None
    if not parts.destination:
        raise _bad("the ssh line names no machine", line, understood=parts.understood())
    found = _one_word(parts.destination, line)
    if found.kind == "local":
        raise _bad("the ssh line names no machine", line)
    if parts.user and found.user and parts.user != found.user:
        raise _bad(f"two users: {parts.user} and {found.user}", line)
    if parts.port and found.port and _port(parts.port, line) != found.port:
        raise _bad(f"two ports: {parts.port} and {found.port}", line)
    return Address(
        found.kind,
        alias=found.alias,
        user=found.user or parts.user or None,
        host=found.host,
        port=found.port or (_port(parts.port, line) if parts.port else None),
        root=found.root,
        options=tuple(parts.options),
        original=_hide_password(line),
        dropped=tuple(parts.dropped),
    )


def _one_word(word: str, line: str) -> Address:
    original = _hide_password(line)
    rest, root = word, ""
    scheme, separator, after = word.partition("://")
    if separator:
        if scheme != "ssh":
            import difflib

            near = " (did you mean ssh://?)" if difflib.get_close_matches(scheme, ["ssh"], cutoff=0.5) else ""
            raise _bad(f"{scheme}:// is not a way to reach a machine{near}", line, example=f"ssh://{after}")
        rest, slash, path = after.partition("/")
        root = _unquoted(slash + path) if path else ""
    user, at, hostport = rest.rpartition("@")
    if at and not user:
        raise _bad("nothing stands before the @", line, example=f"root@{hostport}")
    if separator and ":" in user:
        raise BadAddress(
            "the address holds a password; passwords are not taken",
            address=original,
            why=["keys only: a password in an address ends up in shell histories and process lists"],
            next=[["outlive", "up", original.replace(":***", "")]],
        )
    if user and not re.match(_USER, user):
        raise _bad(f"{user!r} is not a user name", line, understood=[f"host {hostport}"])
    host, port = _host_and_port(hostport, line, understood=[f"user {user}"] if user else [])
    plain_name = not separator and not user and port is None and "." not in host and ":" not in host
    if plain_name:
        if not re.match(_ALIAS, host):
            raise _bad(f"{host!r} is neither a host nor an ssh alias", line)
        return Address("alias", alias=host, original=original)
    return Address("url", user=user or None, host=host, port=port, root=root, original=original)


def _host_and_port(text: str, line: str, understood: list[str]) -> tuple[str, int | None]:
    if not text:
        raise _bad("no host", line, understood=understood, example="root@203.0.113.5")
    if text.startswith("["):
        inner, bracket, after = text[1:].partition("]")
        if not bracket or (after and not after.startswith(":")) or after == ":":
            raise _bad(
                f"{text!r}: an IPv6 address stands in brackets, then `:port`", line, example="root@[2001:db8::1]:22"
            )
        return _ipv6(inner, line), (_port(after[1:], line) if after else None)
    if text.count(":") > 1:
        if re.search(r":\d+:\d+\Z", text) and "::" not in text and text.count(":") == 2:
            raise _bad(f"{text!r} has two ports", line, understood=understood)
        return _ipv6(text, line), None
    host, colon, port = text.partition(":")
    if colon and "/" in port:
        raise _bad(
            f"{port!r} stands where the port goes; a directory is not part of the address",
            line,
            [*understood, f"host {host}"],
        )
    if not re.match(_HOST, host) and not (not colon and re.match(_ALIAS, host)):
        raise _bad(f"{host!r} is not a host name", line, understood=understood)
    if re.fullmatch(r"[0-9.]+", host) and "." in host:
        import ipaddress

        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise _bad(f"{host!r} looks like an IPv4 address and is none", line, understood=understood) from None
    return host, (_port(port, line, [*understood, f"host {host}"]) if colon else None)


def _unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


def _ipv6(text: str, line: str) -> str:
    import ipaddress

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        raise _bad(f"{text!r} is not an IPv6 address", line, example="root@[2001:db8::1]:22") from None
    return text


def _port(text: str, line: str, understood: list[str] | None = None) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise _bad(f"{text!r} is not a port (1 to 65535)", line, understood=understood)
    return int(text)


def _hide_password(line: str) -> str:
    return re.sub(r"(ssh://[^/@\s:]*):[^/@\s]*@", r"\1:***@", line)


def _bad(what: str, line: str, understood: list[str] | None = None, example: str = "") -> BadAddress:
    shown = _hide_password(line.strip())
    why = [f"typed: {shown}"] if shown else []
    if understood:
        why.append("understood: " + ", ".join(understood))
    if not example:
        why.append("an address is one of: " + " | ".join(EXAMPLES))
    return BadAddress(
        f"not an address: {what}", address=shown, why=why, next=[["outlive", "up", example or EXAMPLES[1]]]
    )
