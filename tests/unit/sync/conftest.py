"""A real agent on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outlive.transport.agent import Agent
from outlive.transport.local import LocalExec


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    root = tmp_path / "box root"
    root.mkdir()
    return Agent(LocalExec(), str(root), sys.executable)
