"""From an address to an ``Exec``: one plain table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from outlive.transport.address import Address
from outlive.transport.base import Exec

Multiplex = Literal["auto", "no"]


def open_exec(
    address: Address,
    *,
    state_dir: Path,
    identity: str | None = None,
    accept_new: bool = False,
    config_path: Path | None = None,
    multiplex: Multiplex = "auto",
) -> Exec:
    """Return an executor for ``address``. Connects to nothing yet; arguments as for ``SshExec``."""
    return _OPENERS[address.kind](address, state_dir, identity, accept_new, config_path, multiplex)


_Opener = Callable[[Address, Path, str | None, bool, Path | None, Multiplex], Exec]


def _local(address: Address, *_: object) -> Exec:
    from outlive.transport.local import LocalExec

    return LocalExec(name=str(address))


def _ssh(
    address: Address, state_dir: Path, identity: str | None, accept_new: bool, config: Path | None, multiplex: Multiplex
) -> Exec:
    from outlive.transport.ssh import SshExec

    return SshExec(
        address,
        state_dir=state_dir,
        identity=identity,
        accept_new=accept_new,
        config_path=config,
        multiplex=multiplex,
    )


_OPENERS: dict[str, _Opener] = {
    "alias": _ssh,
    "local": _local,
    "url": _ssh,
}
