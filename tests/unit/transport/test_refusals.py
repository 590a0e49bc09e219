"""OpenSSH's own last words, as it wrote them (9.2, 8.x, macOS), and the error each becomes."""

from __future__ import annotations

import pytest

from outlive.errors import BoxLacks, HostKeyChanged, LoginRefused, PlaceError, Unreachable
from outlive.transport import refusals

WORDS: list[tuple[str, str, type[PlaceError]]] = [
    ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", "timeout", Unreachable),
    ("ssh: connect to host 192.0.2.1 port 22: Operation timed out", "timeout", Unreachable),
    ("ssh: connect to host 127.0.0.1 port 9: Connection refused", "refused", Unreachable),
    ("ssh: connect to host 10.9.9.9 port 22: No route to host", "no-route", Unreachable),
    ("ssh: connect to host 2001:db8::1 port 22: Network is unreachable", "no-route", Unreachable),
    ("ssh: Could not resolve hostname nope.invalid: Name or service not known", "dns", Unreachable),
    (
        "ssh: Could not resolve hostname nope: nodename nor servname provided, or not known",
        "dns",
        Unreachable,
    ),
    (
        "Connection timed out during banner exchange\nConnection to 1.2.3.4 port 22 timed out",
        "banner-timeout",
        Unreachable,
    ),
    (
        "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 1.2.3.4 port 22",
        "kex-reset",
        Unreachable,
    ),
    ("kex_exchange_identification: read: Connection reset by peer", "kex-reset", Unreachable),
    ("ssh_exchange_identification: Connection closed by remote host", "kex-reset", Unreachable),
    ("kex_exchange_identification: banner line contains invalid characters", "not-ssh", Unreachable),
    ("root@1.2.3.4: Permission denied (publickey,password).", "permission-denied", LoginRefused),
    ("Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures", "too-many-keys", LoginRefused),
    (
        'Load key "/home/me/.ssh/id": error in libcrypto\r\nroot@h: Permission denied (publickey).',
        "key-file",
        LoginRefused,
    ),
    (
        "No ED25519 host key is known for outlive-x and you have requested strict checking.",
        "host-key-unknown",
        HostKeyChanged,
    ),
    (
        "Unable to negotiate with 1.2.3.4 port 22: no matching host key type found. Their offer: ssh-rsa",
        "no-common-algorithm",
        BoxLacks,
    ),
    (
        "channel 0: open failed: connect failed: Name or service not known\r\nstdio forwarding failed",
        "proxy",
        Unreachable,
    ),
    ("sh: 1: Cannot fork", "no-processes", Unreachable),
    ("bash: fork: retry: Resource temporarily unavailable", "no-processes", Unreachable),
    ("sh: can't fork: Resource temporarily unavailable", "no-processes", Unreachable),
    ("Error: Your SSH client doesn't support PTY", "needs-terminal", BoxLacks),
    ("client_loop: send disconnect: Broken pipe", "lost", Unreachable),
    ("Timeout, server 1.2.3.4 not responding.", "lost", Unreachable),
    ("/home/me/.ssh/config: line 3: Bad configuration option: hostt", "bad-configuration", Unreachable),
]


@pytest.mark.parametrize(("words", "slug", "kind"), WORDS, ids=[f"{slug}-{n}" for n, (_, slug, _) in enumerate(WORDS)])
def test_words(words: str, slug: str, kind: type[PlaceError]) -> None:
    row = refusals.find(words)
    assert row is not None and row.slug == slug
    error = refusals.error_for(words, "root@h:22", otherwise=Unreachable("?"))
    assert type(error) is kind and error.exit_code == 4 and error.place == "root@h:22"
    assert error.safe and row.hint in error.why and any(line.startswith("ssh: ") for line in error.why)


def test_unknown_words_are_quoted() -> None:
    other = Unreachable("ssh could not reach x")
    error = refusals.error_for("something new\n", "x", otherwise=other)
    assert error is other and error.why == ["ssh: something new"]


def test_slugs_are_unique() -> None:
    slugs = [row.slug for row in refusals.TABLE]
    assert len(slugs) == len(set(slugs))
