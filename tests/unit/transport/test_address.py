"""Addresses as people type and paste them."""

from __future__ import annotations

import os

import pytest

from outlive.errors import BadAddress
from outlive.transport.address import EXAMPLES, Address, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mybox", {"kind": "alias", "alias": "mybox"}),
        ("我的机器", {"kind": "alias", "alias": "我的机器"}),
        ("gpu1.example.com", {"kind": "url", "host": "gpu1.example.com"}),
        ("203.0.113.5", {"kind": "url", "host": "203.0.113.5"}),
        ("root@203.0.113.5", {"kind": "url", "user": "root", "host": "203.0.113.5"}),
        ("root@mybox", {"kind": "url", "user": "root", "host": "mybox"}),
        ("root@203.0.113.5:2222", {"kind": "url", "user": "root", "host": "203.0.113.5", "port": 2222}),
        ("mybox:2222", {"kind": "url", "host": "mybox", "port": 2222}),
        ("ssh://root@h.example.com:22", {"kind": "url", "user": "root", "host": "h.example.com", "port": 22}),
        ("ssh://h/data/x%20y", {"kind": "url", "host": "h", "root": "/data/x y"}),
        ("root@[2001:db8::1]:2222", {"kind": "url", "user": "root", "host": "2001:db8::1", "port": 2222}),
        ("ssh://root@[::1]", {"kind": "url", "user": "root", "host": "::1"}),
        ("root@fe80::1%eth0", {"kind": "url", "user": "root", "host": "fe80::1%eth0"}),
        ("2001:db8::1", {"kind": "url", "host": "2001:db8::1"}),
        ("abc-6441@ssh.runpod.io", {"kind": "url", "user": "abc-6441", "host": "ssh.runpod.io"}),
        ("me@corp@jump.example.com", {"kind": "url", "user": "me@corp", "host": "jump.example.com"}),
        ("local:", {"kind": "local", "root": ""}),
        ("local:/srv/a b", {"kind": "local", "root": "/srv/a b"}),
        (".", {"kind": "local", "root": os.getcwd()}),
    ],
)
def test_forms(text: str, expected: dict[str, object]) -> None:
    found = parse(text)
    assert {name: getattr(found, name) for name in expected} == expected
    defaults = Address(kind=found.kind, original=found.original)
    for name in ("alias", "user", "host", "port", "root", "options"):
        if name not in expected:
            assert getattr(found, name) == getattr(defaults, name), name


@pytest.mark.parametrize(
    "text",
    [
        "ssh -p 12345 root@connect.westb.example.com",
        "ssh -p12345 root@connect.westb.example.com",
        "ssh root@connect.westb.example.com -p 12345",
        "ssh -l root -p 12345 connect.westb.example.com",
        "ssh -o Port=12345 -o 'User root' connect.westb.example.com",
        "ssh -Tp 12345 -- root@connect.westb.example.com",
        "ssh ssh://root@connect.westb.example.com:12345",
        "  $ ssh -p 12345 root@connect.westb.example.com  \n密码: hunter2\n",
        "ssh -p 12345 root@connect.westb.example.com\nhunter2",
        "登录指令：\nssh -p 12345 root@connect.westb.example.com\nPassword: hunter2",
        "ssh -p 12345 root@connect.westb.example.com \u200b",
        "ssh -p 12345 root＠connect.westb.example.com",
        "`ssh -p 12345 \\\n root@connect.westb.example.com`",
        "/usr/bin/ssh -p 12345 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        " root@connect.westb.example.com",
        "root@connect.westb.example.com:12345\n密码 hunter2",
        "root@connect.westb.example.com：12345",
    ],
)
def test_pasted(text: str) -> None:
    found = parse(text)
    assert (found.kind, found.user, found.host, found.port) == ("url", "root", "connect.westb.example.com", 12345)
    assert found.options == () and "hunter2" not in repr(found)
    assert parse(str(found)).destination == found.destination


def test_pasted_settings_are_kept_in_order(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    found = parse("ssh -i ~/.ssh/gpu -4 -J me@jump.example.com -o identitiesonly=yes -p 22 mybox")
    assert found.alias == "mybox" and found.port == 22
    assert found.options == (
        "IdentityFile=/home/me/.ssh/gpu",
        "AddressFamily=inet",
        "ProxyJump=me@jump.example.com",
        "IdentitiesOnly=yes",
    )
    again = parse(str(found))
    assert (again.alias, again.port, again.options) == (found.alias, found.port, found.options)


def test_what_is_left_out_is_said() -> None:
    found = parse("ssh -tt -o StrictHostKeyChecking=no root@h.example.com")
    assert len(found.dropped) == 3 and "StrictHostKeyChecking" in found.dropped[2]


@pytest.mark.parametrize(
    ("text", "reason", "fixed"),
    [
        ("ssh -p 1 root@h.example.com -L 8080:localhost:8080", "outlive tunnel", "ssh -p 1 root@h.example.com"),
        ("ssh -A root@h.example.com", "your keys", "ssh root@h.example.com"),
        ("ssh -o ProxyCommand='nc %h %p' root@h.example.com", "runs a program", "ssh root@h.example.com"),
        ("ssh -o LocalCommand=id root@h.example.com", "runs a program", "ssh root@h.example.com"),
        ("ssh -o KnownHostsCommand=id root@h.example.com", "runs a program", "ssh root@h.example.com"),
        ("ssh -F /tmp/evil root@h.example.com", "configuration file", "ssh root@h.example.com"),
        ("ssh root@h.example.com nvidia-smi -L", "commands come later", "ssh root@h.example.com"),
        ("ssh -I /tmp/x.so root@h.example.com", "program library", "ssh root@h.example.com"),
        ("ssh -Z root@h.example.com", "no such option", "ssh root@h.example.com"),
    ],
)
def test_refused_with_reason_and_the_line_without_it(text: str, reason: str, fixed: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse(text)
    assert reason in caught.value.what
    assert caught.value.next == [["outlive", "up", fixed]]
    parse(fixed)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "empty"),
        ("   \n", "empty"),
        ("root@", "no host"),
        ("@host", "before the @"),
        ("root@h.example.com:", "''"),
        ("root@h.example.com:22x", "22x"),
        ("root@h.example.com:0", "port"),
        ("root@h.example.com:70000", "70000"),
        ("root@h.example.com:/data", "directory"),
        ("root@h_ost!", "h_ost!"),
        ("root@-oProxyCommand=id", "host name"),
        ("-oProxyCommand=id", "-oProxyCommand"),
        ("ssh -p root@h.example.com", "names no machine"),
        ("ssh", "names no machine"),
        ("ssh -p 22", "names no machine"),
        ("ssh 'root@h", "quotes"),
        ("scp a root@h:", "scp"),
        ("root@h.example.com -p 22", "not `ssh`"),
        ("shh://root@h.example.com", "did you mean ssh"),
        ("https://h.example.com", "https"),
        ("root@[2001:db8::1", "brackets"),
        ("root@2001:zz::1", "IPv6"),
        ("root@300.1.1.1", "IPv4"),
        ("root@h:22:33", "two ports"),
        ("ssh -p 22 root@h.example.com:33", "two ports"),
        ("ssh -l me root@h.example.com", "two users"),
        ("ssh a@b.example.com\nssh c@d.example.com", "2 ssh lines"),
        ("local:relative", "absolute"),
        ("ro ot@host", "not `ssh`"),
        ("密码: hunter2", "only a password"),
    ],
)
def test_typos_say_what_was_seen(text: str, named: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse(text)
    error = caught.value
    assert named in error.sentence() and error.exit_code == 2
    assert error.next and error.next[0][:2] == ["outlive", "up"]
    assert "hunter2" not in error.sentence()


def test_understood_part_is_shown() -> None:
    with pytest.raises(BadAddress) as caught:
        parse("root@h.example.com:22x")
    assert "understood: user root, host h.example.com" in caught.value.why


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadAddress) as caught:
        parse("ssh://root:hunter2@h.example.com:22")
    assert "hunter2" not in caught.value.sentence() and "hunter2" not in caught.value.address
    assert caught.value.next == [["outlive", "up", "ssh://root@h.example.com:22"]]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_addresses(example: str) -> None:
    assert parse(example).original == example
