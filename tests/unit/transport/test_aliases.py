"""Questions to the user's ssh configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.errors import BadAddress, Unreachable
from outlive.transport import aliases
from outlive.transport.address import parse


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "more").write_text("Host included\n  HostName 192.0.2.9\n")
    path = tmp_path / "config"
    path.write_text(
        f"Include {tmp_path}/more\n"
        "Host mybox gpu-*\n  HostName 192.0.2.1\n  Port 2222\n"
        "Host same-name\n  User alice\n"
        "Host empty-block\n"
        "Host *\n  ServerAliveInterval 7\n"
    )
    return path


@pytest.mark.parametrize("name", ["mybox", "gpu-7", "same-name", "included", "empty-block"])
def test_known(config: Path, name: str) -> None:
    assert aliases.alias_exists(name, config)
    aliases.check(parse(name), config)


def test_unknown_names_the_nearest(config: Path) -> None:
    assert not aliases.alias_exists("mybx", config)
    with pytest.raises(BadAddress) as caught:
        aliases.check(parse("mybx"), config)
    assert caught.value.next[0] == ["outlive", "up", "mybox"]


def test_a_name_that_resolves_is_enough(config: Path) -> None:
    assert not aliases.alias_exists("localhost", config)
    aliases.check(parse("localhost"), config)


def test_settings_are_ssh_s_own(config: Path) -> None:
    found = aliases.settings("mybox", config)
    assert found["hostname"] == ["192.0.2.1"] and found["port"] == ["2222"] and found["serveraliveinterval"] == ["7"]


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Hostt mybox\n")
    with pytest.raises(Unreachable) as caught:
        aliases.settings("mybox", path)
    assert "hostt" in caught.value.sentence().lower()


def test_known_aliases_follow_includes_and_skip_patterns(config: Path) -> None:
    assert aliases.known_aliases(config) == ["empty-block", "included", "mybox", "same-name"]
