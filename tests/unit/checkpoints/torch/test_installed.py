"""The one test of this folder that is collected without torch."""

import importlib

import pytest


@pytest.mark.parametrize("name", ["torch", "safetensors", "torchdata"])
def test_what_these_tests_need_is_installed(name):
    try:
        importlib.import_module(name)
    except ImportError as error:
        pytest.fail("%s; run: python -m pip install 'torch==2.13.0' 'safetensors>=0.4' 'torchdata>=0.11'" % error)
