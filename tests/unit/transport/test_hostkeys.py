"""Recorded host keys: identities, not addresses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from outlive.errors import HostKeyChanged
from outlive.transport import hostkeys, keys


def key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def test_settle_forget_and_refuse(tmp_path: Path) -> None:
    ours, pending = tmp_path / "known_hosts", tmp_path / "pending"
    one, two = key(tmp_path / "one"), key(tmp_path / "two")
    pending.write_text(f"{hostkeys.PENDING} {one}\n")
    for _ in range(2):
        hostkeys.settle(pending, "a", ours, "root@h")
    assert ours.read_text() == f"outlive-a {one}\n"
    pending.write_text(f"{hostkeys.PENDING} {two}\n")
    with pytest.raises(HostKeyChanged) as caught:
        hostkeys.settle(pending, "a", ours, "root@h")
    assert caught.value.recorded == hostkeys.fingerprints([f"outlive-a {one}"])[0]
    assert caught.value.shown == hostkeys.fingerprints([f"x {two}"])[0]
    assert ours.read_text() == f"outlive-a {one}\n"
    hostkeys.settle(pending, "b", ours, "root@h")
    assert hostkeys.forget("outlive-a", ours) == 1 and hostkeys.forget("outlive-a", ours) == 0
    assert ours.read_text() == f"outlive-b {two}\n"


@pytest.mark.parametrize("box_id", ["", "a b", "a\nb", "*", "a,b", "x" * 65])
def test_ids_that_ssh_would_misread(box_id: str) -> None:
    with pytest.raises(ValueError):
        hostkeys.alias_for(box_id)


def test_our_key_is_made_once(tmp_path: Path) -> None:
    first = keys.offer(tmp_path / "state")
    assert keys.offer(tmp_path / "state") == first
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == ["id_ed25519", "id_ed25519.pub"]
