"""``up`` on real sshd boxes: how they are reached, what is read of them, what it says when it cannot."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.clients import Client

from outlive import errors
from outlive.runs.up import value

NewClient = Callable[..., Client]


def works(client: Client, name: str = "") -> None:
    """A run from push to end on this box."""
    started = client.run(client.job(env={"LAST": "5", "STEP_S": "0.01"}), name)
    status = client.until(started.run, lambda s: s["ended"])
    assert status["state"] == "succeeded", status


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noisy": True},
        {"max_sessions": 1},
        {"no_multiplex": True},
        {"no_sftp": True, "no_rsync": True, "no_tmux": True},
        {"user": "ana", "noisy": True},
        {"disk": "ext4:64:2000", "user": "ana"},
    ],
    ids=["plain", "noisy", "one-session", "no-sharing", "no-tools", "user", "small-ext4"],
)
def test_every_rental_is_reached_and_runs(box_factory: Any, client: Client, options: dict[str, Any]) -> None:
    box = box_factory(**options)
    found = client.up(box)
    assert found.new and not found.changes and found.runs == []
    assert found.place.box.address == f"{box.user}@{box.address}:{box.port}"
    assert found.place.box.root == ("/root" if box.user == "root" else f"/home/{box.user}")
    assert found.skew_s is not None and abs(found.skew_s) < 5
    works(client)


@pytest.mark.box_python("3.8")
def test_box_with_python_3_8_only(box_factory: Any, client: Client) -> None:
    box = box_factory(python="3.8")
    found = client.up(box)
    assert found.place.box.facts["python"].endswith(("python", "python3.8"))
    assert dict(found.pythons)[found.place.box.facts["python"]].startswith("3.8.")
    works(client)


def test_a_whole_pasted_line_with_its_password(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.use_key(box.key)
    found = client.up(box, f"ssh -p {box.port} {box.user}@{box.address}\npassword: hunter2hunter2")
    assert found.new
    for path in client.home.dir.rglob("*"):
        if path.is_file():
            assert b"hunter2hunter2" not in path.read_bytes(), path
    words = ["ssh", "-p", str(box.port), "-o", "ServerAliveInterval=5", f"{box.user}@{box.address}"]
    again = client.up(box, *words)
    assert not again.new and again.place.name == found.place.name


def test_alias_through_a_configuration_file(box_factory: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    box = box_factory()
    client.know(box, "mybox")
    found = client.up(box, "mybox")
    assert found.place.name == "mybox"
    works(client, "mybox")
    assert "StrictHostKeyChecking yes" in client.config.read_text()  # and nobody has written into it
    monkeypatch.setenv("OUTLIVE_SSH_CONFIG", str(client.config))
    monkeypatch.setenv("OUTLIVE_HOME", str(client.home.dir))
    from outlive.runs.home import Home

    assert Home.default() == client.home


def test_typo_in_an_alias_suggests(box_factory: Any, client: Client) -> None:
    box = box_factory()
    client.know(box, "trainer")
    with pytest.raises(errors.BadAddress) as caught:
        client.up(box, "trianer")
    assert ["outlive", "up", "trainer"] in caught.value.next
    assert caught.value.exit_code == 2
    assert not client.home.state().boxes


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/dash"])
def test_login_shell_that_is_not_bash(box_factory: Any, client: Client, shell: str) -> None:
    box = box_factory()
    box.ssh(f"chsh -s {shell} root || sed -i 's#^\\(root:.*\\):[^:]*$#\\1:{shell}#' /etc/passwd", check=True)
    client.up(box)
    works(client)


def test_root_with_blanks_quotes_and_chinese(box_factory: Any, client: Client) -> None:
    box = box_factory()
    root = "/root/my runs ' \" $HOME 实验"
    box.ssh("mkdir -p '/root/my runs '\\'' \" $HOME 实验'", check=True)
    found = client.up(box, root=root)
    assert found.place.box.root == root
    assert (Path(box.root) / root.lstrip("/") / ".outlive/box-id").is_file()
    works(client)
    assert client.up(box, found.place.name).place.box.root == root


def test_box_without_python_is_told_so(box_factory: Any, client: Client) -> None:
    box = box_factory()
    box.ssh("rm -f /usr/bin/python3* /usr/local/bin/python3* /usr/bin/python", check=True)
    with pytest.raises(errors.BoxLacks) as caught:
        client.up(box)
    assert "no Python 3.8 or newer" in caught.value.what and caught.value.exit_code == 4
    assert caught.value.why == ["found: none"]
    assert any("--python" in argv for argv in caught.value.next)
    assert not client.home.state().boxes
    assert not (box.home / ".outlive").exists()


def test_asked_interpreter_that_is_not_there(box_factory: Any, client: Client) -> None:
    box = box_factory()
    with pytest.raises(errors.BoxLacks, match="/nowhere/python does not work"):
        client.up(box, python="/nowhere/python")
    assert not client.home.state().boxes


def test_unwritable_root_changes_nothing(box_factory: Any, client: Client) -> None:
    box = box_factory(user="ana")
    with pytest.raises(errors.OutliveError) as caught:
        client.up(box, root="/etc")
    assert "/etc" in caught.value.what and caught.value.safe
    assert caught.value.exit_code in (3, 4)
    assert not client.home.state().boxes


# ---- again ----


def test_up_again_says_what_changed(box_factory: Any, client: Client) -> None:
    box = box_factory(memory_mb=300)
    name = client.up(box).place.name
    assert client.up(box, name).changes == []
    box.restart()
    limit = next(p for p in (box.cgroup["memory"] / n for n in ("memory.limit_in_bytes", "memory.max")) if p.exists())
    limit.write_text(str(200 << 20))
    found = client.up(box, name)
    assert not found.new
    assert "the machine was restarted, or the container is another one" in found.changes
    assert any(line.startswith("memory_limit_bytes: 314572800 -> 209715200") for line in found.changes), found.changes
    assert client.up(box, name).changes == []


def test_same_machine_at_another_port_is_the_same_box(box_factory: Any, client: Client, cut_link: Any) -> None:
    box = box_factory()
    first = client.up(box)
    link = cut_link(box.address, box.port)
    again = client.up(box, f"ssh://{box.user}@{link.address}:{link.port}")
    assert not again.new and again.place.name == first.place.name
    assert again.place.box.box_id == first.place.box.box_id
    assert any(line.startswith("address: ") for line in again.changes)
    assert list(client.home.state().boxes) == [first.place.name]
    works(client)


def test_another_machine_at_a_known_address_is_refused(box_factory: Any, client: Client) -> None:
    first = box_factory()
    name = client.up(first).place.name
    old_id = client.box(name).box_id
    address, port = first.address, first.port
    first.kill()
    second = box_factory(address=address, port=port)
    # another host key is another machine, whatever we know of its disk
    with pytest.raises(errors.HostKeyChanged) as caught:
        client.up(second, name)
    assert len({caught.value.recorded, caught.value.shown}) == 2 and caught.value.shown.startswith("SHA256:")
    assert caught.value.exit_code == 4
    # the same host key (images share them) and another disk: our own id tells
    shutil.copy(first.directory / "host_key", second.root / "etc/ssh/ssh_host_ed25519_key")
    shutil.copy(first.directory / "host_key.pub", second.root / "etc/ssh/ssh_host_ed25519_key.pub")
    second.restart()
    with pytest.raises(errors.PlaceError, match="is not " + name):
        client.up(second, name)
    with pytest.raises(errors.PlaceError):
        client.run(client.job(), name)
    assert client.box(name).box_id == old_id


def test_at_points_a_box_to_its_new_address(box_factory: Any, client: Client) -> None:
    box = box_factory()
    name = client.up(box, box.url, name="lab").place.name
    assert name == "lab"
    box.kill()
    settings = box.directory / "settings"
    from servers.boxes import free_port

    new_port = free_port(box.address)
    settings.write_text(settings.read_text().replace(f'port="{box.port}"', f'port="{new_port}"'))
    box.start()
    with pytest.raises(errors.Unreachable):
        client.up(box, "lab")
    found = client.up(box, "lab", at=f"ssh://root@{box.address}:{new_port}")
    assert found.place.name == "lab" and str(new_port) in found.place.box.address
    works(client, "lab")
    other = box_factory()
    with pytest.raises(errors.PlaceError):
        client.up(other, "lab", at=other.url)
    assert str(new_port) in client.box("lab").address


# ---- cannot ----


@pytest.mark.parametrize("how", ["closed", "blackhole"])
def test_unreachable_is_bounded(client: Client, cut_link: Any, ssh_box: Any, how: str) -> None:
    client.use_key(ssh_box.key)
    if how == "closed":
        address = f"ssh://root@{ssh_box.address}:1"
    else:
        link = cut_link(ssh_box.address, ssh_box.port, stall=1, cut_down=0, cut_up=0)
        address = f"ssh://root@{link.address}:{link.port}"
    began = time.monotonic()
    with pytest.raises(errors.PlaceError) as caught:
        client.up(ssh_box, address)
    assert time.monotonic() - began < 30
    assert caught.value.exit_code == 4 and caught.value.safe
    assert not client.home.state().boxes


def test_key_that_cannot_be_read(box_factory: Any, client: Client, tmp_path: Path) -> None:
    box = box_factory()
    broken = tmp_path / "id"
    broken.write_text("not a key\n")
    broken.chmod(0o600)
    client.use_key(broken)
    with pytest.raises(errors.LoginRefused) as caught:
        client.up(box)
    assert caught.value.exit_code == 4
    assert not client.home.state().boxes


def test_key_that_others_may_read_is_named(box_factory: Any, client: Client, tmp_path: Path) -> None:
    box = box_factory()
    open_key = tmp_path / "id"
    shutil.copy(box.key, open_key)
    open_key.chmod(0o644)
    client.use_key(open_key)
    with pytest.raises(errors.LoginRefused) as caught:
        client.up(box)
    assert str(open_key) in caught.value.sentence()


# ---- the audit ----


def test_audit_reads_the_box_and_not_its_host(box_factory: Any, client: Client) -> None:
    box = box_factory(memory_mb=384, cpu_percent=100, no_rsync=True, no_tmux=True, disk="tmpfs:96m:5000")
    found = client.up(box)
    facts = found.place.box.facts
    assert facts["memory_limit_bytes"] == 384 << 20
    assert facts["cores"] == 1.0
    disk = facts["disks"]["/root"]
    assert disk["total_inodes"] == 5000 and 0 < disk["free_inodes"] < 5000
    assert 90 << 20 < disk["total_bytes"] <= 96 << 20
    assert disk["commit_mode"] == "rename"
    assert "rsync" not in facts["tools"] and "tmux" not in facts["tools"] and "tar" in facts["tools"]
    assert facts["gpu_state"] == "none"
    assert value(found.audit, "interpreters")


def test_quota_caps_the_threads_of_the_work(box_factory: Any, client: Client) -> None:
    box = box_factory(cpu_percent=200)
    assert client.up(box).place.box.facts["cores"] == 2.0
    words = ("sh", "-c", "echo threads=$OMP_NUM_THREADS=$MKL_NUM_THREADS; echo ok > out.txt")
    started = client.run(client.job("threads", *words, push=False))
    assert client.until(started.run, lambda s: s["ended"])["state"] == "succeeded"
    assert (
        b"threads=2=2"
        in client.once(started.run).log + (client.home.mirror(started.run) / _one(client) / "log").read_bytes()
    )


def _one(client: Client) -> str:
    return client.box().box_id[:12]
