"""Clients of boxes. Each has its own state and ends its shared connections with the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers.clients import Client


@pytest.fixture
def new_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    """`new_client("laptop")`: a client with an empty state. Shared connections live in the test's own directory."""
    runtime = Path(f"/tmp/o-{os.getpid()}-{os.urandom(3).hex()}")  # short: a socket's path has a limit
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made: list[Client] = []

    def make(name: str = "") -> Client:
        client = Client(tmp_path / (name or f"client-{len(made)}"))
        made.append(client)
        return client

    yield make
    for socket in runtime.rglob("*"):
        if socket.is_socket():
            subprocess.run(["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "any"], capture_output=True, timeout=10)
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture
def client(new_client: Callable[..., Client]) -> Client:
    return new_client()
