"""The public names: each is there, and none is paid for before it is used."""

import subprocess
import sys

import pytest

import outlive


@pytest.mark.parametrize("name", [n for n in outlive.__all__ if n != "__version__"])
def test_every_public_name_can_be_had(name):
    assert callable(getattr(outlive, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'rent'"):
        outlive.rent  # noqa: B018


def test_importing_the_package_loads_nothing_else_of_ours():
    code = "import sys, outlive; print([m for m in sys.modules if m.startswith('outlive.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
