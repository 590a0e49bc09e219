"""The builders of small files, as a fixture: test folders are no packages, so they cannot import each other."""

import importlib.util
import os

import pytest

_spec = importlib.util.spec_from_file_location("forge", os.path.join(os.path.dirname(__file__), "forge.py"))
_forge = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_forge)


@pytest.fixture
def forge():
    return _forge


@pytest.fixture
def put(tmp_path):
    """Write bytes under a name and return the path."""

    def write(name, data):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    return write
