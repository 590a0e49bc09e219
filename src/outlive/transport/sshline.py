"""Read the words of an ``ssh`` command line that a console printed, by a table of what each option may do.

What only names the machine is taken, what changes nothing for us is dropped and said, what would run a command, open
a port or hand out keys is refused with its reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

TAKES_VALUE = "BbcDEeFIiJLlmOopQRSWw"
"""ssh's options that take a value, joined or as the next word."""

HARMLESS = {
    "t": "a terminal is asked for where one is needed",
    "T": "a terminal is asked for where one is needed",
    "v": "verbosity",
    "q": "verbosity",
    "x": "X11 is never forwarded",
    "a": "the agent is never forwarded",
    "N": "commands are run",
    "n": "standard input is ours",
    "f": "commands are run in the foreground",
}

AS_OPTION = {"4": "AddressFamily=inet", "6": "AddressFamily=inet6", "C": "Compression=yes"}

REFUSED = {
    "L": "it opens a port; that is what `outlive tunnel` does, later",
    "R": "it opens a port on the box towards this machine",
    "D": "it opens a proxy port; that is what `outlive tunnel` does, later",
    "W": "it forwards standard input to another machine",
    "w": "it opens a network tunnel",
    "A": "it lends your ssh agent, and so your keys, to the box",
    "X": "it opens your display to the box",
    "Y": "it opens your display to the box",
    "F": "the configuration file is a setting of outlive, not a part of an address",
    "E": "it writes a log file",
    "I": "it loads a program library into ssh",
    "M": "connection sharing is done by outlive",
    "S": "connection sharing is done by outlive",
    "O": "it controls another ssh",
    "G": "it only prints settings",
    "V": "it only prints a version",
    "Q": "it only prints a list",
    "s": "it asks for a subsystem instead of a command",
    "g": "it opens forwarded ports to the network",
}

ALLOWED_SETTINGS = (
    "AddressFamily",
    "BindAddress",
    "BindInterface",
    "Ciphers",
    "Compression",
    "ConnectTimeout",
    "HostKeyAlgorithms",
    "HostName",
    "IPQoS",
    "IdentitiesOnly",
    "IdentityFile",
    "KexAlgorithms",
    "MACs",
    "Port",
    "PreferredAuthentications",
    "ProxyJump",
    "PubkeyAcceptedAlgorithms",
    "PubkeyAcceptedKeyTypes",
    "PubkeyAuthentication",
    "RekeyLimit",
    "TCPKeepAlive",
    "User",
)

OURS = {
    "stricthostkeychecking": "the host key is recorded at `up` and compared afterwards",
    "userknownhostsfile": "host keys of boxes are kept apart from yours",
    "globalknownhostsfile": "host keys of boxes are kept apart from yours",
    "loglevel": "verbosity",
    "serveraliveinterval": "set by outlive",
    "serveralivecountmax": "set by outlive",
    "batchmode": "set by outlive",
    "requesttty": "a terminal is asked for where one is needed",
    "controlmaster": "connection sharing is done by outlive",
    "controlpath": "connection sharing is done by outlive",
    "controlpersist": "connection sharing is done by outlive",
    "forwardagent": "the agent is never forwarded",
    "exitonforwardfailure": "nothing is forwarded",
}

_CANONICAL = {name.lower(): name for name in ALLOWED_SETTINGS}
_JUMP = re.compile(r"[A-Za-z0-9_.,@:\[\]%+=/-]+\Z")


class NotTaken(ValueError):
    """A word that an address must not hold. ``rest`` is the line without it, [] where dropping does not mend it."""

    def __init__(self, word: str, reason: str, rest: Sequence[str] = ()) -> None:
        super().__init__(f"{word}: {reason}")
        self.word = word
        self.reason = reason
        self.rest = list(rest)


@dataclass
class Parts:
    """What the line said."""

    destination: str = ""
    user: str = ""
    port: str = ""
    options: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def understood(self) -> list[str]:
        """Return what was read, for a message."""
        named = [("destination", self.destination), ("user", self.user), ("port", self.port)]
        return [f"{name} {value}" for name, value in named if value] + self.options


def read(words: Sequence[str]) -> Parts:
    """Return the parts of the words after ``ssh``. Options may stand before and after the destination.

    Raises NotTaken.
    """
    parts = Parts()
    at, only_words = 0, False
    while at < len(words):
        word, start = words[at], at
        at += 1
        if word == "--" and not only_words:
            only_words = True
        elif only_words or not word.startswith("-") or word == "-":
            if parts.destination:
                raise NotTaken(word, "the address ends at the host; commands come later", words[:start])
            parts.destination = word
        else:
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                if letter not in TAKES_VALUE:
                    _flag(parts, letter, list(words[:start]) + list(words[at:]))
                    continue
                value, letters = letters, ""
                if not value:
                    if at >= len(words):
                        raise NotTaken(f"-{letter}", "its value is missing")
                    value = words[at]
                    at += 1
                _valued(parts, letter, value, list(words[:start]) + list(words[at:]))
    return parts


def _flag(parts: Parts, letter: str, rest: list[str]) -> None:
    if letter in AS_OPTION:
        parts.options.append(AS_OPTION[letter])
    elif letter in HARMLESS:
        parts.dropped.append(f"-{letter}: {HARMLESS[letter]}")
    else:
        raise NotTaken(f"-{letter}", REFUSED.get(letter, "ssh has no such option"), rest)


def _valued(parts: Parts, letter: str, value: str, rest: list[str]) -> None:
    if letter == "p":
        parts.port = value
    elif letter == "l":
        parts.user = value
    elif letter == "o":
        _setting(parts, value, rest)
    elif letter == "i":
        _setting(parts, f"IdentityFile={value}", rest)
    elif letter == "J":
        _setting(parts, f"ProxyJump={value}", rest)
    elif letter in "bBcme":
        names = {"b": "BindAddress", "B": "BindInterface", "c": "Ciphers", "m": "MACs"}
        if letter in names:
            _setting(parts, f"{names[letter]}={value}", rest)
        else:
            parts.dropped.append("-e: no terminal, no escape character")
    else:
        raise NotTaken(f"-{letter} {value}", REFUSED.get(letter, "ssh has no such option"), rest)


def _setting(parts: Parts, text: str, rest: list[str]) -> None:
    name, _, value = re.sub(r"\s*[=\s]\s*", "=", text.strip(), count=1).partition("=")
    key = name.lower()
    if key in OURS:
        parts.dropped.append(f"{name}: {OURS[key]}")
        return
    if key not in _CANONICAL:
        runs = "command" in key or key in ("pkcs11provider", "securitykeyprovider", "include", "match")
        reason = (
            "it runs a program on this machine"
            if runs
            else f"of ssh's settings only these: {', '.join(ALLOWED_SETTINGS)}"
        )
        raise NotTaken(f"-o {name}", reason, rest)
    name = _CANONICAL[key]
    if not value or "\n" in value or value.startswith("-"):
        raise NotTaken(f"-o {text}", "its value is missing or cannot be meant")
    if name == "Port":
        parts.port = value
    elif name == "User":
        parts.user = value
    elif name == "IdentityFile":
        # Relative to where the line was pasted, not to wherever a later command runs.
        parts.options.append(f"IdentityFile={os.path.abspath(os.path.expanduser(value))}")
    elif name == "ProxyJump" and not _JUMP.match(value):
        raise NotTaken(f"-J {value}", "not a list of user@host:port")
    else:
        parts.options.append(f"{name}={value}")
