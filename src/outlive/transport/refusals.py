"""What ssh wrote before it gave up, turned into an error by a table: first row that matches wins.

The texts are OpenSSH's own (stable over many versions, not translated). A row is data; adding one is adding a line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from outlive.errors import BoxLacks, HostKeyChanged, LoginRefused, PlaceError, Unreachable

SAFE = "nothing was changed; this says nothing about what runs there"


@dataclass(frozen=True)
class Refusal:
    """``pattern`` is searched in ssh's standard error, ``what`` names the event, ``hint`` is what usually helps."""

    slug: str
    pattern: str
    kind: type[PlaceError]
    what: str
    hint: str


TABLE: tuple[Refusal, ...] = (
    Refusal(
        "host-key-changed",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S+ has changed|POSSIBLE DNS SPOOFING",
        HostKeyChanged,
        "{place} shows another host key than the recorded one",
        "either another box answers at this address now, or somebody stands in between; compare with the console",
    ),
    Refusal(
        "host-key-unknown",
        r"No \S+ host key is known for|Host key verification failed|host key .*revoked",
        HostKeyChanged,
        "no host key is recorded for {place}, and only `up` may record one",
        "reach it once with `outlive up`, which shows and records its key",
    ),
    Refusal(
        "proxy",
        r"proxy\S*: |ProxyCommand|kex_exchange_identification.*proxy|stdio forwarding failed|UNKNOWN port 65535",
        Unreachable,
        "the way to {place} (proxy or jump host) failed before the machine itself was reached",
        "try the jump host alone; look at ProxyJump or ProxyCommand in your ssh configuration",
    ),
    Refusal(
        "dns",
        r"Could not resolve hostname|Name or service not known|nodename nor servname|failure in name resolution",
        Unreachable,
        "the name of {place} does not resolve",
        "check the spelling, and whether this machine has a network",
    ),
    Refusal(
        "banner-timeout",
        r"timed out during banner exchange|timed out while waiting for.*banner|banner exchange: .*timed out",
        Unreachable,
        "{place} accepts connections and then says nothing",
        "the box may be out of memory or still booting, or this port belongs to something else than ssh",
    ),
    Refusal(
        "not-ssh",
        r"banner line contains invalid|Bad remote protocol version|invalid format|Protocol mismatch",
        Unreachable,
        "what answers at {place} is not an ssh server",
        "check the port: consoles show one for ssh and others for web pages",
    ),
    Refusal(
        "kex-reset",
        r"kex_exchange_identification|ssh_exchange_identification|Connection (closed|reset) by .*\[preauth\]"
        r"|Exceeded MaxStartups|Not allowed at this time",
        Unreachable,
        "{place} closed the connection before any login",
        "too many logins at once (MaxStartups), a ban after failed ones (fail2ban), or a gateway whose box is off: "
        "wait a few minutes, then try once",
    ),
    Refusal(
        "timeout",
        r"Connection timed out|Operation timed out|connect .*timed out|Connection to \S+ port \d+ timed out",
        Unreachable,
        "{place} did not answer",
        "the box may be off, starting, or behind a firewall; look at the platform's console",
    ),
    Refusal(
        "refused",
        r"Connection refused",
        Unreachable,
        "{place} is there and nothing listens at that port",
        "the box may be starting, or its ssh port has changed (rented boxes get a new one at each start)",
    ),
    Refusal(
        "no-route",
        r"No route to host|Network is unreachable|Network is down|Host is down|Address family not supported",
        Unreachable,
        "there is no way from this machine to {place}",
        "check this machine's network or VPN; IPv6-only boxes need IPv6 here",
    ),
    Refusal(
        "too-many-keys",
        r"Too many authentication failures",
        LoginRefused,
        "{place} hung up after too many keys were tried",
        "name the one key: outlive up 'ssh -i KEY -o IdentitiesOnly=yes ...'",
    ),
    Refusal(
        "key-file",
        r"(Load key|UNPROTECTED PRIVATE KEY|bad permissions|invalid key).*",
        LoginRefused,
        "a private key for {place} cannot be used",
        "its file must be a private key that only you can read (chmod 600)",
    ),
    Refusal(
        "permission-denied",
        r"Permission denied \(|No supported authentication methods|Permission denied, please try again"
        r"|Authentication failed|Received disconnect from .*: 14",
        LoginRefused,
        "{place} answers and refuses every key we may use",
        "add a public key in the platform's console, or with ssh-copy-id; a key with a passphrase must be in the "
        "agent (ssh-add)",
    ),
    Refusal(
        "expired",
        r"password has expired|account has expired|account is currently not available|maintenance|System is booting up",
        LoginRefused,
        "{place} accepts the key and lets nobody in",
        "log in once by hand (outlive ssh) and read what it says",
    ),
    Refusal(
        "no-processes",
        r"(cannot|can't|could not) fork|fork: .*Resource temporarily unavailable|fork failed|No more processes",
        Unreachable,
        "{place} lets us in and can start no more processes",
        "its limit of processes is reached: some must end first; what runs there goes on",
    ),
    Refusal(
        "needs-terminal",
        r"(does(n't| not) support|requires?|must have|No|without) (a )?(PTY|pty|TTY|tty)"
        r"|PTY allocation request failed",
        BoxLacks,
        "{place} gives terminals only and does not run commands",
        "this is a console gateway: use the platform's direct ssh address",
    ),
    Refusal(
        "no-common-algorithm",
        r"Unable to negotiate with|no matching (key exchange|host key type|cipher|MAC)",
        BoxLacks,
        "{place} and this ssh have no algorithm in common",
        "the server is very old or hardened; give -o KexAlgorithms=... or HostKeyAlgorithms=... in the ssh line",
    ),
    Refusal(
        "bad-configuration",
        r"Bad configuration option|terminating, \d+ bad|Bad owner or permissions on|keyword .* (extra|missing)",
        Unreachable,
        "ssh does not accept its own configuration",
        "run `ssh -G` with the same address; it names the line",
    ),
    Refusal(
        "lost",
        r"Broken pipe|Connection to \S+ closed by remote host|Timeout, server|Connection reset|Connection closed by"
        r"|client_loop: send disconnect|Server .* not responding",
        Unreachable,
        "the connection to {place} was lost",
        "the command may have run, be running, or never have started; it is safe to ask again",
    ),
)


def find(text: str) -> Refusal | None:
    """Return the first row that matches ssh's words, or None."""
    return next((row for row in TABLE if re.search(row.pattern, text, re.IGNORECASE | re.MULTILINE)), None)


def error_for(text: str, place: str, *, otherwise: PlaceError, next: Sequence[Sequence[str]] = ()) -> PlaceError:
    """Return the error for ssh's words about ``place``, or ``otherwise``. Host keys are completed in ``hostkeys``."""
    row = find(text)
    why = last_words(text)
    if row is None:
        otherwise.why = [*otherwise.why, *why]
        return otherwise
    return row.kind(row.what.format(place=place), place=place, safe=SAFE, next=next, why=[row.hint, *why])


def last_words(text: str, lines: int = 3) -> list[str]:
    """Return the last lines that ssh itself wrote, without its banner art."""
    kept = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("@@@")]
    return [f"ssh: {line}" for line in kept[-lines:]]
