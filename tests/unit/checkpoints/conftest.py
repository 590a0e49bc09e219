"""What survives a lost power supply is not tested here; without waiting for a disk these tests are quick."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture(autouse=True)
def refused_at_once(monkeypatch):
    monkeypatch.setattr("outlive.checkpoints.lock.WAIT_S", 0.2)
